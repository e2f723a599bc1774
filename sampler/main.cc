// cohort-sampler run.json: builds minibatches for its trainers until the run is stopped.
// cohort-sampler --devices: what this build and machine can use, as JSON.
// cohort-sampler --memory ORDINAL...: the bytes in use on these GPUs, as JSON.
// cohort-sampler --probe [ORDINAL...]: what these GPUs, or all that are visible, get from each kind of memory, as JSON;
// takes about a second.
// cohort-sampler --presample options.json: counts what a short run reads, for the cache; prints JSON.
#include <signal.h>
#include <sysexits.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/process.h"
#include "cache/remote/socket.h"
#include "channel/run_folder.h"
#include "sampler/devices.h"
#include "sampler/end_in_time.h"
#include "sampler/load.h"
#include "sampler/options.h"
#include "sampler/presample.h"
#include "sampler/ranks.h"

namespace {

using namespace cohort;
using namespace std::chrono_literals;

// The kernel sends it when the launcher dies. It may come before all threads of the launcher have ended, so that the
// launcher still counts as alive; nobody else sends it.
constexpr int kOwnerDied = SIGUSR1;
volatile sig_atomic_t owner_died = 0, is_told_to_end = 0;

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(number, &action, nullptr);
}

// While it lives, SIGTERM and the launcher's death set the stop flag of every channel: all waits look at it. Ctrl-C is
// the launcher's business.
class StopOnSignals {
 public:
  explicit StopOnSignals(sampler::Ranks& ranks) {
    ranks_ = &ranks;
    handle(SIGTERM, [](int) {
      is_told_to_end = 1;
      ranks_->stop();
    });
    handle(kOwnerDied, [](int) {
      owner_died = 1;
      ranks_->stop();
    });
  }
  ~StopOnSignals() {  // it ends anyway
    handle(SIGTERM, [](int) { is_told_to_end = 1; });
    handle(kOwnerDied, [](int) { owner_died = 1; });
  }

 private:
  static inline sampler::Ranks* ranks_ = nullptr;
};

// When the process that started the run is gone, or has left the sampler to other ranks (a file `left` says so), nobody
// else removes the channel's folder; one that is no run's stays.
void remove_channel_of_dead_owner(const sampler::Options& options) {
  if (options.channel.empty() || options.owner_pid == 0) return;
  const bool owner_lives = owner_died == 0 && base::is_alive(base::process_with_pid(options.owner_pid));
  if (owner_lives && !std::filesystem::exists(options.channel / "left")) return;
  channel::remove_run_folder(options.channel);
}

// Ends the process without destructors.
[[noreturn]] void leave(const sampler::Options& options, int status) {
  remove_channel_of_dead_owner(options);
  std::_Exit(status);
}

constexpr auto kTimeToEnd = 2s;

// Until the run is over; the machines that may still ask this one for rows.
std::unique_ptr<cache::OtherMachines> serve_run(const sampler::Options& options) {
  sampler::EndInTime end(kTimeToEnd, [&] {
    std::fprintf(stderr, "cohort-sampler: the run was over, but the GPU or a batch was not: left as it was\n");
    leave(options, 1);
  });
  const dataset::Dataset data = dataset::Dataset::open(options.dataset);
  sampler::Ranks ranks(options, data);
  const StopOnSignals stop_on_signals(ranks);
  const auto asking = end.ask([&] {
    // What a start that nobody wants any more has made goes with the process.
    if (ranks.is_stopped_while_loading()) leave(options, 0);
    return ranks.is_over();
  });
  ranks.serve();
  return ranks.others();
}

int serve(const sampler::Options& options) {
  const auto others = serve_run(options);
  if (others) others->leave([] { return owner_died != 0 || is_told_to_end != 0; });
  return 0;
}

// Prints what it returns.
int print(const std::function<std::string()>& answer) {
  try {
    std::printf("%s\n", answer().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort-sampler: %s\n", error.what());
    return 1;
  }
}

std::vector<int> ordinals_of(std::string_view what, std::span<char*> words) {
  std::vector<int> ordinals;
  for (const std::string_view word : words) {
    const auto [end, error] = std::from_chars(word.begin(), word.end(), ordinals.emplace_back());
    if (error == std::errc() && end == word.end()) continue;
    throw base::Error({std::string(what), "ordinals of GPUs", std::string(word), ""});
  }
  return ordinals;
}

// The tiers of a fetch run side by side only in work queues of their own; under MPS they ran one after the other (13.0
// ms a batch; 7.9 ms with this and with all tiers launched before any is waited for). Has to be said before CUDA
// starts.
constexpr const char* kWorkQueues = "8";

}  // namespace

int main(int argc, char** argv) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", kWorkQueues, 0);
  signal(SIGXFSZ, SIG_IGN);  // beyond a limit of file sizes, writing then fails, and is told
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (argc == 3 && what == "--presample") {
    return print([&] { return sampler::presample_to_file(sampler::read_presample_options(argv[2])); });
  }
  if (what == "--memory")
    return print([&] { return sampler::describe_memory(ordinals_of(what, {argv + 2, argv + argc})); });
  if (what == "--probe")
    return print([&] { return sampler::describe_links(ordinals_of(what, {argv + 2, argv + argc})); });
  if (argc == 4 && what == "--probe-disk") {
    return print([&] { return sampler::describe_disk(argv[2], std::atof(argv[3])); });
  }
  if (argc != 2) {
    std::fprintf(
        stderr,
        "usage: cohort-sampler run.json | --options | --devices | --memory ORDINAL... | --probe [ORDINAL...] | "
        "--probe-disk FILE SECONDS |"
        " --presample options.json\n");
    return 2;
  }
  if (what == "--devices") return print(sampler::describe_devices);
  if (what == "--options") return print(sampler::options_table);
  signal(SIGINT, SIG_IGN);
  int status = 1;
  sampler::Options options;
  try {
    options = sampler::read_options(argv[1]);
    if (options.end_with_parent) base::end_with_parent(options.owner_pid, kOwnerDied);
    status = serve(options);
  } catch (const cache::OtherMachineError& error) {
    std::fprintf(stderr, "cohort-sampler: %s\n", error.what());
    status = EX_UNAVAILABLE;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cohort-sampler: %s\n", error.what());
  }
  remove_channel_of_dead_owner(options);
  return status;
}
