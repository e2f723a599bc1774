// What the two products of product.h have in common: factors that are split in two and multiplied three times.
#pragma once

#include <cstdint>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/product.h"
#include "trainer/nn/native/wgmma.cuh"

namespace cohort::trainer {

constexpr int kChunk = wgmma::kDepths;  // of the sum, whose products tensor cores add up
constexpr int kSteps = kChunk / 8;
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kGroupRows = 64;

constexpr int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

// A number as two of TF32, the first the nearest one; the second has more bits, which the tensor core cuts off.
struct Split {
  uint32_t high, low;
};
__device__ inline Split split(float value) {
  const uint32_t high = (__float_as_uint(value) + 0x1000u) & 0xFFFFE000u;
  return {high, __float_as_uint(value - __uint_as_float(high))};
}

__device__ inline void store_split(uint8_t* high, uint8_t* low, int at, const float (&values)[4]) {
  Split parts[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) parts[i] = split(values[i]);
  *reinterpret_cast<uint4*>(high + at) = {parts[0].high, parts[1].high, parts[2].high, parts[3].high};
  *reinterpret_cast<uint4*>(low + at) = {parts[0].low, parts[1].low, parts[2].low, parts[3].low};
}

// A lane's part of the left factor over a chunk.
struct LeftFactor {
  uint32_t high[kSteps][4], low[kSteps][4];

  // `value(half, step, part)`: of the lane's first or second row, the depth that is the step's first or second one.
  template <typename Value>
  __device__ explicit LeftFactor(Value&& value) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Split parts = split(value(i % 2, step, i / 2));
        high[step][i] = parts.high, low[step][i] = parts.low;
        // If the compiler computed them between two products, one would wait for the other.
        asm volatile("" : "+r"(high[step][i]), "+r"(low[step][i]));
      }
    }
  }
};

// sums = the products over a chunk; the smaller ones come first.
template <int kColumns>
__device__ void multiply(const LeftFactor& left, uint32_t right_high, uint32_t right_low, float (&sums)[kColumns / 2]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t high = wgmma::right_factor(right_high, step), low = wgmma::right_factor(right_low, step);
    wgmma::multiply<kColumns>(sums, left.low[step], high, step > 0);
    wgmma::multiply<kColumns>(sums, left.high[step], low, true);
    wgmma::multiply<kColumns>(sums, left.high[step], high, true);
  }
}

// Where a lane's rows and columns begin, within its warpgroup.
struct WarpgroupPlace {
  int row, quad;
  __device__ WarpgroupPlace() : row(threadIdx.x % kGroup / 32 * 16 + threadIdx.x % 32 / 4), quad(threadIdx.x % 4) {}
};

// Calls f(row, column, first) for each pair of sums side by side, the first of which is sums[first].
template <int kColumns, typename F>
__device__ void for_pairs(const WarpgroupPlace& place, F&& f) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) f(place.row + 8 * half, 8 * j + 2 * place.quad, 4 * j + 2 * half);
  }
}

// The bytes from the next multiple of 1024 on, for right factors.
__device__ inline uint8_t* aligned(uint8_t* shared) {
  return shared + (1024 - wgmma::shared_address(shared) % 1024) % 1024;
}

template <typename Kernel>
void allow_shared(Kernel* kernel, int bytes) {
  base::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "shared memory for a product of rows");
}

}  // namespace cohort::trainer
