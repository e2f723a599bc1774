// Graphs of several types on the host: one type is a graph of one type, and what a batch of several must satisfy. The
// exact draws are compared with a slow sampler in tests/trainer/loader/hetero_loader_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "sampler/draw.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

// Slot arrays of a typed batch in host memory.
struct TypedHostBatch {
  BatchSizes sizes;
  std::vector<int64_t> n_id, edge_index, indptr, e_id, input_id, y;
  std::vector<std::vector<float>> tables;

  TypedHostBatch(Backend& backend, const GraphView& graph, const Query& query) : sizes(backend.sample(query)) {
    const auto sum = [](const std::vector<int64_t>& values) {
      return std::accumulate(values.begin(), values.end(), int64_t{0});
    };
    n_id.resize(static_cast<std::size_t>(sizes.num_nodes));
    edge_index.resize(2 * static_cast<std::size_t>(sizes.num_edges));
    e_id.resize(static_cast<std::size_t>(sizes.num_edges));
    input_id.resize(query.seeds.size());
    int64_t num_offsets = 0;
    for (const Relation& relation : graph.relations) {
      const auto& nodes = sizes.nodes_of_type[static_cast<std::size_t>(relation.target_type)];
      num_offsets += sum(nodes) - nodes.back() + 1;
    }
    indptr.resize(static_cast<std::size_t>(num_offsets));
    y.resize(static_cast<std::size_t>(sum(sizes.nodes_of_type[static_cast<std::size_t>(graph.label_type)])));
    SlotArrays slot;
    for (std::size_t type = 0; type < graph.types.size(); ++type) {
      const int64_t width = graph.types[type].row_bytes / static_cast<int64_t>(sizeof(float));
      tables.emplace_back(static_cast<std::size_t>(sum(sizes.nodes_of_type[type]) * width));
    }
    for (auto& table : tables) slot.tables.push_back(reinterpret_cast<std::byte*>(table.data()));
    slot.n_id = n_id.data();
    slot.edge_index = edge_index.data();
    slot.indptr = indptr.data();
    slot.e_id = e_id.data();
    slot.input_id = input_id.data();
    slot.y = reinterpret_cast<std::byte*>(y.data());
    slot.num_labels = std::ssize(y);
    backend.fetch(slot, input_id);
  }
};

TEST(TypedGraph, OfOneTypeIsAGraphOfOneType) {
  const auto graph = mixed_graph<int32_t>(700, 5);
  const GraphView plain = graph.view();
  GraphView typed = plain;
  typed.types = {{0, plain.num_nodes, plain.features, plain.row_bytes}};
  typed.relations = {{0, 0, plain}};
  const auto backend = make_host_backend(plain, {}), typed_backend = make_host_backend(typed, {});
  std::vector<int64_t> seeds(50);
  std::iota(seeds.begin(), seeds.end(), int64_t{31});
  for (const auto& fanout : {std::vector<int32_t>{4, 3}, {5, 4, 3}, {-1, 2}, {0, 3}}) {
    const Query query{seeds, fanout, batch_key(5, 1, 0), true};
    const HostBatch expected = run_host(*backend, plain, query);
    const TypedHostBatch batch(*typed_backend, typed, query);
    EXPECT_EQ(batch.sizes.nodes_per_hop, expected.counts.nodes_per_hop);
    EXPECT_EQ(batch.sizes.nodes_of_type, std::vector<std::vector<int64_t>>(1, expected.counts.nodes_per_hop));
    EXPECT_EQ(batch.sizes.edges_of_relation, std::vector<std::vector<int64_t>>(1, expected.counts.edges_per_hop));
    EXPECT_EQ(batch.n_id, expected.n_id);
    EXPECT_EQ(batch.edge_index, expected.edge_index);
    EXPECT_EQ(batch.indptr, expected.indptr);
    EXPECT_EQ(batch.e_id, expected.e_id);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(batch.tables[0])), expected.x));
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(batch.y)), expected.y));
  }
}

// Relation r of 3 types: lists of `per_node` sources, the same ids in each relation.
struct ThreeTypes {
  static constexpr int64_t kNodes = 40;
  std::vector<std::vector<int64_t>> indptr;
  std::vector<std::vector<int32_t>> indices;
  std::vector<float> features;
  std::vector<int64_t> labels;
  GraphView graph;

