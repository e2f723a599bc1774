// What one host can do at most when it plays two machines of partitioned training, each with a GPU: the time in which
// the GPUs read rows of their own machine, and rows of the other machine come over the loopback interface.
//
//   cache_host_floor_bench [--gpus 0,1] [--host-bytes 9e9] [--remote-bytes 1e10] [--table-bytes 8e9] [--repeats 5]
//                          [--connections N] [--message-bytes N]
//
//   --gpus          of the machines; none: two machines without GPUs, which only send and receive
//   --host-bytes    of its own machine's rows, that each GPU reads
//   --remote-bytes  of the other machine's rows, that each machine receives
//   --table-bytes   of the rows in each machine's memory
//   --connections, --message-bytes: over which each machine asks, and of what comes for a request; default: as in a run
//
// Both machines are threads of this process, with half of its cores each. Rows have 448 bytes, as 128 float32 take when
// they are encoded. A GPU reads batches of random rows of a table (base/host_table.h) by address, and does not decode
// them. Rows of the other machine are asked for as in cache/remote: by their ids, with as many requests under way. They
// are received into page-locked memory and copied from there to the GPU; nobody checks or decodes them. What is sent:
//
//   nothing   the page-locked memory is copied to the GPU as it is
//   warm      the same bytes again and again, from a core's cache
//   table     rows that lie side by side in the table
//   gathered  random rows of the table, copied together first, as every implementation has to do
//
// Each alone, and while the GPUs read rows of their machines; the kinds take turns. Prints medians: seconds from the
// start to the end of both machines, the slower machine's seconds of each part, and GB/s of each machine.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "bench/cache/floor_machine.h"

namespace {

using namespace cohort;
using namespace cohort::host_floor;

// Of the cores of this process, for this thread and those that it starts.
void keep_to_half(int machine) {
  cpu_set_t all, half;
  CPU_ZERO(&half);
  base::require(sched_getaffinity(0, sizeof all, &all) == 0, "the cores of this process");
  const int count = std::max(2, CPU_COUNT(&all));
  for (int core = 0, seen = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all) && seen++ * 2 / count == machine) CPU_SET(core, &half);
  }
  base::require(sched_setaffinity(0, sizeof half, &half) == 0, "two cores or more");
}

// Both machines.
class Host {
 public:
  explicit Host(const Options& options) {
    base::side_by_side(2, [&](std::size_t i) {
      keep_to_half(static_cast<int>(i));
      machines_[i] = std::make_unique<Machine>(options, static_cast<int>(i));
    });
  }
  ~Host() {
    for (const auto& machine : machines_) {
      for (const Client& client : machine->clients()) client.socket.shut_down();
    }
  }

  void connect(int num_connections) {
    for (int i = 0; i < 2; ++i) {
      const Listener listener;
      machines_[1 - i]->connect(listener, num_connections);
      for (int of = 0; of < num_connections; ++of) {
        cache::Socket server(base::FileDescriptor(::accept(listener.file.get(), nullptr, nullptr)), "a client", "");
        servers_.emplace_back([i, table = machines_[i]->table(), socket = std::move(server)] {
          keep_to_half(i);
          serve(socket, table);
        });
      }
    }
  }

  // Until both have done it; the parts are those of the slower one.
  Seconds run(const Kind& kind) {
    std::array<Seconds, 2> each;
    const auto begin = Clock::now();
    base::side_by_side(2, [&](std::size_t i) {
      keep_to_half(static_cast<int>(i));
      each[i] = machines_[i]->run(kind);
    });
    return {seconds_since(begin), std::max(each[0].host, each[1].host), std::max(each[0].received, each[1].received)};
  }

 private:
  std::array<std::unique_ptr<Machine>, 2> machines_;
  std::vector<std::jthread> servers_;  // the last: they use the machines
};

double median(std::vector<Seconds> all, double Seconds::*part) {
  std::ranges::sort(all, {}, part);
  return all[all.size() / 2].*part;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const std::pair<std::string_view, double*> numbers[] = {
        {"--host-bytes", &options.host_bytes},   {"--remote-bytes", &options.remote_bytes},
        {"--table-bytes", &options.table_bytes}, {"--connections", &options.connections},
        {"--repeats", &options.repeats},         {"--message-bytes", &options.message_bytes}};
    const auto* number = std::ranges::find(numbers, name, &std::pair<std::string_view, double*>::first);
    bool is_good = number != std::end(numbers) && (*number->second = std::atof(value.data())) >= 1;
    if (name == "--gpus") {
      options.gpus.resize(value == "none" ? 0 : 2);
      is_good = value == "none" || std::sscanf(value.data(), "%d,%d", &options.gpus[0], &options.gpus[1]) == 2;
    }
    if (!is_good) throw base::Error({argv[i], "an option with a number", std::string(value), "see the source"});
  }
  if (options.message_bytes < kRowBytes || options.message_bytes * options.connections > kStagingBytes) {
    throw base::Error({"--message-bytes", "a row or more, and together 256 MiB of page-locked memory", "another", ""});
  }
  if (options.num_rows() <= kRowsOfReply) throw base::Error({"--table-bytes", "the rows of a reply", "fewer", ""});
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  const bool has_gpus = !options.gpus.empty();
  std::vector<Kind> kinds;
  if (has_gpus) kinds = {{true}, {false, true}, {true, true}};
  for (const Sent sent : {kWarm, kTable, kGathered}) {
    kinds.push_back({false, true, sent});
    if (has_gpus) kinds.push_back({true, true, sent});
  }
  std::vector<std::vector<Seconds>> seconds(kinds.size());
  Host host(options);
  host.connect(static_cast<int>(options.connections));
  for (int repeat = -1; repeat < options.repeats; ++repeat) {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const Seconds once = host.run(kinds[i]);
      if (repeat >= 0) seconds[i].push_back(once);  // the first ones make everything ready
    }
  }
  std::printf(
      "%.0f connections each way, messages of %.0f bytes; each machine receives %.2f GB and its GPU reads %.2f GB\n",
      options.connections, options.message_bytes, 1e-9 * options.remote_bytes,
      has_gpus ? 1e-9 * options.host_bytes : 0);
  std::printf("%-12s %-9s %8s %8s %10s %10s %14s\n", "received", "host rows", "s", "host s", "received s", "host GB/s",
              "received GB/s");
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const Seconds of{median(seconds[i], &Seconds::all), median(seconds[i], &Seconds::host),
                     median(seconds[i], &Seconds::received)};
    const Kind& kind = kinds[i];
    std::printf("%-12s %-9s %8.4f %8.4f %10.4f %10.2f %14.2f\n", kind.receives ? kNames[kind.sent] : "-",
                kind.reads_host ? "read" : "-", of.all, of.host, kind.receives ? of.received : 0,
                kind.reads_host ? 1e-9 * options.host_bytes / of.host : 0,
                kind.receives ? 1e-9 * options.remote_bytes / of.received : 0);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "cache_host_floor_bench: %s\n", error.what());
  return 1;
}
