#include "channel/wait.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "base/process.h"
#include "channel/inspect.h"

namespace cohort::channel {
namespace {

constexpr int64_t kRoundUs = 200'000;  // how soon a death or a stop is seen

timespec deadline_after(int64_t us) {
  const int64_t at = base::monotonic_us() + us;
  return {static_cast<time_t>(at / 1'000'000), static_cast<long>(at % 1'000'000 * 1000)};
}

std::string last_words(const Party& peer) {
  const auto stage = static_cast<Stage>(peer.stage.load());
  std::string text = base::format("its last stage is '{}' (batch {})", stage_name(stage), peer.stage_batch.load());
  if (peer.failed_at_us.load() != 0) text += base::format("; it said: {}", error_of(peer));
  return text;
}

}  // namespace

void set_stage(Party& self, Stage stage, uint64_t batch) {
  self.stage_batch.store(batch, std::memory_order_relaxed);
  self.stage_since_us.store(base::monotonic_us(), std::memory_order_relaxed);
  self.stage.store(static_cast<uint32_t>(stage), std::memory_order_release);
}

void enter(Party& self) {
  const base::ProcessId id = base::current_process();
  self.start_time.store(id.start_time);
  self.pid.store(id.pid);
  set_stage(self, Stage::kStarting);
}

void set_state(Slot& slot, SlotState state) {
  slot.state_since_us.store(base::monotonic_us(), std::memory_order_relaxed);
  slot.state.store(static_cast<uint32_t>(state), std::memory_order_release);
}

void post(sem_t& semaphore) {
  if (sem_post(&semaphore) != 0) base::fail_errno("sem_post", "success", errno);
}

void leave_error(Party& self, const char* text) {
  std::strncpy(self.error, text, kErrorBytes - 1);
  self.failed_at_us.store(base::monotonic_us());
}

void require_alive(const Party& peer, const char* peer_name) {
  const base::ProcessId peer_id{peer.pid.load(), peer.start_time.load()};
  if (peer_id.pid == 0) return;  // not there yet: its starter watches it
  if (peer.failed_at_us.load() == 0 && base::is_alive(peer_id)) return;
  throw PeerLost({base::format("the {} (process {})", peer_name, peer_id.pid), "a running process",
                  "it has ended; " + last_words(peer), base::format("see the {}'s log", peer_name)});
}

bool wait_for(sem_t& semaphore, const std::atomic<uint32_t>& stop, const Party& peer, const char* peer_name,
              const std::function<bool()>& give_up, int64_t limit_us) {
  int64_t stage_since = peer.stage_since_us.load(), silent_us = 0;
  while (true) {
    const int64_t round_began = base::monotonic_us();
    const timespec deadline = deadline_after(kRoundUs);
    if (sem_clockwait(&semaphore, CLOCK_MONOTONIC, &deadline) == 0) return true;
    if (errno != ETIMEDOUT && errno != EINTR)
      base::fail_errno("waiting for the " + std::string(peer_name), "a post", errno);
    if (stop.load() || (give_up && give_up())) return false;
    if (static_cast<Stage>(peer.stage.load()) == Stage::kEnded) return sem_trywait(&semaphore) == 0;
    require_alive(peer, peer_name);
    // A round that took longer was no wait: this process was stopped, and perhaps the peer with it.
    silent_us += std::min(base::monotonic_us() - round_began, 2 * kRoundUs);
    if (const int64_t since = peer.stage_since_us.load(); since != stage_since) stage_since = since, silent_us = 0;
    if (limit_us > 0 && silent_us > limit_us) {
      throw PeerLost({base::format("the {} (process {})", peer_name, peer.pid.load()),
                      base::format("progress within {} s", limit_us / 1'000'000),
                      base::format("none for {} s; {}", silent_us / 1'000'000, last_words(peer)),
                      base::format("see the {}'s log", peer_name)});
    }
  }
}

}  // namespace cohort::channel
