// The trainer's end of the channel.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <mutex>
#include <span>

#include "base/gpu_stream.h"
#include "channel/shared_file.h"
#include "channel/slot_memory.h"
#include "channel/wait.h"

#ifdef COHORT_WITH_CUDA
#include <optional>
#include <vector>

#include "base/owners.h"
#endif

namespace cohort::channel {

// A batch that the trainer holds: valid until release(slot).
struct HeldBatch {
  int slot = -1;
  const Batch* batch = nullptr;
  std::byte* data = nullptr;  // the slot's memory, on the channel's device
};

// A child that the process forks has it too, but no part in the channel: it gives nothing back and ends nothing.
class Subscriber {
 public:
  // Opens the channel in `folder`, which must have been announced. Refuses one of another version or layout.
  explicit Subscriber(std::filesystem::path folder);
  ~Subscriber();
  Subscriber(const Subscriber&) = delete;
  Subscriber& operator=(const Subscriber&) = delete;

  // Posts a request and returns the pass it got. Waits (bounded) while kMaxRequests are posted and not begun.
  uint64_t request(Request request);

  // Takes the next batch of `pass`; batches of earlier passes are given back unseen.
  // `limit_us`: how long the sampler may stay in one stage. Throws PeerLost, or Error when all slots are held here.
  // `interrupted` is asked about five times a second; when it says so, slot -1 is returned.
  HeldBatch next(uint64_t pass, int64_t limit_us, const std::function<bool()>& interrupted = {});

  // The batches of passes below `pass` are not wanted any more.
  void cancel_below(uint64_t pass);

  // Gives the slot back. On a GPU the work already put on `stream` and on `others` may still read it; that is not told
  // to a sampler that has ended, as the events are its own. After leave() the slot is kept. Safe from any thread.
  void release(int slot, base::GpuStream stream, std::span<const base::GpuStream> others = {});

  // Work put on `stream` from now on reads no rows of the pool that the slot's batch names.
  void leave_rows(int slot, base::GpuStream stream);

  // The rows of a type that batches name, in memory of the channel's GPU, unless slots have them; valid as long as
  // this.
  const std::byte* rows(std::size_t type);

  const ChannelHeader& header() const { return *reinterpret_cast<const ChannelHeader*>(file_.data()); }
  // CUDA's number for the channel's GPU in this process; 0 on the CPU.
  int ordinal() const { return ordinal_; }
  // Ends the trainer's part: the sampler waits for it no more. Batches held stay valid.
  void leave() { set_stage(Stage::kEnded); }
  void set_stage(Stage stage, uint64_t batch = 0) {
    if (!in_child()) channel::set_stage(shared().trainer, stage, batch);
  }
  void leave_error(const char* text) {
    if (!in_child()) channel::leave_error(shared().trainer, text);
  }

 private:
  ChannelHeader& shared() const { return *reinterpret_cast<ChannelHeader*>(file_.data()); }
  Slot& slot_at(int slot) const { return slots_of(shared())[static_cast<std::size_t>(slot)]; }
  [[noreturn]] void throw_stopped() const;
  bool has_events() const;  // which are the sampler's own
  bool in_child() const { return getpid() != process_; }
  void refuse_in_child() const;
  void refuse_when_all_are_held() const;

  std::filesystem::path folder_;
  pid_t process_ = getpid();
  base::Mapping file_;
  std::unique_ptr<SlotViewer> memory_;
#ifdef COHORT_WITH_CUDA
  void record_drained(int slot, base::GpuStream stream, std::span<const base::GpuStream> others);

  std::vector<base::Event> drained_, rows_left_;
  // Where all streams that use a slot meet, so that none of them has to wait for another. Made when there are several.
  struct Meeting {
    base::Stream stream;
    base::Event reached{cudaEventDisableTiming};
  };
  std::optional<Meeting> meeting_;
#endif
  int ordinal_ = 0;
  std::mutex release_mutex_;
  uint64_t next_sequence_ = 0;
  uint64_t next_pass_ = 1;
};

}  // namespace cohort::channel
