// The largest of the rows that edges bring, column by column, and its gradient, of which all edges that brought the
// largest have equal parts. Nothing of the size [edges, columns] is made; the order of additions is fixed. Host and
// CUDA body (trainer/nn/native/max_rows_host.cc, max_rows.cu) give the same bits.
#pragma once

#include "base/gpu_stream.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

// out[i] = max over edges e of row i of x[index[e]], NaN where there is one, 0 without edges; ties[i]: how many of the
// edges bring it, any number for NaN.
struct MaxCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of x and out
  int64_t dim = 0;
  const void* x = nullptr;  // [rows that edges name, dim]
  int64_t x_stride = 0;
  void* out = nullptr;      // [num_rows, dim]
  void* ties = nullptr;     // Sum<dtype> [num_rows, dim]
  void* partial = nullptr;  // CUDA body: Sum<dtype> [2, max_pieces(num_edges), dim], scratch
};

// Its gradient, the block transposed: out[j] = sum over edges e of row j of shares[index[e]] where x[j] is
// largest[index[e]].
struct MaxGradCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of all rows
  int64_t dim = 0;
  const void* x = nullptr;  // [num_rows, dim]
  int64_t x_stride = 0;
  const void* largest = nullptr;  // [rows that edges name, dim], what MaxCall wrote
  const void* shares = nullptr;   // [rows that edges name, dim]
  void* out = nullptr;            // [num_rows, dim]
  void* partial = nullptr;        // CUDA body: Sum<dtype> [max_pieces(num_edges), dim], scratch
};

void run_on_host(const MaxCall& call);
void run_on_host(const MaxGradCall& call);
void run_on_gpu(const MaxCall& call, base::GpuStream stream);
void run_on_gpu(const MaxGradCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
