// A batch in host memory as it is sampled, and what writes it into a slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampler/backend.h"

namespace cohort::sampler {

inline constexpr int kFewItems = 256;  // not worth waking threads for

// Nodes of one type in the batch.
struct OfType {
  explicit OfType(const NodeRange& nodes) : range(nodes) {}
  NodeRange range;
  std::vector<int64_t> n_id;              // int64, counted from the type's first node, in the order of local ids
  std::vector<int32_t> tree;              // int32, that each is in; none: the batch is not disjoint
  std::vector<std::size_t> ends_of_hops;  // [hops so far + 1], into n_id: seeds, then each hop
  std::size_t before_last_hop() const { return ends_of_hops.size() < 2 ? 0 : ends_of_hops.rbegin()[1]; }
};

// Edges of one relation in the batch.
struct OfRelation {
  explicit OfRelation(const Relation& edges) : relation(edges) {}
  Relation relation;
  std::vector<int32_t> source;   // int32 [local edges], local ids of the source type
  std::vector<int32_t> target;   // int32 [edges], local ids of the target type
  std::vector<int64_t> e_id;     // int64 [edges], where the query wants them
  std::vector<float> share;      // float32 [edges], of the mean over a list; with importance sampling alone
  std::vector<int64_t> per_hop;  // int64 [hops so far]
  std::size_t edges_before = 0;  // of the last hop
};

inline base::Span since(int64_t start_us) {
  return {static_cast<double>(start_us), static_cast<double>(base::monotonic_us())};
}

// n_id, tree, y, edge_index, and where wanted source_node, indptr, e_id and edge_weight of the slot. source_node: int64
// [num_edges], where the last hop is global.
void write_batch(const GraphView& graph, std::span<const OfType> types, std::span<const OfRelation> relations,
                 std::span<const int64_t> source_node, const SlotArrays& slot);

}  // namespace cohort::sampler
