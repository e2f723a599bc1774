// Gather and maximum of rows in one pass, and its gradient, which goes in equal parts to all that are the maximum, as
// that of torch's scatter_reduce does: a maximum of 0 has one part more, that of the zero it starts from.
// Host and CUDA body (trainer/native/max_rows_host.cc, max_rows.cu) give the same bits.
#pragma once

#include "trainer/native/block.h"
#include "trainer/native/element.h"

#ifdef COHORT_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace cohort::trainer {

// out[i] = maximum over edges e of row i of x[index[e]]; 0 for rows without edges; NaN where one is. Strides count
// elements.
struct MaxCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of x and out
  int64_t dim = 0;
  const void* x = nullptr;  // [rows that edges name, dim]
  int64_t x_stride = 0;
  void* out = nullptr;  // [num_rows, dim]
  int64_t out_stride = 0;
  int32_t* ties = nullptr;          // int32 [num_rows, dim], parts of the gradient; null: not wanted
  void* partial = nullptr;          // CUDA body: Sum<dtype> [max_pieces(num_edges), dim], scratch
  int32_t* partial_ties = nullptr;  // CUDA body: int32 [max_pieces(num_edges), dim], scratch
};

// out[i] = sum over edges e of row i of grad[index[e]] / ties[index[e]] where best[index[e]] == x[i]. The block is that
// of MaxCall, transposed.
struct MaxGradCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of all rows
  int64_t dim = 0;
  const void* x = nullptr;  // [num_rows, dim]
  int64_t x_stride = 0;
  const void* best = nullptr;     // [targets, dim], what MaxCall wrote
  const void* grad = nullptr;     // [targets, dim], of `best`
  const int32_t* ties = nullptr;  // int32 [targets, dim]
  void* out = nullptr;            // [num_rows, dim]
  void* partial = nullptr;        // CUDA body: Sum<dtype> [max_pieces(num_edges), dim], scratch
};

void run_on_host(const MaxCall& call);
void run_on_host(const MaxGradCall& call);

#ifdef COHORT_WITH_CUDA
void run_on_gpu(const MaxCall& call, cudaStream_t stream);
void run_on_gpu(const MaxGradCall& call, cudaStream_t stream);
#endif

}  // namespace cohort::trainer