  explicit ThreeTypes(const std::vector<std::pair<int, int>>& relations) {
    features.resize(kNodes * 2);
    for (int64_t node = 0; node < kNodes; ++node) {
      features[static_cast<std::size_t>(2 * node)] = static_cast<float>(node);
      labels.push_back(node % 5);
    }
    for (std::size_t r = 0; r < relations.size(); ++r) {
      indptr.emplace_back(1, 0);
      indices.emplace_back();
      for (int64_t node = 0; node < kNodes; ++node) {
        for (int64_t j = 0; j < node % 7; ++j) indices[r].push_back(static_cast<int32_t>((node * 3 + j * 5) % kNodes));
        indptr[r].push_back(std::ssize(indices[r]));
      }
    }
    const auto* rows = reinterpret_cast<const std::byte*>(features.data());
    graph.types = {{0, kNodes, rows, 8}, {kNodes, kNodes, nullptr, 0}, {2 * kNodes, kNodes, rows, 8}};
    for (std::size_t r = 0; r < relations.size(); ++r) {
      const base::CscRef lists{kNodes, std::ssize(indices[r]), indptr[r].data(), indices[r].data(), 4};
      graph.relations.push_back({relations[r].first, relations[r].second, lists});
      graph.num_edges += lists.num_edges;
    }
    graph.num_nodes = 3 * kNodes;
    graph.label_type = 2;
    graph.labels = reinterpret_cast<const std::byte*>(labels.data());
  }
};

TEST(TypedGraph, ADrawDependsOnTheRelation) {
  const ThreeTypes twice({{0, 2}, {0, 2}});  // the same lists twice
  const auto backend = make_host_backend(twice.graph, {});
  const std::vector<int64_t> seeds = {2 * ThreeTypes::kNodes + 6, 2 * ThreeTypes::kNodes + 13};
  const std::vector<int32_t> fanout = {3, 3};
  std::set<std::vector<int64_t>> drawn;
  for (uint64_t step = 0; step < 20; ++step) {
    const TypedHostBatch batch(*backend, twice.graph, {seeds, fanout, batch_key(1, 0, step), true});
    ASSERT_EQ(batch.sizes.edges_of_relation, (std::vector<std::vector<int64_t>>{{6}, {6}}));
    drawn.insert({batch.e_id.begin(), batch.e_id.begin() + 6});
    drawn.insert({batch.e_id.begin() + 6, batch.e_id.end()});
  }
  EXPECT_GT(drawn.size(), 30u);
}

TEST(TypedGraph, NodesAreExpandedOnceByAllRelationsIntoTheirType) {
  const ThreeTypes types({{0, 1}, {0, 2}, {1, 0}, {2, 1}, {2, 2}});
  const auto backend = make_host_backend(types.graph, {});
  const std::vector<int64_t> seeds = {2 * ThreeTypes::kNodes + 5, 2 * ThreeTypes::kNodes + 20};
  const std::vector<int32_t> fanout(15, -1);  // 5 relations, 3 hops
  const TypedHostBatch batch(*backend, types.graph, {seeds, fanout, batch_key(1, 0, 0), true});
  std::size_t first_edge = 0, first_offset = 0;
  std::vector<std::size_t> first_node = {0};
  for (const auto& nodes : batch.sizes.nodes_of_type) {
    first_node.push_back(first_node.back() + std::accumulate(nodes.begin(), nodes.end(), std::size_t{0}));
  }
  for (std::size_t r = 0; r < types.graph.relations.size(); ++r) {
    const Relation& relation = types.graph.relations[r];
    const auto source = static_cast<std::size_t>(relation.source_type);
    const auto target = static_cast<std::size_t>(relation.target_type);
    const auto& nodes = batch.sizes.nodes_of_type[target];
    const auto num_targets = std::accumulate(nodes.begin(), nodes.end() - 1, std::size_t{0});
    std::size_t edge = first_edge;
    for (std::size_t i = 0; i < num_targets; ++i) {
      const int64_t node = batch.n_id[first_node[target] + i];
      ASSERT_EQ(batch.indptr[first_offset + i], static_cast<int64_t>(edge - first_edge));
      for (int64_t at = types.indptr[r][static_cast<std::size_t>(node)];
           at < types.indptr[r][static_cast<std::size_t>(node) + 1]; ++at, ++edge) {
        const auto local = static_cast<std::size_t>(batch.edge_index[edge]);
        ASSERT_EQ(batch.n_id[first_node[source] + local], types.indices[r][static_cast<std::size_t>(at)]);
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
      ASSERT_EQ(batch.tables[type][2 * i], static_cast<float>(batch.n_id[first_node[type] + i]));
    }
  }
  for (std::size_t i = 0; i < batch.y.size(); ++i) ASSERT_EQ(batch.y[i], batch.n_id[first_node[2] + i] % 5);
}

}  // namespace
}  // namespace cohort::sampler
