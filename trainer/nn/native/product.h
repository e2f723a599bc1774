// Products of many float32 rows with a small matrix on tensor cores, as exact as float32's own: each factor is the sum
// of two numbers of TF32, of whose four products the least is left out (Fasi, Higham, Lopez, Mary, Mikaitis: Matrix
// multiplication in multiword arithmetic, SIAM J. Sci. Comput. 45(1), 2023); and what tensor cores have summed over a
// few depths is added outside of them, since they cut off where they add (Ootomo, Yokota: Recovering single precision
// accuracy from Tensor Cores, Int. J. High Perform. Comput. Appl. 36(4), 2022). The order of additions depends on the
// sizes alone.
#pragma once

#include <cstdint>

#include "base/gpu_stream.h"

namespace cohort::trainer {

// All matrices are float32, row-major, their data at multiples of 16 bytes and their widths multiples of 4.

constexpr int64_t kMaxProductDepth = 256;

// out[m, n] = sum over k of rows[m, k] weight[n, k] + bias[n]
struct ProductCall {
  int64_t num_rows = 0;
  int64_t depth = 0;  // at most kMaxProductDepth
  int64_t width = 0;
  const float* rows = nullptr;    // [num_rows, depth]
  const float* weight = nullptr;  // [width, depth]
  const float* bias = nullptr;    // [width]; null: none
  float* out = nullptr;           // [num_rows, width]
};

// out[n, k] = sum over m of grad[m, n] rows[m, k], and column_sums[n] = sum over m of grad[m, n]
struct ProductGradCall {
  int64_t num_rows = 0;
  int64_t depth = 0;
  int64_t width = 0;
  const float* grad = nullptr;   // [num_rows, width]
  const float* rows = nullptr;   // [num_rows, depth]
  float* out = nullptr;          // [width, depth]
  float* column_sums = nullptr;  // [width]
  float* partial = nullptr;      // [num_product_parts(), width * (depth + 1)], scratch
};

// Parts of the rows, which are summed side by side.
int64_t num_product_parts(int64_t num_rows, int64_t depth, int64_t width);

// True where the current GPU has what these bodies need: compute capability 9.0.
bool has_products();

void run_on_gpu(const ProductCall& call, base::GpuStream stream);
void run_on_gpu(const ProductGradCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
