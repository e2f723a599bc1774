// A graph without directions in memory, as partitioners want it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "dataset/parallel.h"

namespace cohort::dataset {

// Neighbours of node v are lists[starts[v] : starts[v + 1]], ascending, each once, without v itself; w is one of v's
// where v is one of w's.
template <typename Id>
struct Undirected {
  std::vector<Id> starts;  // Id [V + 1]
  std::vector<Id> lists;   // Id [entries]
};

// Id must hold 2 E. indptr int64 [V + 1], indices Index [E]: in-neighbours. Takes 2 E + 2 V numbers on the way.
template <typename Id, typename Index>
Undirected<Id> without_directions(std::span<const int64_t> indptr, std::span<const Index> indices,
                                  const std::stop_token& stop) {
  const auto num_nodes = static_cast<int64_t>(indptr.size()) - 1;
  constexpr int64_t kNodesAtOnce = 1024;  // hubs make pieces unequal
  const auto for_edges_of = [&](auto use) {
    const auto of_nodes = [&](int64_t begin, int64_t end) {
      for (auto v = static_cast<std::size_t>(begin); v < static_cast<std::size_t>(end); ++v) {
        for (int64_t i = indptr[v]; i < indptr[v + 1]; ++i) {
          const auto source = static_cast<std::size_t>(indices[static_cast<std::size_t>(i)]);
          if (source != v) use(source, v);
        }
      }
    };
    for_chunks(num_nodes, stop, of_nodes, kNodesAtOnce);
  };
  Undirected<Id> graph;
  std::vector<Id>& starts = graph.starts;
  starts.assign(indptr.size(), 0);
  std::vector<Id> ends(indptr.size() - 1, 0);  // of node v: its entries, then where the next goes, then its end
  const auto add_one = [&](std::size_t node) { return std::atomic_ref<Id>(ends[node]).fetch_add(1); };
  for_edges_of([&](std::size_t a, std::size_t b) { add_one(a), add_one(b); });
  for (std::size_t v = 0; v < ends.size(); ++v) {
    starts[v + 1] = starts[v] + ends[v];
    ends[v] = starts[v];
  }
  graph.lists.resize(static_cast<std::size_t>(starts.back()));
  for_edges_of([&](std::size_t a, std::size_t b) {
    graph.lists[static_cast<std::size_t>(add_one(a))] = static_cast<Id>(b);
    graph.lists[static_cast<std::size_t>(add_one(b))] = static_cast<Id>(a);
  });
  const auto sort_each = [&](int64_t begin, int64_t end) {
    for (auto v = static_cast<std::size_t>(begin); v < static_cast<std::size_t>(end); ++v) {
      Id* const first = graph.lists.data() + starts[v];
      std::sort(first, graph.lists.data() + ends[v]);
      ends[v] = static_cast<Id>(std::unique(first, graph.lists.data() + ends[v]) - graph.lists.data());
    }
  };
  for_chunks(num_nodes, stop, sort_each, kNodesAtOnce);
  Id next = 0;
  for (std::size_t v = 0; v < ends.size(); ++v) {
    const Id first = starts[v], count = ends[v] - first;
    std::copy_n(graph.lists.begin() + first, count, graph.lists.begin() + next);
    starts[v] = next;
    next += count;
  }
  starts.back() = next;
  graph.lists.resize(static_cast<std::size_t>(next));
  graph.lists.shrink_to_fit();
  return graph;
}

}  // namespace cohort::dataset
