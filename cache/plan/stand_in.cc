#include "cache/plan/stand_in.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace cohort::cache {
namespace {

constexpr uint64_t kRandomBound = uint64_t{1} << 20;

template <typename Index>
std::vector<uint32_t> out_degrees(const base::CscRef& graph) {
  const auto* indices = static_cast<const Index*>(graph.indices);
  std::vector<uint32_t> degrees(static_cast<std::size_t>(graph.num_nodes));
  int64_t num_bad = 0;
#pragma omp parallel for schedule(static) reduction(+ : num_bad)
  for (int64_t edge = 0; edge < graph.num_edges; ++edge) {
    const auto node = static_cast<int64_t>(indices[edge]);
    if (node < 0 || node >= graph.num_nodes) {
      ++num_bad;
      continue;
    }
#pragma omp atomic
    ++degrees[static_cast<std::size_t>(node)];
  }
  if (num_bad == 0) return degrees;
  throw base::Error({"indices", "nodes of 0 to " + std::to_string(graph.num_nodes - 1),
                     std::to_string(num_bad) + " others", "run cohort dataset check"});
}

StandIn with_edges(std::vector<uint32_t> reads, const base::CscRef& graph, int64_t picks) {
  StandIn counts{std::move(reads), std::vector<uint64_t>(static_cast<std::size_t>(graph.num_nodes))};
#pragma omp parallel for schedule(static)
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    const int64_t degree = graph.indptr[node + 1] - graph.indptr[node];
    const auto drawn = static_cast<uint64_t>(picks < 0 ? degree : std::min(degree, picks));
    const auto at = static_cast<std::size_t>(node);
    counts.edges_read[at] = counts.reads[at] * drawn;
  }
  return counts;
}

}  // namespace

StandIn counts_by_degree(const base::CscRef& graph, int64_t picks) {
  return with_edges(graph.index_bytes == 4 ? out_degrees<int32_t>(graph) : out_degrees<int64_t>(graph), graph, picks);
}

StandIn counts_at_random(const base::CscRef& graph, int64_t picks, uint64_t seed) {
  std::vector<uint32_t> reads(static_cast<std::size_t>(graph.num_nodes));
  const base::PhiloxKey key = base::key_of(seed);
#pragma omp parallel for schedule(static)
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    const uint64_t draw = base::random_below(kRandomBound, key, static_cast<uint64_t>(node), 0);
    reads[static_cast<std::size_t>(node)] = static_cast<uint32_t>(draw);
  }
  return with_edges(std::move(reads), graph, picks);
}

StandIn counts_of_policy(const std::string& policy, const base::CscRef& graph, int64_t picks) {
  if (policy == "degree") return counts_by_degree(graph, picks);
  if (policy == "random") return counts_at_random(graph, picks);
  throw base::Error({"cache policy", "degree or random", policy, "what was counted needs no stand-in"});
}

}  // namespace cohort::cache
