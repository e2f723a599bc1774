// float32 as bfloat16: to the nearest, of two as near to the even one, but never a number that is not 0 to 0; every NaN
// becomes 0x7fff.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace cohort::ibp {

// Of the bits of a float32 that is 0 or at least 2^-133, as all numbers of coded rows are.
COHORT_HOST_DEVICE inline uint16_t bfloat16_of(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// Of any float32.
COHORT_HOST_DEVICE inline uint16_t bfloat16_of_any(uint32_t bits) {
  const uint16_t rounded = bfloat16_of(bits);
  const bool vanished = (rounded & 0x7fff) == 0 && (bits & 0x7fffffffu) != 0;
  return vanished ? static_cast<uint16_t>(rounded | 1) : rounded;
}

#ifdef __CUDACC__

// bfloat16_of() two at once, `low` in the low half: the same bits by one instruction.
__device__ inline uint32_t bfloat16_pair_of(uint32_t low, uint32_t high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return pair;
}

// Stores kWords elements, 1, 2 or 4, at a multiple of 2 * kWords.
template <uint32_t kWords>
__device__ inline void store_rounded(std::byte* out, const uint32_t (&words)[kWords]) {
  if constexpr (kWords == 4) {
    *reinterpret_cast<uint2*>(out) = uint2{bfloat16_pair_of(words[0], words[1]), bfloat16_pair_of(words[2], words[3])};
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint32_t*>(out) = bfloat16_pair_of(words[0], words[1]);
  } else {
    *reinterpret_cast<uint16_t*>(out) = bfloat16_of(words[0]);
  }
}

// A row of `num_columns` of any float32 by one warp; `out` is a multiple of 2.
__device__ inline void round_row_warp(const uint32_t* words, std::byte* out, uint32_t num_columns) {
  auto* elements = reinterpret_cast<uint16_t*>(out);
  for (uint32_t i = threadIdx.x % 32; i < num_columns; i += 32) elements[i] = bfloat16_of_any(words[i]);
}

#endif

}  // namespace cohort::ibp
