// A block with rows and columns exchanged: how gradients go back along its edges without atomics, in a fixed order.
#pragma once

#include <cstddef>

#include "base/gpu_stream.h"
#include "trainer/nn/native/block.h"

namespace cohort::trainer {

// The edges of `block`, ordered by what they bring, then as they were. Edges beyond the block's last row come last, and
// are no column's.
struct TransposeCall {
  BlockRef block;  // fewer than 2^31 edges; `edge` and `skip_self` do not matter
  int64_t num_columns = 0;
  int64_t* offsets = nullptr;  // int64 [num_columns + 1], the first edge of each column
  int64_t* index = nullptr;    // int64 [num_edges], the row of an edge
  int32_t* edge = nullptr;     // int32 [num_edges], its number in `block`
  std::byte* scratch = nullptr;
  std::size_t scratch_bytes = 0;  // CUDA body: transpose_scratch_bytes()
};

void run_on_host(const TransposeCall& call);
std::size_t transpose_scratch_bytes(int64_t num_edges);
void run_on_gpu(const TransposeCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
