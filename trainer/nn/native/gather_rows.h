// Rows by index in one pass, in the dtype that is wanted: row i of out is x[row_index[i]], or zeros where that is below
// 0. Host and CUDA body give the same bits.
#pragma once

#include <cstdint>

#include "base/gpu_stream.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

struct GatherRowsCall {
  Dtype dtype = Dtype::kFloat32;      // of x
  Dtype out_dtype = Dtype::kFloat32;  // float64 only if that of x is
  int64_t num_rows = 0;
  int64_t dim = 0;
  const void* x = nullptr;
  int64_t x_stride = 0;
  const int64_t* row_index = nullptr;  // [num_rows]
  void* out = nullptr;                 // [num_rows, dim]
};

void run_on_host(const GatherRowsCall& call);
void run_on_gpu(const GatherRowsCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
