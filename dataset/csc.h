// From a list of edges to in-neighbours per node (CSC): a parallel counting sort.
#pragma once

#include <algorithm>
#include <array>
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

// How many edges are on their way at once: each reads memory far from the last, so what they need is asked for early.
inline constexpr int64_t kEdgesAtOnce = 64;

// Calls use(edges, n) for pieces of edges [0, count): Edge [n], n <= kEdgesAtOnce. where(node) will be written to.
template <typename Edges, typename Where, typename Use>
void for_edges(int64_t count, const std::stop_token& stop, const Edges& edges, Where where, Use use) {
  for_chunks(count, stop, [&](int64_t begin, int64_t end) {
    std::array<Edge, kEdgesAtOnce> piece;
    for (int64_t first = begin; first < end; first += kEdgesAtOnce) {
      const int64_t n = std::min(kEdgesAtOnce, end - first);
      for (int64_t i = 0; i < n; ++i) {
        Edge& edge = piece[static_cast<std::size_t>(i)] = edges.at(first + i);
        edges.prefetch(edge.destination);
      }
      for (int64_t i = 0; i < n; ++i) {
        Edge& edge = piece[static_cast<std::size_t>(i)];
        edge.destination = edges.node(edge.destination);
        __builtin_prefetch(where(edge.destination), 1);
      }
      use(piece.data(), n);
    }
  });
}

// Fills indptr int64 [V + 1] and indices Index [E] with the sources of the edges into each node, ascending, duplicates
// kept: the same result for any number of threads. edges.at(i) gives edge i of E and is called twice for each edge, so
// that the edges need not be stored; it must give the same answer both times. Its ends are numbers that
// edges.prefetch(end) asks for and edges.node(end) turns into nodes in [0, V).
template <typename Index, typename Edges>
void build_csc(const Edges& edges, std::span<int64_t> indptr, std::span<Index> indices, const std::stop_token& stop) {
  const auto num_nodes = static_cast<int64_t>(indptr.size()) - 1, num_edges = static_cast<int64_t>(indices.size());
  for_chunks(num_nodes + 1, stop,
             [&](int64_t begin, int64_t end) { std::fill(indptr.begin() + begin, indptr.begin() + end, 0); });
  int64_t* const ends = indptr.data() + 1;  // of node v: its degree, then its start, then its end
  const auto add_one = [&](int64_t node) {
    return std::atomic_ref<int64_t>(ends[node]).fetch_add(1, std::memory_order_relaxed);
  };
  const auto where = [&](int64_t node) { return ends + node; };
  for_edges(num_edges, stop, edges, where, [&](const Edge* piece, int64_t n) {
    for (int64_t i = 0; i < n; ++i) add_one(piece[i].destination);
  });
  for (int64_t node = 0, start = 0; node < num_nodes; ++node) {
    const int64_t degree = ends[node];
    ends[node] = start;
    start += degree;
  }
  for_edges(num_edges, stop, edges, where, [&](const Edge* piece, int64_t n) {
    std::array<Index*, kEdgesAtOnce> slots;
    for (int64_t i = 0; i < n; ++i) {
      Index* const slot = indices.data() + add_one(piece[i].destination);
      __builtin_prefetch(slot, 1);
      edges.prefetch(piece[i].source);
      slots[static_cast<std::size_t>(i)] = slot;
    }
    for (int64_t i = 0; i < n; ++i) {
      *slots[static_cast<std::size_t>(i)] = static_cast<Index>(edges.node(piece[i].source));
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
