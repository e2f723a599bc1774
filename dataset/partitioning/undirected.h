// A graph without directions in memory, as partitioners want it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <stop_token>
#include <vector>

#include "dataset/parallel.h"
#include "dataset/partitioning/partition.h"
#include "dataset/sorting/key_sorter.h"

namespace cohort::dataset {

// Neighbours of node v are lists[starts[v] : starts[v + 1]], ascending, each once, without v itself; w is one of v's
// where v is one of w's.
template <typename Id>
struct Undirected {
  std::vector<Id> starts;  // Id [V + 1]
  std::vector<Id> lists;   // Id [entries]
};

// What without_directions takes for each edge and direction, besides its result.
inline constexpr int64_t kBytesOfDirection = 2 * sizeof(uint64_t);

// Of the edges of all relations. Id must hold twice their number, and num_nodes is at most 2^32.
template <typename Id>
Undirected<Id> without_directions(std::span<const NumberedLists> relations, int64_t num_nodes,
                                  const std::stop_token& stop) {
  constexpr int64_t kNodesAtOnce = 1024;                                                    // hubs make pieces unequal
  std::vector<uint64_t> directions(2 * static_cast<std::size_t>(num_edges_of(relations)));  // node << 32 | neighbour
  std::vector<uint64_t> scratch(directions.size());
  uint64_t* next = directions.data();
  for (const NumberedLists& relation : relations) {
    const base::CscRef& lists = relation.lists;
    const auto list = [&](int64_t begin, int64_t end) {
      for (int64_t target = begin; target < end; ++target) {
        const auto node = static_cast<uint64_t>(relation.first_target + target);
        for (int64_t i = lists.indptr[target]; i < lists.indptr[target + 1]; ++i) {
          const auto source = static_cast<uint64_t>(relation.source(i));
          next[2 * i] = source << 32 | node;
          next[2 * i + 1] = node << 32 | source;
        }
      }
    };
    for_chunks(lists.num_nodes, stop, list, kNodesAtOnce);
    next += 2 * lists.num_edges;
  }
  const auto sorted = sort_keys<uint64_t>(directions, scratch, stop);
  const auto distinct =
      sorted.first(static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin()));
  Undirected<Id> graph;
  graph.starts.assign(static_cast<std::size_t>(num_nodes) + 1, 0);
  graph.lists.reserve(distinct.size());
  for (const uint64_t direction : distinct) {
    const uint64_t node = direction >> 32, neighbour = direction & 0xFFFFFFFFu;
    if (node == neighbour) continue;
    ++graph.starts[node + 1];
    graph.lists.push_back(static_cast<Id>(neighbour));
  }
  std::partial_sum(graph.starts.begin(), graph.starts.end(), graph.starts.begin());
  return graph;
}

}  // namespace cohort::dataset
