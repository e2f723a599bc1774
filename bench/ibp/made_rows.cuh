// Rows made on the GPU, for the benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/launch.h"
#include "base/random.h"
#include "ibp/ibp.h"

namespace cohort::ibp {

enum class Kind { kGaussian, kSparse };

__device__ inline float gaussian(uint64_t row, uint64_t column) {
  const uint64_t bits = base::random_64(base::key_of(1), row, column);
  const float u = (static_cast<float>(bits >> 40) + 1) * 0x1p-24f, v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

// Gaussian elements, or 0.9 % ones divided by their number in the row (about).
static __global__ void fill_kernel(std::byte* rows, int64_t num_rows, uint32_t num_columns, Dtype dtype, Kind kind) {
  for (int64_t i = base::grid_first(); i < num_rows * num_columns; i += base::grid_step()) {
    const uint64_t row = uint64_t(i / num_columns), column = uint64_t(i % num_columns);
    float value = 0;
    if (kind == Kind::kGaussian) value = gaussian(row, column);
    if (kind == Kind::kSparse && base::random_below(1000, base::key_of(2), row, column) < 9) {
      value = 1.0f / static_cast<float>(20 + row % 27);
    }
    if (dtype == Dtype::kFloat32) reinterpret_cast<float*>(rows)[i] = value;
    if (dtype == Dtype::kBfloat16) {
      reinterpret_cast<uint16_t*>(rows)[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
    }
  }
}

}  // namespace cohort::ibp
