// Batches in host memory, for the sampler's tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "sampler/backend.h"

namespace cohort::sampler {

// What a slot has of a batch.
struct HostBatch {
  BatchSizes counts;
  std::vector<int64_t> n_id, edge_index, input_id, indptr;
  std::vector<int64_t> e_id;                         // empty unless the query asks for it
  std::vector<int64_t> source_node;                  // empty unless the last hop is global
  std::vector<int64_t> tree;                         // empty unless disjoint
  std::vector<float> edge_weight;                    // empty where the graph has none
  std::vector<std::byte> y;                          // labels of all nodes
  std::vector<std::vector<std::byte>> x, edge_attr;  // of each type, of each relation

  HostBatch(const GraphView& graph, const Query& query, BatchSizes sampled) : counts(std::move(sampled)) {
    n_id.resize(static_cast<std::size_t>(counts.num_nodes));
    edge_index.resize(2 * static_cast<std::size_t>(counts.num_local_edges));
    input_id.resize(query.seeds.size());
    e_id.resize(query.edge_ids ? static_cast<std::size_t>(counts.num_edges) : 0);
    source_node.resize(query.last_hop_global ? static_cast<std::size_t>(counts.num_edges) : 0);
    tree.resize(query.spec.disjoint ? n_id.size() : 0);
    const bool has_shares = graph.with_shares && query.spec.numbers.importance;
    edge_weight.resize(has_shares                 ? static_cast<std::size_t>(counts.num_edges)
                       : graph.has_edge_weights() ? e_id.size()
                                                  : 0);
    for (const Relation& relation : graph.relations) {
      const std::vector<int64_t>& nodes = counts.nodes_of_type[static_cast<std::size_t>(relation.target_type)];
      indptr.resize(indptr.size() + static_cast<std::size_t>(sum(nodes) - nodes.back()) + 1);
    }
    num_labels_ = sum(counts.nodes_of_type[static_cast<std::size_t>(graph.label_type)]);
    y.resize(static_cast<std::size_t>(num_labels_ * graph.label_bytes));
    for (std::size_t type = 0; type < graph.types.size(); ++type) {
      x.emplace_back(static_cast<std::size_t>(sum(counts.nodes_of_type[type]) * graph.types[type].rows.row_bytes));
    }
    for (std::size_t relation = 0; graph.has_edge_rows() && relation < graph.relations.size(); ++relation) {
      const int64_t row_bytes = graph.relations[relation].edge_rows.row_bytes;
      edge_attr.emplace_back(static_cast<std::size_t>(sum(counts.edges_of_relation[relation]) * row_bytes));
    }
  }

  // Of all arrays.
  std::vector<std::span<std::byte>> arrays() {
    std::vector<std::span<std::byte>> all;
    for (auto* ids : {&n_id, &edge_index, &input_id, &indptr, &e_id, &source_node, &tree}) {
      all.push_back(std::as_writable_bytes(std::span(*ids)));
    }
    all.push_back(std::as_writable_bytes(std::span(edge_weight)));
    all.emplace_back(y);
    for (auto* tables : {&x, &edge_attr}) all.insert(all.end(), tables->begin(), tables->end());
    return all;
  }
  // A slot with memory for arrays(), in their order.
  SlotArrays slot(const std::vector<std::byte*>& memory) const {
    const auto ids = [&](std::size_t which) { return reinterpret_cast<int64_t*>(memory[which]); };
    SlotArrays slot;
    slot.n_id = ids(0);
    slot.edge_index = ids(1);
    slot.input_id = ids(2);
    slot.indptr = ids(3);
    slot.e_id = e_id.empty() ? nullptr : ids(4);
    slot.source_node = source_node.empty() ? nullptr : ids(5);
    slot.tree = tree.empty() ? nullptr : ids(6);
    slot.edge_weight = edge_weight.empty() ? nullptr : reinterpret_cast<float*>(memory[7]);
    slot.y = memory[8];
    slot.num_labels = num_labels_;
    const auto tables = memory.begin() + 9, of_edges = tables + std::ssize(x);
    slot.x.assign(tables, of_edges);
    slot.edge_attr.assign(of_edges, memory.end());
    return slot;
  }

  static int64_t sum(const std::vector<int64_t>& values) {
    return std::accumulate(values.begin(), values.end(), int64_t{0});
  }

 private:
  int64_t num_labels_;
};

inline HostBatch run_host(Backend& backend, const GraphView& graph, const Query& query) {
  HostBatch batch(graph, query, backend.sample(query));
  std::vector<std::byte*> memory;
  for (const std::span<std::byte> array : batch.arrays()) memory.push_back(array.data());
  std::vector<int64_t> input_id(query.seeds.size());
  std::iota(input_id.begin(), input_id.end(), int64_t{0});
  backend.fetch(batch.slot(memory), input_id);
  return batch;
}

inline void expect_equal(const HostBatch& a, const HostBatch& b) {
  ASSERT_EQ(a.counts.nodes_of_type, b.counts.nodes_of_type);
  ASSERT_EQ(a.counts.edges_of_relation, b.counts.edges_of_relation);
  ASSERT_EQ(a.counts.nodes_per_hop, b.counts.nodes_per_hop);
  ASSERT_EQ(a.counts.edges_per_hop, b.counts.edges_per_hop);
  ASSERT_EQ(a.counts.num_local_edges, b.counts.num_local_edges);
  ASSERT_EQ(a.n_id, b.n_id);
  ASSERT_EQ(a.y, b.y);
  ASSERT_EQ(a.edge_index, b.edge_index);
  ASSERT_EQ(a.input_id, b.input_id);
  ASSERT_EQ(a.x, b.x);
  ASSERT_EQ(a.indptr, b.indptr);
  ASSERT_EQ(a.e_id, b.e_id);
  ASSERT_EQ(a.source_node, b.source_node);
  ASSERT_EQ(a.tree, b.tree);
  ASSERT_EQ(a.edge_weight, b.edge_weight);
  ASSERT_EQ(a.edge_attr, b.edge_attr);
}

}  // namespace cohort::sampler
