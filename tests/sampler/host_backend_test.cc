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

TEST(PassOver, CountsWhatIsNotExcluded) {
  for (uint32_t excluded = 0; excluded < 1U << 9; ++excluded) {
    std::vector<int64_t> positions, others;
    for (int64_t position = 0; position < 12; ++position) {
      (excluded >> position & 1U ? positions : others).push_back(position);
    }
    const ExcludedRef list{positions.data(), std::ssize(positions)};
    for (std::size_t i = 0; i < others.size(); ++i) {
      ASSERT_EQ(pass_over(list, static_cast<int64_t>(i)), others[i]) << "of set " << excluded;
    }
  }
}

// What any batch must satisfy, checked edge by edge against the graph.
template <typename Index>
void expect_sound(const TestGraph<Index>& graph, const HostBatch& batch, const Query& query) {
  const auto& n_id = batch.n_id;
  ASSERT_TRUE(std::equal(query.seeds.begin(), query.seeds.end(), n_id.begin())) << "seeds come first";
  ASSERT_EQ(std::set<int64_t>(n_id.begin(), n_id.end()).size(), n_id.size()) << "every node once";
  const auto edges = static_cast<std::size_t>(batch.counts.num_edges);
  std::size_t edge = 0;
  int64_t first_of_frontier = 0, next_new = batch.counts.nodes_per_hop[0];
  for (std::size_t hop = 0; hop < query.fanout.size(); ++hop) {
    const int64_t frontier = batch.counts.nodes_per_hop[hop];
    const std::size_t edges_before = edge;
    for (int64_t target = first_of_frontier; target < first_of_frontier + frontier; ++target) {
      const int64_t node = n_id[static_cast<std::size_t>(target)];
      const auto row = graph.indices.begin() + graph.indptr[static_cast<std::size_t>(node)];
      const int64_t degree =
          graph.indptr[static_cast<std::size_t>(node) + 1] - graph.indptr[static_cast<std::size_t>(node)];
      const int64_t picks = picks_of(query.fanout[hop]).of(degree);
      auto position = row;
      ASSERT_EQ(batch.indptr[static_cast<std::size_t>(target)], static_cast<int64_t>(edge));
      for (int64_t j = 0; j < picks; ++j, ++edge) {
        ASSERT_EQ(batch.edge_index[edges + edge], target);
        const int64_t source = batch.edge_index[edge];
        if (source >= next_new) {
          ASSERT_EQ(source, next_new) << "new nodes are numbered by first occurrence";
          ++next_new;
        }
        // Picks are a subsequence of the row: nothing is drawn twice, order is by position.
        const auto drawn = graph.indices.begin() + batch.e_id[edge];
        ASSERT_TRUE(drawn >= position && drawn < row + degree) << "edge " << edge << " stands out of order";
        ASSERT_EQ(*drawn, static_cast<Index>(n_id[static_cast<std::size_t>(source)])) << "edge " << edge;
        position = drawn + 1;
      }
    }
    ASSERT_EQ(batch.counts.edges_per_hop[hop], static_cast<int64_t>(edge - edges_before));
    first_of_frontier += frontier;
    ASSERT_EQ(batch.counts.nodes_per_hop[hop + 1], next_new - first_of_frontier);
  }
  ASSERT_EQ(edge, edges);
  ASSERT_EQ(batch.indptr.size(), static_cast<std::size_t>(first_of_frontier) + 1);
  ASSERT_EQ(batch.indptr.back(), batch.counts.num_edges);
  ASSERT_EQ(static_cast<std::size_t>(next_new), n_id.size());
  for (std::size_t i = 0; i < n_id.size(); ++i) {
    ASSERT_EQ(reinterpret_cast<const int64_t*>(batch.y.data())[i], graph.labels[static_cast<std::size_t>(n_id[i])]);
    ASSERT_EQ(reinterpret_cast<const float*>(batch.x[0].data())[i * static_cast<std::size_t>(graph.dim)],
              static_cast<float>(n_id[i]));
  }
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

class Fanouts : public ::testing::TestWithParam<std::vector<int32_t>> {};

TEST_P(Fanouts, BatchesAreSound) {
  const auto graph = mixed_graph<int32_t>(500, 3);
  const auto backend = make_host_backend(graph.view(), {});
  std::vector<int64_t> seeds(40);
  for (uint64_t step = 0; step < 5; ++step) {
    std::iota(seeds.begin(), seeds.end(), static_cast<int64_t>(step) * 60);
    const Query query = query_of(seeds, GetParam(), step);
    expect_sound(graph, run_host(*backend, graph.view(), query), query);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fanouts,
                         ::testing::Values(std::vector<int32_t>{25, 10}, std::vector<int32_t>{15, 10, 5},
                                           std::vector<int32_t>{-1}, std::vector<int32_t>{-1, -1},
                                           std::vector<int32_t>{1}, std::vector<int32_t>{0, 3},
                                           std::vector<int32_t>{100, 40}, std::vector<int32_t>{2, 2, 2, 2, 2, 2}));

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

TEST(HostBackend, LabelsOfAnyWidth) {
  for (const int64_t label_bytes : {1, 7, 121}) {
    auto graph = mixed_graph<int32_t>(200, 8);
    graph.wide_labels = labels_of_bytes(graph.num_nodes(), label_bytes);
    const std::vector<int64_t> seeds = {4, 150, 17, 0};
    const std::vector<int32_t> fanout = {5, 5};
    const auto batch = run_host(*make_host_backend(graph.view(), {}), graph.view(), query_of(seeds, fanout));
    for (std::size_t i = 0; i < batch.n_id.size(); ++i) {
      const auto row = graph.wide_labels.begin() + batch.n_id[i] * label_bytes;
      ASSERT_TRUE(std::equal(row, row + label_bytes, batch.y.begin() + static_cast<int64_t>(i) * label_bytes));
    }
  }
}

TEST(HostBackend, WeightsAreThoseOfTheEdges) {
  auto graph = mixed_graph<int32_t>(300, 5);
  graph.weigh_edges();
  std::vector<int64_t> seeds(100);
  std::iota(seeds.begin(), seeds.end(), 50);
  const std::vector<int32_t> fanout = {100, 10};
  const auto batch = run_host(*make_host_backend(graph.view(), {}), graph.view(), query_of(seeds, fanout));
  ASSERT_GT(batch.counts.num_edges, 300);
  for (std::size_t edge = 0; edge < batch.e_id.size(); ++edge) {
    ASSERT_EQ(batch.edge_weight[edge], 0.5F + static_cast<float>(batch.e_id[edge]));
  }
}

TEST(HostBackend, EdgeIdsAreLeftOutAndChangeNothingElse) {
  const auto graph = mixed_graph<int32_t>(300, 5);
  const auto backend = make_host_backend(graph.view(), {});
  const std::vector<int64_t> seeds = {4, 250, 17, 0};
  const std::vector<int32_t> fanout = {10, 10};
  Query query = query_of(seeds, fanout);
  const auto with = run_host(*backend, graph.view(), query);
  query.edge_ids = false;
  const auto without = run_host(*backend, graph.view(), query);
  EXPECT_EQ(with.n_id, without.n_id);
  EXPECT_EQ(with.edge_index, without.edge_index);
  EXPECT_EQ(with.indptr, without.indptr);
}

TEST(HostBackend, AZeroDegreeSeedHasNoEdges) {
  TestGraph<int32_t> graph;
  graph.add_node({});
  const std::vector<int64_t> seeds = {0};
  const std::vector<int32_t> fanout = {5, 5};
  const auto batch = run_host(*make_host_backend(graph.view(), {}), graph.view(), query_of(seeds, fanout));
  EXPECT_EQ(batch.counts.num_nodes, 1);
  EXPECT_EQ(batch.counts.num_edges, 0);
  EXPECT_EQ(batch.indptr, (std::vector<int64_t>{0, 0}));
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

TEST(HostBackend, SelfLoopsAndDuplicateEdgesStay) {
  TestGraph<int32_t> graph;
  graph.add_node({0, 1, 1});
  graph.add_node({});
  const std::vector<int64_t> seeds = {0};
  const std::vector<int32_t> fanout = {-1};
  const auto batch = run_host(*make_host_backend(graph.view(), {}), graph.view(), query_of(seeds, fanout));
  EXPECT_EQ(batch.edge_index, (std::vector<int64_t>{0, 1, 1, 0, 0, 0}));
}

// The batch that this seed gave when it was first written down: no later change may alter what a seed means.
TEST(HostBackend, ASeedKeepsItsMeaning) {
  const auto graph = mixed_graph<int32_t>(100, 9);
  const std::vector<int64_t> seeds = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> fanout = {3, 2};
  const auto batch = run_host(*make_host_backend(graph.view(), {}), graph.view(), query_of(seeds, fanout));
  uint64_t hash = 1469598103934665603ull;  // FNV-1a over the ids
  for (int64_t id : batch.n_id) hash = (hash ^ static_cast<uint64_t>(id)) * 1099511628211ull;
  EXPECT_EQ(hash, 15905669176697399794ull);
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
