// Writing a sampled batch into a slot on the GPU: everything but the feature rows (cache/feature_fetch.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/pinned_scratch.h"
#include "base/scratch.h"
#include "sampler/backend.h"
#include "sampler/gpu_graph.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {

// Nodes that stand side by side among the sampled ones and in the slot. A node's position is that in SampledRef::n_id.
struct NodePart {
  int64_t first;          // position
  int64_t to_slot;        // added to a position: that in the slot's n_id
  int64_t to_local;       // the same: the local id
  int64_t first_of_type;  // the id that the type's first node has among all nodes
  bool goes_on(const NodePart& before) const {
    return to_slot == before.to_slot && to_local == before.to_local && first_of_type == before.first_of_type;
  }
};

// Rows of y whose nodes stand side by side.
struct LabelPart {
  int64_t first;        // row
  int64_t to_position;  // added to a row: the position of its node
  bool goes_on(const LabelPart& before) const { return to_position == before.to_position; }
};

// Edges that stand side by side among the sampled ones and in the slot.
struct EdgePart {
  int64_t first;         // in SampledRef::source
  int64_t to_slot;       // added to that: position in the slot's edge_index
  int64_t to_local;      // added to a target's position: its local id
  const float* weights;  // float32 [edges of the relation]; null: it has none
  bool goes_on(const EdgePart& before) const {
    return to_slot == before.to_slot && to_local == before.to_local && weights == before.weights;
  }
};

// Offsets of targets whose edges stand side by side.
struct OffsetPart {
  int64_t first;        // in the slot's indptr
  int64_t to_position;  // added to that: the target's position
  int64_t begin, end;   // the edges, in SampledRef::target
  int64_t to_offset;    // added to an edge's number there: the offset
  bool goes_on(const OffsetPart& before) const {
    return to_position == before.to_position && to_offset == before.to_offset && begin == before.end;
  }
};

class BatchWriter {
 public:
  explicit BatchWriter(const GraphView& graph);
  // n_id, y, edge_index and, where wanted, tree, indptr, e_id, edge_weight and source_node of the slot. To be called
  // for one batch after the other, all on one stream, which has been waited for since the last. edge_weights: of each
  // relation, as EdgePart has them.
  void write(const SampledRef& batch, const LabelsRef& labels, std::span<const float* const> edge_weights,
             const SlotArrays& slot, int max_blocks, cudaStream_t stream);

 private:
  void divide(const SampledRef& batch, std::span<const float* const> edge_weights);
  void divide_nodes(const SampledRef& batch);
  void divide_edges(const SampledRef& batch, std::span<const float* const> edge_weights);
  const std::byte* copy_parts(cudaStream_t stream);

  std::vector<int64_t> first_of_type_;
  std::vector<std::size_t> target_type_;  // [num_relations]
  std::size_t label_type_;
  // Of the batch. Parts that go on are one: of a graph of one type and one relation there is one part of each kind, a
  // kernel's argument; several are copied to the GPU.
  std::vector<NodePart> nodes_;
  std::vector<LabelPart> labels_;
  std::vector<EdgePart> edges_;
  std::vector<OffsetPart> offsets_;
  std::vector<int64_t> to_position_;  // [num_hops + 1, num_types], added to a local id: the position
  int64_t num_offsets_ = 0;
  base::PinnedScratch staging_;
  base::Scratch<std::byte> on_gpu_;
};

// For tests: keeps the stream busy for this long; and a store to an address that is not there.
void delay(int64_t us, cudaStream_t stream);
void access_illegally(cudaStream_t stream);

}  // namespace cohort::sampler
