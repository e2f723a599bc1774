// Products of many 16-bit rows, given by index, with a few vectors on tensor cores, and the gradient
// of the vectors: each row is read once, and no copy of the rows is made. What an element sums is float32; the order of
// additions depends on the sizes alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/gpu_stream.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

constexpr int64_t kMostScores = 64;       // vectors, or columns of gradients, of one call
constexpr int64_t kScoreRows = 128;       // memory of the products has rows up to a multiple of so many
constexpr int64_t kScoreColumns = 32;     // rows have a multiple of so many columns
constexpr int64_t kGradColumns = 256;     // for which a block sums gradients
constexpr int64_t kMostScoreParts = 264;  // two blocks for each SM of the largest GPU

// Parts of the rows whose gradients are summed side by side, in `partial`.
inline int64_t num_score_parts(int64_t count, int64_t dim) {
  const int64_t slices = std::max<int64_t>(1, (dim + kGradColumns - 1) / kGradColumns);
  return std::clamp<int64_t>(count / 128, 1, std::max<int64_t>(1, kMostScoreParts / slices));
}

// out[i, v] = <rows[row_index[i]], vectors[v]>, 0 where row_index[i] is negative. Memory begins at multiples of 32
// bytes.
struct IndexedScoresCall {
  Dtype dtype = Dtype::kFloat16;  // of rows and vectors, of 16 bits
  int64_t count = 0;              // rows to multiply
  int64_t dim = 0;                // columns, a multiple of kScoreColumns
  int64_t width = 0;              // vectors, a multiple of 8, at most kMostScores
  const void* rows = nullptr;     // [any, dim]
  const int64_t* row_index = nullptr;
  const void* vectors = nullptr;  // [width, dim]
  float* out = nullptr;           // [count up to a multiple of kScoreRows, width]; rows beyond `count` become zeros
};

// The sum over parts p of partial[p, v, k] = sum over i of grad[i, v] rows[row_index[i], k].
struct IndexedScoresGradCall {
  Dtype dtype = Dtype::kFloat16;  // of rows and grad
  int64_t count = 0;
  int64_t dim = 0;
  int64_t width = 0;
  int64_t parts = 0;  // of these rows, one after another; as many as num_score_parts() says, or others
  const void* rows = nullptr;
  const int64_t* row_index = nullptr;
  const void* grad = nullptr;  // [count, width]
  float* partial = nullptr;    // [parts, width, dim]
};

void run_on_gpu(const IndexedScoresCall& call, base::GpuStream stream);
void run_on_gpu(const IndexedScoresGradCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
