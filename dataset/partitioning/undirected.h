// A graph without directions in memory, as partitioners want it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <stop_token>
#include <vector>

#include "dataset/parallel.h"
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

// Id must hold 2 E, and V is at most 2^32. indptr int64 [V + 1], indices Index [E]: in-neighbours.
template <typename Id, typename Index>
Undirected<Id> without_directions(std::span<const int64_t> indptr, std::span<const Index> indices,
                                  const std::stop_token& stop) {
  constexpr int64_t kNodesAtOnce = 1024;                                             // hubs make pieces unequal
  std::vector<uint64_t> directions(2 * indices.size()), scratch(directions.size());  // node << 32 | neighbour
  const auto list = [&](int64_t begin, int64_t end) {
    for (auto v = static_cast<std::size_t>(begin); v < static_cast<std::size_t>(end); ++v) {
      for (auto i = static_cast<std::size_t>(indptr[v]); i < static_cast<std::size_t>(indptr[v + 1]); ++i) {
        const auto source = static_cast<uint64_t>(indices[i]);
        directions[2 * i] = source << 32 | v;
        directions[2 * i + 1] = uint64_t{v} << 32 | source;
      }
    }
  };
  for_chunks(static_cast<int64_t>(indptr.size()) - 1, stop, list, kNodesAtOnce);
  const auto sorted = sort_keys<uint64_t>(directions, scratch, stop);
  const auto distinct =
      sorted.first(static_cast<std::size_t>(std::unique(sorted.begin(), sorted.end()) - sorted.begin()));
  Undirected<Id> graph;
  graph.starts.assign(indptr.size(), 0);
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
