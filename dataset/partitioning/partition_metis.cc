#include "base/format.h"
#include "base/host_memory.h"
#include "dataset/partitioning/partition.h"

#ifdef COHORT_WITH_METIS
#include <metis.h>

#include <algorithm>
#include <limits>
#include <numeric>

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

const char* meaning_of(int status) {
  return status == METIS_ERROR_MEMORY ? "memory ran out" : status == METIS_ERROR_INPUT ? "bad input" : "an error";
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
  const int status =
      METIS_PartGraphKway(&nodes, &constraints, graph.starts.data(), graph.lists.data(), weights.data(), nullptr,
                          nullptr, &parts, nullptr, most.data(), settings, &cut, part_of.data());
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
