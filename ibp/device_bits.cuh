// Bits, words and sums of one warp: what device_view.cuh and encode_view.cuh are made of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ibp/profile_ref.h"

namespace cohort::ibp {

inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline uint32_t lane_id() { return threadIdx.x % 32; }
__device__ inline uint32_t low_bits_32(uint32_t count) { return count >= 32 ? ~0u : (1u << count) - 1; }

// `count` bits, 1..32, at `bit`: reads no word beyond the field's last.
__device__ inline uint32_t read_field(const uint32_t* words, uint32_t bit, uint32_t count) {
  const uint32_t low = words[bit / 32];
  const uint32_t high = words[(bit + count - 1) / 32];
  return __funnelshift_r(low, high, bit % 32) & low_bits_32(count);
}
__device__ inline uint64_t read_field_wide(const uint32_t* words, uint32_t bit, uint32_t count) {
  if (count <= 32) return read_field(words, bit, count);
  return read_field(words, bit, 32) | (uint64_t{read_field(words, bit + 32, count - 32)} << 32);
}

// ORs the low `count` bits (<= 32, none above) of `value` into a zeroed bit stream.
__device__ inline void or_field(uint32_t* words, uint32_t bit, uint32_t count, uint32_t value) {
  if (value == 0) return;
  const uint32_t shift = bit % 32;
  atomicOr(words + bit / 32, value << shift);
  if (shift + count > 32) atomicOr(words + bit / 32 + 1, value >> (32 - shift));
}
__device__ inline void or_field_wide(uint32_t* words, uint32_t bit, uint32_t count, uint64_t value) {
  or_field(words, bit, min(count, 32u), static_cast<uint32_t>(value));
  if (count > 32) or_field(words, bit + 32, count - 32, static_cast<uint32_t>(value >> 32));
}

// Element `i` of a row of elements of `size` bytes.
__device__ inline uint64_t load_element(const std::byte* row, uint32_t size, uint32_t i) {
  switch (size) {
    case 1:
      return reinterpret_cast<const uint8_t*>(row)[i];
    case 2:
      return reinterpret_cast<const uint16_t*>(row)[i];
    case 4:
      return reinterpret_cast<const uint32_t*>(row)[i];
    default:
      return reinterpret_cast<const uint64_t*>(row)[i];
  }
}

// Writes the low `bytes` (1..8) of `value` at any address.
__device__ inline void store_bytes(std::byte* out, uint64_t value, uint32_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(out);
  if (bytes == 4 && address % 4 == 0) {
    *reinterpret_cast<uint32_t*>(out) = static_cast<uint32_t>(value);
  } else if (bytes == 8 && address % 8 == 0) {
    *reinterpret_cast<uint64_t*>(out) = value;
  } else if (bytes == 2 && address % 2 == 0) {
    *reinterpret_cast<uint16_t*>(out) = static_cast<uint16_t>(value);
  } else {
    for (uint32_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
  }
}

// Word `i` of a row of `row_bytes`, of which the last may be short.
__device__ inline void store_word(std::byte* out, uint32_t row_bytes, uint32_t i, uint32_t value) {
  store_bytes(out + i * 4, value, row_bytes - i * 4 < 4 ? row_bytes - i * 4 : 4);
}

// kWords words of 32 bits of a table that no kernel writes, at a multiple of 4 * kWords.
template <uint32_t kWords>
__device__ inline void load_words(const uint32_t* from, uint32_t (&words)[kWords]) {
  if constexpr (kWords == 4) {
    const uint4 all = __ldg(reinterpret_cast<const uint4*>(from));
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
  } else if constexpr (kWords == 2) {
    const uint2 all = __ldg(reinterpret_cast<const uint2*>(from));
    words[0] = all.x, words[1] = all.y;
  } else {
    words[0] = __ldg(from);
  }
}

// Stores them, at a multiple of 4 * kWords.
template <uint32_t kWords>
__device__ inline void store_words(std::byte* out, const uint32_t (&words)[kWords]) {
  if constexpr (kWords == 4) {
    *reinterpret_cast<uint4*>(out) = uint4{words[0], words[1], words[2], words[3]};
  } else if constexpr (kWords == 2) {
    *reinterpret_cast<uint2*>(out) = uint2{words[0], words[1]};
  } else {
    *reinterpret_cast<uint32_t*>(out) = words[0];
  }
}

__device__ inline void zero_row_warp(std::byte* out, uint32_t row_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(out);
  const uint32_t head = min(row_bytes, static_cast<uint32_t>(-address % 16));
  const uint32_t body = (row_bytes - head) / 16;
  if (lane_id() < head) out[lane_id()] = std::byte{0};
  auto* wide = reinterpret_cast<uint4*>(out + head);
  for (uint32_t i = lane_id(); i < body; i += 32) wide[i] = uint4{0, 0, 0, 0};
  const uint32_t tail = head + body * 16;
  if (tail + lane_id() < row_bytes) out[tail + lane_id()] = std::byte{0};
}

__device__ inline void copy_row_warp(const uint32_t* words, std::byte* out, uint32_t row_bytes) {
  const auto both = reinterpret_cast<uintptr_t>(words) | reinterpret_cast<uintptr_t>(out) | row_bytes;
  if (both % 16 == 0) {
    const auto* from = reinterpret_cast<const uint4*>(words);
    auto* to = reinterpret_cast<uint4*>(out);
#pragma unroll 4
    for (uint32_t i = lane_id(); i < row_bytes / 16; i += 32) to[i] = from[i];
    return;
  }
  if (both % 8 == 0) {
    const auto* from = reinterpret_cast<const uint2*>(words);
    auto* to = reinterpret_cast<uint2*>(out);
#pragma unroll 4
    for (uint32_t i = lane_id(); i < row_bytes / 8; i += 32) to[i] = from[i];
    return;
  }
#pragma unroll 4
  for (uint32_t i = lane_id(); i < (row_bytes + 3) / 4; i += 32) store_word(out, row_bytes, i, words[i]);
}

// The sum of `value` over the lanes before this one; `total` over all.
__device__ inline uint32_t exclusive_sum_warp(uint32_t value, uint32_t& total) {
  uint32_t sum = value;
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane_id() >= step) sum += other;
  }
  total = __shfl_sync(kAllLanes, sum, 31);
  return sum - value;
}

__device__ inline uint32_t ballots_below(uint32_t ballot) { return __popc(ballot & ((1u << lane_id()) - 1)); }

__device__ inline uint32_t ones_of(uint32_t value) { return __popc(value); }
__device__ inline uint32_t ones_of(uint64_t value) { return __popcll(value); }

template <typename Chunk>
__device__ inline ChunkCode<Chunk> load_code(const ChunkCode<Chunk>* from) {
  ChunkCode<Chunk> code;
#pragma unroll
  for (uint32_t i = 0; i < sizeof(code) / 16; ++i) {
    reinterpret_cast<uint4*>(&code)[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
  }
  return code;
}

}  // namespace cohort::ibp
