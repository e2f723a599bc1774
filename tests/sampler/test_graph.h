// Small graphs for the sampler's tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/random.h"
#include "sampler/backend.h"
#include "sampler/draw_weights.h"
#include "tests/sampler/host_batch.h"

namespace cohort::sampler {

// A graph that owns its arrays. Row v of the features holds v in every float.
template <typename Index>
struct TestGraph {
  std::vector<int64_t> indptr{0};
  std::vector<Index> indices;
  std::vector<int64_t> labels;
  std::vector<std::byte> wide_labels;  // in their place, where there are any: of the same length for each node
  std::vector<float> features;
  std::vector<float> edge_weights;                  // none unless weigh_edges() was called
  std::shared_ptr<const DrawWeights> draw_weights;  // none unless draw_by_weight() was called
  std::vector<int64_t> edge_times;                  // none unless time_edges() was called
  std::vector<float> edge_features;                 // [E, edge_dim], none unless describe_edges() was called
  int64_t edge_dim = 0;
  int64_t dim = 5;

  void add_node(const std::vector<int64_t>& in_neighbours) {
    for (int64_t node : in_neighbours) indices.push_back(static_cast<Index>(node));
    indptr.push_back(static_cast<int64_t>(indices.size()));
    const auto node = static_cast<int64_t>(labels.size());
    labels.push_back(node % 7);
    features.insert(features.end(), static_cast<std::size_t>(dim), static_cast<float>(node));
  }
  void weigh_edges() {
    for (std::size_t i = 0; i < indices.size(); ++i) edge_weights.push_back(0.5F + static_cast<float>(i));
  }
  void draw_by_weight(bool top = false) {
    draw_weights = std::make_shared<DrawWeights>(lists(), edge_weights.data(), "edge_weights", top);
  }
  // From -3 on, in each list ascending, some equal.
  void time_edges() {
    edge_times.resize(indices.size());
    for (std::size_t node = 0; node + 1 < indptr.size(); ++node) {
      int64_t time = -3;
      for (auto i = static_cast<std::size_t>(indptr[node]); i < static_cast<std::size_t>(indptr[node + 1]); ++i) {
        edge_times[i] = time += static_cast<int64_t>(base::random_below(3, base::key_of(21), i, node));
      }
    }
  }
  // Each element of the rows of edges is another number.
  void describe_edges(int64_t dim_of_edges) {
    edge_dim = dim_of_edges;
    edge_features.resize(indices.size() * static_cast<std::size_t>(edge_dim));
    for (std::size_t i = 0; i < edge_features.size(); ++i) edge_features[i] = static_cast<float>(i);
  }
  int64_t num_nodes() const { return static_cast<int64_t>(labels.size()); }
  base::CscRef lists() const {
    return {num_nodes(), static_cast<int64_t>(indices.size()), indptr.data(), indices.data(), sizeof(Index)};
  }
  GraphView view() const {
    GraphView graph{.num_nodes = num_nodes(), .num_edges = static_cast<int64_t>(indices.size())};
    graph.labels = reinterpret_cast<const std::byte*>(labels.data());
    if (!wide_labels.empty()) {
      graph.labels = wide_labels.data();
      graph.label_bytes = static_cast<int64_t>(wide_labels.size()) / num_nodes();
    }
    graph.types = {{0,
                    num_nodes(),
                    {{num_nodes(), dim, "float32"},
                     dim * static_cast<int64_t>(sizeof(float)),
                     reinterpret_cast<const std::byte*>(features.data()),
                     nullptr}}};
    Relation& edges = graph.relations.emplace_back(Relation{.lists = lists()});
    if (!edge_weights.empty()) edges.edge_weights = edge_weights.data();
    edges.draw_weights = draw_weights;
    if (!edge_times.empty()) edges.edge_times = edge_times.data();
    if (edge_dim > 0) {
      edges.edge_rows = {{graph.num_edges, edge_dim, "float32"},
                         edge_dim * static_cast<int64_t>(sizeof(float)),
                         reinterpret_cast<const std::byte*>(edge_features.data()),
                         nullptr};
    }
    return graph;
  }
};

// Degrees from 0 to beyond a warp, self loops and duplicate edges.
template <typename Index>
TestGraph<Index> mixed_graph(int64_t num_nodes, uint64_t seed, int64_t dim = 5) {
  TestGraph<Index> graph;
  graph.dim = dim;
  const base::PhiloxKey key = base::key_of(seed);
  for (int64_t node = 0; node < num_nodes; ++node) {
    const auto at = static_cast<uint64_t>(node);
    const uint64_t kind = base::random_below(5, key, at, 0);
    const uint64_t degree = kind == 0 ? 0 : base::random_below(kind == 4 ? 300 : 20, key, at, 1);
    std::vector<int64_t> neighbours;
    for (uint64_t j = 0; j < degree; ++j) {
      neighbours.push_back(static_cast<int64_t>(base::random_below(static_cast<uint64_t>(num_nodes), key, at, 2 + j)));
    }
    if (kind == 1) neighbours.push_back(node);
    if (!neighbours.empty() && kind == 2) neighbours.push_back(neighbours[0]);
    graph.add_node(neighbours);
  }
  return graph;
}

// The graph with weights between 0 and 1000, small ones most often; a quarter of them, and those of some lists, are 0.
template <typename Index>
TestGraph<Index> weighed(TestGraph<Index> graph) {
  const base::PhiloxKey key = base::key_of(17);
  for (std::size_t i = 0; i < graph.indices.size(); ++i) {
    const auto scale = static_cast<float>(base::random_below(1000, key, i, 1) + 1);
    const bool is_zero = base::random_below(4, key, i, 0) == 0 || graph.indices[i] % 16 == 3;
    graph.edge_weights.push_back(is_zero ? 0 : 1000 / scale);
  }
  return graph;
}

// Positions of the seeds' lists that are not to be drawn.
struct SomeExclusions {
  std::vector<int64_t> starts{0}, positions;
  Exclusions ref;

  // Of a list all, about half, the first and the last, or none.
  template <typename Index>
  SomeExclusions(const TestGraph<Index>& graph, const std::vector<int64_t>& seeds) {
    const base::PhiloxKey key = base::key_of(11);
    for (const int64_t seed : seeds) {
      const auto at = static_cast<uint64_t>(seed);
      const int64_t degree = graph.indptr[at + 1] - graph.indptr[at];
      const uint64_t kind = base::random_below(4, key, at, 0);
      for (int64_t position = 0; position < degree; ++position) {
        const bool is_half = base::random_below(2, key, at, 1 + static_cast<uint64_t>(position)) == 0;
        const bool is_end = position == 0 || position + 1 == degree;
        if (kind == 0 || (kind == 1 && is_half) || (kind == 2 && is_end)) positions.push_back(position);
      }
      starts.push_back(static_cast<int64_t>(positions.size()));
    }
  }
  void apply_to(Query& query) {
    ref = {0, starts, positions};
    query.spec.exclusions = {&ref, 1};
  }
};

// Bytes [num_nodes, label_bytes], others for each node.
inline std::vector<std::byte> labels_of_bytes(int64_t num_nodes, int64_t label_bytes) {
  std::vector<std::byte> labels(static_cast<std::size_t>(num_nodes * label_bytes));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::byte>(i * 31 + i / 251);
  return labels;
}

}  // namespace cohort::sampler
