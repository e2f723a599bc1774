// Graphs of several types on the host: what a batch must satisfy. The exact draws are compared with a slow sampler in
// tests/trainer/loader/oracle/hetero_loader_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "sampler/draw.h"
#include "tests/sampler/test_graph.h"
#include "tests/sampler/typed_graph.h"

namespace cohort::sampler {
namespace {

TEST(TypedGraph, ADrawDependsOnTheRelation) {
  const TypedGraph types = three_types({{0, 2}, {0, 2}});
  const GraphView graph = types.view();
  const auto backend = make_host_backend(graph, {});
  const std::vector<int64_t> seeds = {2 * kNodesOfThree + 6, 2 * kNodesOfThree + 13};
  const std::vector<int32_t> fanout = {3, 3};
  std::set<std::vector<int64_t>> drawn;
  for (uint64_t step = 0; step < 20; ++step) {
    const HostBatch batch = run_host(*backend, graph, {seeds, fanout, batch_key(1, 0, step), true});
    ASSERT_EQ(batch.counts.edges_of_relation, (std::vector<std::vector<int64_t>>{{6}, {6}}));
    drawn.insert({batch.e_id.begin(), batch.e_id.begin() + 6});
    drawn.insert({batch.e_id.begin() + 6, batch.e_id.end()});
  }
  EXPECT_GT(drawn.size(), 30u);
}

TEST(TypedGraph, NodesAreExpandedOnceByAllRelationsIntoTheirType) {
  const TypedGraph types = three_types({{0, 1}, {0, 2}, {1, 0}, {2, 1}, {2, 2}});
  const GraphView graph = types.view();
  const auto backend = make_host_backend(graph, {});
  const std::vector<int64_t> seeds = {2 * kNodesOfThree + 5, 2 * kNodesOfThree + 20};
  const std::vector<int32_t> fanout(15, -1);  // 5 relations, 3 hops
  const HostBatch batch = run_host(*backend, graph, {seeds, fanout, batch_key(1, 0, 0), true});
  std::size_t first_edge = 0, first_offset = 0;
  std::vector<std::size_t> first_node = {0};
  for (const auto& nodes : batch.counts.nodes_of_type) {
    first_node.push_back(first_node.back() + std::accumulate(nodes.begin(), nodes.end(), std::size_t{0}));
  }
  for (std::size_t r = 0; r < graph.relations.size(); ++r) {
    const Relation& relation = graph.relations[r];
    const auto source = static_cast<std::size_t>(relation.source_type);
    const auto target = static_cast<std::size_t>(relation.target_type);
    const auto& nodes = batch.counts.nodes_of_type[target];
    const auto num_targets = std::accumulate(nodes.begin(), nodes.end() - 1, std::size_t{0});
    std::size_t edge = first_edge;
    for (std::size_t i = 0; i < num_targets; ++i) {
      const int64_t node = batch.n_id[first_node[target] + i];
      ASSERT_EQ(batch.indptr[first_offset + i], static_cast<int64_t>(edge - first_edge));
      for (int64_t at = types.relations[r].indptr[static_cast<std::size_t>(node)];
           at < types.relations[r].indptr[static_cast<std::size_t>(node) + 1]; ++at, ++edge) {
        const auto local = static_cast<std::size_t>(batch.edge_index[edge]);
        ASSERT_EQ(batch.n_id[first_node[source] + local], types.relations[r].indices[static_cast<std::size_t>(at)]);
        ASSERT_EQ(batch.edge_index[batch.e_id.size() + edge], static_cast<int64_t>(i));
        ASSERT_EQ(batch.e_id[edge], at);
      }
    }
    ASSERT_EQ(batch.indptr[first_offset + num_targets], static_cast<int64_t>(edge - first_edge));
    first_offset += num_targets + 1;
    first_edge = edge;
  }
  EXPECT_EQ(first_edge, batch.e_id.size());
  for (std::size_t type : {std::size_t{0}, std::size_t{2}}) {
    for (std::size_t i = 0; i < first_node[type + 1] - first_node[type]; ++i) {
      ASSERT_EQ(number_at<float>(batch.x[type], 2 * i), static_cast<float>(batch.n_id[first_node[type] + i]));
    }
  }
  for (std::size_t i = 0; i < batch.y.size() / sizeof(int64_t); ++i) {
    ASSERT_EQ(number_at<int64_t>(batch.y, i), batch.n_id[first_node[2] + i] % 5);
  }
}

}  // namespace
}  // namespace cohort::sampler
