// Writing a sampled batch of a typed graph into a slot on the GPU: what write_graph() does for a graph of one type.
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

// Nodes that one hop has reached of one type.
struct NodePart {
  int64_t first;          // in SampledRef::n_id
  int64_t place;          // of that node in the slot's n_id
  int64_t local_id;       // of that node
  int64_t first_of_type;  // the id that the type's first node has among all nodes
};

// Edges of one hop and relation.
struct EdgePart {
  int64_t first;         // in SampledRef::source
  int64_t place;         // of that edge in the slot's edge_index
  int64_t before_local;  // what a target's place in n_id is above its local id
  const float* weights;  // float32 [edges of the relation]; null: it has none
};

// The offsets of one relation.
struct OffsetPart {
  int64_t first;      // in the slot's indptr
  int64_t edge;       // the relation's first in the slot's edge_index
  int64_t num_edges;  // of the relation
};

class TypedWriter {
 public:
  explicit TypedWriter(const GraphView& graph);
  // n_id, y, edge_index, indptr and, where wanted, tree, e_id and edge_weight of the slot. To be called for one batch
  // after the other, all on one stream, which has been waited for since the last. edge_weights: of each relation, as
  // EdgePart has them.
  void write(const SampledRef& batch, const LabelsRef& labels, std::span<const float* const> edge_weights,
             const SlotArrays& slot, int max_blocks, cudaStream_t stream);

 private:
  void divide(const SampledRef& batch, std::span<const float* const> edge_weights);

  std::vector<int64_t> first_of_type_;
  std::vector<std::size_t> target_type_;  // [num_relations]
  std::size_t label_type_;
  // Of the batch, by hop and type, by hop and relation, and by relation.
  std::vector<NodePart> nodes_;
  std::vector<EdgePart> edges_;
  std::vector<OffsetPart> offsets_;
  int64_t num_offsets_ = 0;
  int64_t first_labelled_ = 0;   // in the slot's n_id
  base::PinnedScratch staging_;  // all parts
  base::Scratch<std::byte> on_gpu_;
};

}  // namespace cohort::sampler
