#include <algorithm>
#include <cstring>
#include <numeric>

#include "sampler/host_batch.h"

namespace cohort::sampler {
namespace {

void write_nodes(const GraphView& graph, std::span<const OfType> types, const SlotArrays& slot) {
  int64_t *n_id = slot.n_id, *tree = slot.tree;
  for (const OfType& type : types) n_id = std::ranges::copy(type.n_id, n_id).out;
  if (tree) {
    for (const OfType& type : types) tree = std::ranges::copy(type.tree, tree).out;
  }
  if (!slot.y) return;
  const std::vector<int64_t>& labelled = types[static_cast<std::size_t>(graph.label_type)].n_id;
#pragma omp parallel for schedule(static) if (slot.num_labels > kFewItems)
  for (int64_t i = 0; i < slot.num_labels; ++i) {
    std::memcpy(slot.y + i * graph.label_bytes,
                graph.labels + labelled[static_cast<std::size_t>(i)] * graph.label_bytes,
                static_cast<std::size_t>(graph.label_bytes));
  }
}

// The edges stand by ascending target. Returns the end of what was written.
int64_t* write_indptr(std::span<const OfType> types, const OfRelation& edges, int64_t* indptr) {
  const OfType& targets = types[static_cast<std::size_t>(edges.relation.target_type)];
  int64_t* const end = indptr + targets.before_last_hop() + 1;
  std::fill(indptr, end, 0);
  for (const int32_t target : edges.target) ++indptr[target + 1];
  std::partial_sum(indptr, end, indptr);
  return end;
}

// Returns the end of what was written.
float* write_weights(const OfRelation& edges, float* to) {
  if (!edges.share.empty()) return std::ranges::copy(edges.share, to).out;
  const float* const weights = edges.relation.edge_weights;
#pragma omp parallel for schedule(static) if (edges.e_id.size() > std::size_t{kFewItems})
  for (std::size_t edge = 0; edge < edges.e_id.size(); ++edge) to[edge] = weights ? weights[edges.e_id[edge]] : 1;
  return to + edges.e_id.size();
}

}  // namespace

void write_batch(const GraphView& graph, std::span<const OfType> types, std::span<const OfRelation> relations,
                 std::span<const int64_t> source_node, const SlotArrays& slot) {
  write_nodes(graph, types, slot);
  int64_t* source = slot.edge_index;
  for (const OfRelation& edges : relations) source = std::ranges::copy(edges.source, source).out;
  int64_t* target = source;
  for (const OfRelation& edges : relations) {
    target = std::copy_n(edges.target.begin(), edges.source.size(), target);
  }
  if (slot.source_node) std::ranges::copy(source_node, slot.source_node);
  int64_t *indptr = slot.indptr, *e_id = slot.e_id;
  float* edge_weight = slot.edge_weight;
  for (const OfRelation& edges : relations) {
    if (indptr) indptr = write_indptr(types, edges, indptr);
    if (e_id) e_id = std::ranges::copy(edges.e_id, e_id).out;
    if (edge_weight) edge_weight = write_weights(edges, edge_weight);
  }
}

}  // namespace cohort::sampler
