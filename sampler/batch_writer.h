// Writing a sampled batch into a slot on the GPU: everything but the feature rows (cache/feature_fetch.h).
#pragma once

#include <cuda_runtime_api.h>

#include "sampler/backend.h"
#include "sampler/gpu_graph.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {

// n_id, y, edge_index and, where wanted, tree, indptr, e_id, edge_weight and source_node of the slot. edge_weights:
// float32 [E], of the whole graph.
void write_graph(const SampledRef& batch, const LabelsRef& labels, const float* edge_weights, const SlotArrays& slot,
                 int max_blocks, cudaStream_t stream);

// y alone, of the first num_labels nodes of n_id.
void write_labels(const int64_t* n_id, const LabelsRef& labels, const SlotArrays& slot, int max_blocks,
                  cudaStream_t stream);

// For tests: keeps the stream busy for this long; and a store to an address that is not there.
void delay(int64_t us, cudaStream_t stream);
void access_illegally(cudaStream_t stream);

}  // namespace cohort::sampler
