#include "cache/plan/stand_in.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace cohort::cache {
namespace {

constexpr uint64_t kRandomBound = uint64_t{1} << 20;

// Adds those of the relation's source nodes.
template <typename Index>
void add_out_degrees(const RelationLists& relation, std::vector<uint32_t>& degrees) {
  const auto* indices = static_cast<const Index*>(relation.lists.indices);
  const int64_t num_nodes = std::ssize(degrees) - relation.first_source;
  int64_t num_bad = 0;
#pragma omp parallel for schedule(static) reduction(+ : num_bad)
  for (int64_t edge = 0; edge < relation.lists.num_edges; ++edge) {
    const auto node = static_cast<int64_t>(indices[edge]);
    if (node < 0 || node >= num_nodes) {
      ++num_bad;
      continue;
    }
#pragma omp atomic
    ++degrees[static_cast<std::size_t>(relation.first_source + node)];
  }
  if (num_bad == 0) return;
  throw base::Error({"indices", "nodes of 0 to " + std::to_string(num_nodes - 1),
                     std::to_string(num_bad) + " numbers outside of these", "run cohort dataset check"});
}

StandIn with_lists(std::vector<uint32_t> reads, const std::vector<RelationLists>& relations, int64_t picks) {
  const auto num_lists = static_cast<std::size_t>(end_of(relations));
  StandIn counts{std::move(reads), std::vector<uint32_t>(num_lists), std::vector<uint64_t>(num_lists)};
  for (const RelationLists& relation : relations) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < relation.lists.num_nodes; ++i) {
      const int64_t degree = relation.lists.indptr[i + 1] - relation.lists.indptr[i];
      const auto drawn = static_cast<uint64_t>(picks < 0 ? degree : std::min(degree, picks));
      const auto list = static_cast<std::size_t>(relation.first + i);
      counts.expansions[list] = counts.reads[static_cast<std::size_t>(relation.first_target + i)];
      counts.edges_read[list] = counts.expansions[list] * drawn;
    }
  }
  return counts;
}

}  // namespace

StandIn counts_by_degree(const std::vector<RelationLists>& relations, int64_t num_nodes, int64_t picks) {
  std::vector<uint32_t> degrees(static_cast<std::size_t>(num_nodes));
  for (const RelationLists& relation : relations) {
    relation.lists.index_bytes == 4 ? add_out_degrees<int32_t>(relation, degrees)
                                    : add_out_degrees<int64_t>(relation, degrees);
  }
  return with_lists(std::move(degrees), relations, picks);
}

StandIn counts_at_random(const std::vector<RelationLists>& relations, int64_t num_nodes, int64_t picks, uint64_t seed) {
  std::vector<uint32_t> reads(static_cast<std::size_t>(num_nodes));
  const base::PhiloxKey key = base::key_of(seed);
#pragma omp parallel for schedule(static)
  for (int64_t node = 0; node < num_nodes; ++node) {
    const uint64_t draw = base::random_below(kRandomBound, key, static_cast<uint64_t>(node), 0);
    reads[static_cast<std::size_t>(node)] = static_cast<uint32_t>(draw);
  }
  return with_lists(std::move(reads), relations, picks);
}

StandIn counts_of_policy(const std::string& policy, const std::vector<RelationLists>& relations, int64_t num_nodes,
                         int64_t picks) {
  if (policy == "degree") return counts_by_degree(relations, num_nodes, picks);
  if (policy == "random") return counts_at_random(relations, num_nodes, picks);
  throw base::Error({"cache policy", "degree or random", policy, "what was counted needs no stand-in"});
}

}  // namespace cohort::cache
