#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "sampler/draw.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

using Neighbours = std::vector<int64_t>;

Query query_of(const std::vector<int64_t>& seeds, const std::vector<int32_t>& fanout, uint64_t step = 0) {
  return {seeds, fanout, batch_key(1, 0, step), true};
}

// Its twin with local ids throughout says which nodes the sources are.
TEST(HostBackend, SourcesOfTheLastHopMayStayNodesOfTheGraph) {
  const auto graph = mixed_graph<int32_t>(500, 3);
  const auto backend = make_host_backend(graph.view(), {});
  std::vector<int64_t> seeds(40);
  std::iota(seeds.begin(), seeds.end(), int64_t{60});
  for (const auto& fanout : {std::vector<int32_t>{4, 3}, {5, 4, 3}, {7}, {-1, -1}, {5, 0}}) {
    Query query{seeds, fanout, batch_key(5, 1, 0)};
    const HostBatch plain = run_host(*backend, graph.view(), query);
    query.last_hop_global = true;
    const HostBatch batch = run_host(*backend, graph.view(), query);
    const int64_t last_edges = batch.counts.edges_per_hop.back(), local = batch.counts.num_local_edges;
    ASSERT_EQ(batch.counts.edges_per_hop, plain.counts.edges_per_hop);
    ASSERT_EQ(batch.counts.num_edges, local + last_edges);
    ASSERT_EQ(batch.counts.nodes_per_hop.back(), 0);
    ASSERT_EQ(batch.indptr, plain.indptr);
    ASSERT_TRUE(std::equal(batch.n_id.begin(), batch.n_id.end(), plain.n_id.begin()));
    ASSERT_EQ(batch.n_id.size() + static_cast<std::size_t>(plain.counts.nodes_per_hop.back()), plain.n_id.size());
    for (int64_t e = 0; e < plain.counts.num_edges; ++e) {
      const auto at = static_cast<std::size_t>(e);
      const int64_t source = plain.edge_index[at];
      if (e < local) {
        ASSERT_EQ(batch.edge_index[at], source);
        ASSERT_EQ(batch.edge_index[at + static_cast<std::size_t>(local)],
                  plain.edge_index[at + static_cast<std::size_t>(plain.counts.num_edges)]);
      }
      if (last_edges > 0) {
        ASSERT_EQ(batch.source_node[at], plain.n_id[static_cast<std::size_t>(source)]);
      }
    }
  }
}

TEST(HostBackend, WideIndicesGiveTheSameBatch) {
  const auto narrow = mixed_graph<int32_t>(300, 5);
  const auto wide = mixed_graph<int64_t>(300, 5);
  const std::vector<int64_t> seeds = {4, 250, 17, 0};
  const std::vector<int32_t> fanout = {10, 10};
  const auto a = run_host(*make_host_backend(narrow.view(), {}), narrow.view(), query_of(seeds, fanout));
  const auto b = run_host(*make_host_backend(wide.view(), {}), wide.view(), query_of(seeds, fanout));
  EXPECT_EQ(a.n_id, b.n_id);
  EXPECT_EQ(a.edge_index, b.edge_index);
}

// Lists are those that something was drawn from: not the last hop's nodes, nor those without neighbours.
TEST(HostBackend, CountsTheListsItReads) {
  const auto graph = mixed_graph<int32_t>(400, 8);
  const auto backend = make_host_backend(graph.view(), {});
  std::vector<int64_t> seeds(50);
  std::iota(seeds.begin(), seeds.end(), 0);
  const std::vector<int32_t> fanout = {4, 3};
  for (uint64_t step = 0; step < 2; ++step) {  // the second time nothing is left of the first
    const auto batch = run_host(*backend, graph.view(), query_of(seeds, fanout, step));
    const auto targets = batch.edge_index.begin() + batch.counts.num_edges;
    const std::set<int64_t> lists(targets, batch.edge_index.end());
    ASSERT_LT(lists.size(), static_cast<std::size_t>(batch.counts.num_nodes - batch.counts.nodes_per_hop.back()));
    const cache::ListUse read = batch.counts.lists[cache::kHostTier];
    EXPECT_EQ(read.lists, static_cast<int64_t>(lists.size()));
    EXPECT_EQ(read.bytes, batch.counts.num_edges * 4 + read.lists * 16);
  }
}

// Each neighbour of a hub is drawn equally often, and so is each pair: chi-square against uniform, p = 0.001.
TEST(HostBackend, NeighboursAreUniform) {
  constexpr int kDegree = 12, kFanout = 4, kDraws = 6000;
  TestGraph<int32_t> graph;
  Neighbours all(kDegree);
  std::iota(all.begin(), all.end(), 1);
  graph.add_node(all);
  for (int i = 0; i < kDegree; ++i) graph.add_node({});
  const auto backend = make_host_backend(graph.view(), {});
  std::map<int64_t, int> count;
  std::map<std::pair<int64_t, int64_t>, int> pairs;
  const std::vector<int64_t> seeds = {0};
  const std::vector<int32_t> fanout = {kFanout};
  for (uint64_t step = 0; step < kDraws; ++step) {
    const auto batch = run_host(*backend, graph.view(), query_of(seeds, fanout, step));
    for (std::size_t i = 1; i < batch.n_id.size(); ++i) {
      ++count[batch.n_id[i]];
      for (std::size_t j = i + 1; j < batch.n_id.size(); ++j) ++pairs[{batch.n_id[i], batch.n_id[j]}];
    }
  }
  const auto chi_square = [](const auto& counts, double expected) {
    double sum = 0;
    for (const auto& [key, times] : counts) sum += (times - expected) * (times - expected) / expected;
    return sum;
  };
  ASSERT_EQ(count.size(), static_cast<std::size_t>(kDegree));
  EXPECT_LT(chi_square(count, kDraws * double{kFanout} / kDegree), 31.3);  // 11 degrees of freedom
  ASSERT_EQ(pairs.size(), 66u);
  EXPECT_LT(chi_square(pairs, kDraws * (kFanout * (kFanout - 1) / 2.0) / 66.0), 105.0);  // 65 degrees of freedom
}

}  // namespace
}  // namespace cohort::sampler
