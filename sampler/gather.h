// Writing a sampled batch into a slot on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "sampler/backend.h"
#include "sampler/neighbor_sampler.h"
#include "base/scratch.h"

namespace cohort::sampler {

// Feature rows and labels that kernels can read.
struct RowsRef {
  const std::byte* features = nullptr;  // [V, row_bytes], pinned host memory, 16-byte aligned
  int64_t row_bytes = 0;
  const int64_t* labels = nullptr;  // int64 [V]
  int64_t num_nodes = 0;            // V
};

class CudaGather {
 public:
  // `row_blocks`: blocks that read rows from host memory. A few saturate the link; more only keep the trainer off the
  // SMs.
  CudaGather(const RowsRef& rows, int max_blocks, int row_blocks)
      : rows_(rows), max_blocks_(max_blocks), row_blocks_(row_blocks) {}

  // n_id, y and edge_index of the slot.
  void write_graph(const SampledRef& batch, const SlotArrays& slot, cudaStream_t stream);

  // x of the slot: rows are read in ascending address order, which host memory serves 2 to 4 times faster.
  void write_rows(const SampledRef& batch, const SlotArrays& slot, cudaStream_t stream);

 private:
  RowsRef rows_;
  int max_blocks_, row_blocks_;
  base::Scratch<int64_t> sorted_id_;         // int64 [num_nodes]
  base::Scratch<int32_t> row_, sorted_row_;  // int32 [num_nodes], rows of x
  base::Scratch<std::byte> temporary_;       // CUB
};

// For tests: keeps the stream busy for this long; and a store to an address that is not there.
void delay(int64_t us, cudaStream_t stream);
void access_illegally(cudaStream_t stream);

}  // namespace cohort::sampler
