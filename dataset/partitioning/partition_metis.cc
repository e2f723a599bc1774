#include "base/format.h"
#include "base/host_memory.h"
#include "dataset/partitioning/partition.h"

#ifdef COHORT_WITH_METIS
#include <fcntl.h>
#include <metis.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <functional>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/process.h"
#include "dataset/parallel.h"
#include "dataset/partitioning/undirected.h"
#endif

namespace cohort::dataset {

#ifdef COHORT_WITH_METIS
namespace {

constexpr const char* kCure = "use --method streaming, which keeps 4 bytes a node, or a machine with more memory";

// What METIS takes at its peak, as measured (docs/performance/importing.md): of an entry of the lists, and of a node.
constexpr int64_t kBytesOfEntry = 72, kBytesOfNode = 64;

void demand_memory(const char* what, int64_t needed_bytes, const PartitionOptions& options) {
  const int64_t present = options.memory_bytes > 0 ? options.memory_bytes : base::available_host_bytes();
  if (needed_bytes <= present) return;
  throw base::Error({"--method metis", base::format("{} of memory for {}", base::format_bytes(needed_bytes), what),
                     base::format_bytes(present), kCure});
}

Undirected<idx_t> graph_of(std::span<const NumberedLists> lists, int64_t num_nodes, const PartitionOptions& options,
                           const std::stop_token& stop) {
  const int64_t entries = 2 * num_edges_of(lists), most = std::numeric_limits<idx_t>::max();
  if (entries > most || num_nodes > most) {
    throw base::Error({"--method metis",
                       base::format("at most {} edges: libmetis counts in {} bits", most / 2, 8 * sizeof(idx_t)),
                       std::to_string(entries / 2), "use --method streaming"});
  }
  demand_memory("the graph without directions",
                kBytesOfDirection * entries + static_cast<int64_t>(sizeof(idx_t)) * (entries + num_nodes), options);
  return without_directions<idx_t>(lists, num_nodes, stop);
}

constexpr int kEnded = 0;  // no status of METIS

const char* meaning_of(int status) {
  return status == METIS_ERROR_MEMORY  ? "memory ran out"
         : status == METIS_ERROR_INPUT ? "bad input"
         : status == kEnded            ? "the end of its process, perhaps as memory ran out"
                                       : "an error";
}

// What METIS says; it writes the part of each node.
using Divide = std::function<int(std::span<idx_t> part_of)>;

[[noreturn]] void divide_and_exit(const Divide& divide, std::span<idx_t> part_of, const base::FileDescriptor& out,
                                  pid_t parent) noexcept {
  base::end_with_parent(parent, SIGKILL);
  const int status = divide(part_of);
  base::write_all(out, std::as_bytes(std::span(&status, 1)), "a pipe");
  base::write_all(out, std::as_bytes(part_of), "a pipe");
  _exit(0);
}

bool read_all(const base::FileDescriptor& file, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = read(file.get(), bytes.data(), bytes.size());
    if (count == 0 || (count < 0 && errno != EINTR)) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  return true;
}

// Runs METIS in a process of its own, which `stop` ends. METIS cannot be asked to stop, and it catches SIGTERM with a
// longjmp, which crashes a process where another thread than its own gets the signal.
int divide_apart(const Divide& divide, std::span<idx_t> part_of, const std::stop_token& stop) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) base::fail_errno("a pipe from METIS", "success", errno);
  const base::FileDescriptor in(ends[0]);
  base::FileDescriptor out(ends[1]);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) base::fail_errno("a process for METIS", "success", errno);
  if (child == 0) divide_and_exit(divide, part_of, out, parent);
  out.close("a pipe from METIS");
  int status = kEnded;
  {
    const std::stop_callback end(stop, [child] { kill(child, SIGKILL); });
    const bool has_ended =
        !read_all(in, std::as_writable_bytes(std::span(&status, 1))) || !read_all(in, std::as_writable_bytes(part_of));
    if (has_ended) status = kEnded;
  }
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (stop.stop_requested()) throw Interrupted();
  return status;
}

}  // namespace

bool has_metis() { return true; }

std::vector<int32_t> partition_metis(std::span<const NumberedLists> lists, std::span<const uint8_t> train,
                                     const PartitionOptions& options, const std::stop_token& stop) {
  const int64_t num_nodes = std::ssize(train);
  Undirected<idx_t> graph = graph_of(lists, num_nodes, options, stop);
  const int64_t entries = static_cast<int64_t>(graph.lists.size());
  demand_memory("METIS", kBytesOfEntry * entries + kBytesOfNode * num_nodes, options);
  const bool any_train = std::ranges::find(train, 1) != train.end();
  auto nodes = static_cast<idx_t>(num_nodes), parts = static_cast<idx_t>(options.num_parts);
  idx_t constraints = any_train ? 2 : 1, cut = 0;  // equal shares of nodes, and of training nodes
  std::vector<idx_t> weights;                      // idx_t [V, constraints]
  for (const uint8_t is_train : train) {
    weights.push_back(1);
    if (any_train) weights.push_back(is_train);
  }
  std::vector<real_t> most(static_cast<std::size_t>(constraints), static_cast<real_t>(kMostOfMean));
  idx_t settings[METIS_NOPTIONS];
  METIS_SetDefaultOptions(settings);
  settings[METIS_OPTION_SEED] = static_cast<idx_t>(options.seed & 0x7FFFFFFFu);
  std::vector<idx_t> part_of(static_cast<std::size_t>(num_nodes));
  const Divide divide = [&](std::span<idx_t> result) {
    return METIS_PartGraphKway(&nodes, &constraints, graph.starts.data(), graph.lists.data(), weights.data(), nullptr,
                               nullptr, &parts, nullptr, most.data(), settings, &cut, result.data());
  };
  const int status = divide_apart(divide, part_of, stop);
  if (status != METIS_OK) throw base::Error({"--method metis", "a partition", meaning_of(status), kCure});
  return {part_of.begin(), part_of.end()};
}

#else

bool has_metis() { return false; }

std::vector<int32_t> partition_metis(std::span<const NumberedLists>, std::span<const uint8_t>, const PartitionOptions&,
                                     const std::stop_token&) {
  throw base::Error({"--method metis", "a build with METIS", "one without",
                     "apt-get install libmetis-dev and build again, or use --method streaming"});
}

#endif

}  // namespace cohort::dataset
