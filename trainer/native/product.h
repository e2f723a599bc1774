// Products of many float32 rows with a small matrix, at float32's accuracy on tensor cores: each factor is the sum of
// two numbers of TF32, and three of their four products are added in float32 (Fasi, Higham, Lopez, Mary, Mikaitis:
// Matrix multiplication in multiword arithmetic, SIAM J. Sci. Comput. 45(1), 2023).
#pragma once

#include <cstdint>

#include "base/host_device.h"

#ifdef COHORT_WITH_CUDA
#include <cuda_runtime_api.h>

namespace cohort::trainer {

// All matrices float32, row-major, their data at multiples of 16 bytes and their widths multiples of 4.

// out[m, n] = sum over k of rows[m, k] weight[n, k] + bias[n]
struct ProductCall {
  int64_t num_rows = 0;
  int64_t depth = 0;
  int64_t width = 0;
  const float* rows = nullptr;    // [num_rows, depth]
  const float* weight = nullptr;  // [width, depth]
  const float* bias = nullptr;    // [width]; null: none
  float* out = nullptr;           // [num_rows, width]
};

// out[n, k] = sum over m of grad[m, n] rows[m, k]: parts of kPartRows rows each, which are added in their order
struct ProductGradCall {
  int64_t num_rows = 0;
  int64_t depth = 0;
  int64_t width = 0;
  const float* grad = nullptr;  // [num_rows, width]
  const float* rows = nullptr;  // [num_rows, depth]
  float* out = nullptr;         // [width, depth]
  float* partial = nullptr;     // [num_parts(num_rows), width, depth], scratch
};

constexpr int64_t kPartRows = 1024;
COHORT_HOST_DEVICE constexpr int64_t num_parts(int64_t num_rows) { return (num_rows + kPartRows - 1) / kPartRows; }

void run_on_gpu(const ProductCall& call, cudaStream_t stream);
void run_on_gpu(const ProductGradCall& call, cudaStream_t stream);

}  // namespace cohort::trainer
#endif
