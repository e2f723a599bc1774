// From a list of edges to in-neighbours per node (CSC): a parallel counting sort.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <stop_token>

#include "dataset/parallel.h"

namespace cohort::dataset {

struct Edge {
  int64_t source;
  int64_t destination;
};

// The largest number of nodes whose indices are written as int32.
inline constexpr int64_t kMaxInt32Nodes = int64_t{1} << 31;

// Fills indptr int64 [V + 1] and indices Index [E] with the sources of the edges into each node, ascending, duplicates
// kept: the same result for any number of threads. edge_at(i) gives edge i of E and is called twice for each edge, so
// that the edges need not be stored; it must give the same answer both times, with both ends in [0, V).
template <typename Index, typename EdgeAt>
void build_csc(EdgeAt edge_at, std::span<int64_t> indptr, std::span<Index> indices, const std::stop_token& stop) {
  const auto num_nodes = static_cast<int64_t>(indptr.size()) - 1, num_edges = static_cast<int64_t>(indices.size());
  std::fill(indptr.begin(), indptr.end(), 0);
  int64_t* const ends = indptr.data() + 1;  // of node v: its degree, then its start, then its end
  const auto add_one = [&](int64_t node) {
    return std::atomic_ref<int64_t>(ends[node]).fetch_add(1, std::memory_order_relaxed);
  };
  for_chunks(num_edges, stop, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) add_one(edge_at(i).destination);
  });
  for (int64_t node = 0, start = 0; node < num_nodes; ++node) {
    const int64_t degree = ends[node];
    ends[node] = start;
    start += degree;
  }
  for_chunks(num_edges, stop, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Edge edge = edge_at(i);
      indices[static_cast<std::size_t>(add_one(edge.destination))] = static_cast<Index>(edge.source);
    }
  });
  constexpr int64_t kNodesAtOnce = 256;  // hubs make pieces unequal: keep them small
  for_chunks(
      num_nodes, stop,
      [&](int64_t begin, int64_t end) {
        for (int64_t node = begin; node < end; ++node) {
          std::sort(indices.data() + indptr[static_cast<std::size_t>(node)], indices.data() + ends[node]);
        }
      },
      kNodesAtOnce);
}

}  // namespace cohort::dataset
