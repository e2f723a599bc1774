// A profile as codecs read it: scalars and tables, in host or GPU memory. Built by ProfileTables (row_codec.h).
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace cohort::ibp {

enum class Dtype : uint8_t { kUint8 = 1, kFloat16 = 2, kBfloat16 = 3, kFloat32 = 4, kBits32 = 5, kBits64 = 6 };
enum class Codec : uint8_t {
  kRaw = 0,
  kInvariant = 1,
  kExponent = 2,
  kSparse = 3,
  kPlanes = 4,
  kLayers = 5,
  kDictionary = 6
};

// Whether a row begins with a field of mantissa, code and sign for each column.
COHORT_HOST_DEVICE constexpr bool has_codes(Codec codec) {
  return codec == Codec::kExponent || codec == Codec::kPlanes || codec == Codec::kLayers;
}

// Codec layers (FORMAT.md 4.6): the columns whose later layers lie side by side, and the bits of their codes.
inline constexpr uint32_t kLayerColumns = 256;
inline constexpr uint32_t kFirstBits = 2, kSecondBits = 2, kThirdBits = 3;
inline constexpr uint32_t kSecondSteps = (1u << kSecondBits) - 1, kThirdSteps = (1u << kThirdBits) - 1;

// How to drop the invariant bits of one chunk and put them back (FORMAT.md 4.2). The moves are those of a
// parallel-suffix compress: step i shifts the bits of move[i] right by 2^i.
template <typename Chunk>
struct alignas(sizeof(Chunk) == 4 ? 32 : 64) ChunkCode {
  static constexpr int kSteps = sizeof(Chunk) == 4 ? 5 : 6;
  Chunk mask = 0;   // 1 = invariant bit
  Chunk value = 0;  // the invariant bits' values; 0 outside the mask
  Chunk move[kSteps] = {};
};

// The kept bits of `chunk`, moved together at the low end.
template <typename Chunk>
COHORT_HOST_DEVICE inline Chunk drop_bits(const ChunkCode<Chunk>& code, Chunk chunk) {
  chunk &= static_cast<Chunk>(~code.mask);
  for (int i = 0; i < ChunkCode<Chunk>::kSteps; ++i) {
    const Chunk moving = chunk & code.move[i];
    chunk = (chunk ^ moving) | (moving >> (1 << i));
  }
  return chunk;
}

// The chunk whose kept bits are `kept` (no bits above its width) and whose other bits are the invariant ones.
template <typename Chunk>
COHORT_HOST_DEVICE inline Chunk restore_bits(const ChunkCode<Chunk>& code, Chunk kept) {
  for (int i = ChunkCode<Chunk>::kSteps - 1; i >= 0; --i) {
    const Chunk shifted = kept << (1 << i);
    kept = (kept & static_cast<Chunk>(~code.move[i])) | (shifted & code.move[i]);
  }
  return (kept & static_cast<Chunk>(~code.mask)) | code.value;
}

struct ProfileRef {
  Codec codec = Codec::kRaw;
  Dtype dtype = Dtype::kFloat32;
  uint32_t element_bytes = 0;
  uint32_t num_columns = 0;
  uint32_t row_bytes = 0;
  uint32_t most_coded_bytes = 0;  // longer rows stay raw
  // invariant
  uint32_t chunk_bytes = 0;
  uint32_t num_chunks = 0;
  const ChunkCode<uint32_t>* codes4 = nullptr;  // [num_chunks] when chunk_bytes == 4
  const ChunkCode<uint64_t>* codes8 = nullptr;  // [num_chunks] when chunk_bytes == 8
  const uint8_t* widths = nullptr;              // uint8 [num_chunks] kept bits of a chunk; host only
  // exponent, planes, layers
  uint32_t code_bits = 0;
  uint32_t mantissa_bits = 0;  // of a field
  uint32_t exponent_bits = 0;
  // uint32 [ceil(row_bytes / 16) * 4], 16-byte aligned: (base - 1) << the element's mantissa bits, one or two columns a
  // word
  const uint32_t* add = nullptr;
  // layers: the steps of the second layer's codes 1 to 3 and the third's 1 to 7, code c in byte c
  uint32_t second = 0;
  uint64_t third = 0;
  const uint8_t* codes_of_steps = nullptr;  // uint8 [256]; host only: CodeOfStep
  // dictionary
  const uint64_t* elements = nullptr;  // uint64 [2^code_bits], ascending
  // planes
  uint32_t rest_bits = 0;   // the low mantissa bits, which are in plane B
  uint32_t slot_bytes = 0;  // of plane A of a row
  // sparse
  uint32_t index_bits = 0;
  uint32_t value_bits = 0;
  uint64_t constant = 0;
  uint64_t value_prefix = 0;

  COHORT_HOST_DEVICE uint32_t coded_element_bits() const { return 1 + code_bits + mantissa_bits; }
  // Exponent, planes, layers: where the bits behind the columns' fields start.
  COHORT_HOST_DEVICE uint32_t escape_offset_bytes() const { return (num_columns * coded_element_bits() + 7) / 8; }
  // Planes: bytes of plane B of a row, in whole words of 16 bytes.
  COHORT_HOST_DEVICE uint32_t plane_b_bytes() const { return (num_columns * rest_bits + 127) / 128 * 16; }
  // Planes: what of a normal number stands for the mantissa bits that plane A lacks: the middle of their range.
  COHORT_HOST_DEVICE uint32_t middle() const { return (1u << rest_bits) >> 1; }
};

// Codec dictionary: the first code whose element is not less; the last code if there is none.
inline constexpr uint32_t kMostDictionaryBits = 8;
COHORT_HOST_DEVICE inline uint32_t code_of(const ProfileRef& profile, uint64_t element) {
  uint32_t code = 0;
  for (uint32_t step = 1u << profile.code_bits >> 1; step; step >>= 1) {
    if (profile.elements[code + step - 1] < element) code += step;
  }
  return code;
}
COHORT_HOST_DEVICE inline uint32_t dictionary_row_bytes(const ProfileRef& profile) {
  return (profile.num_columns * profile.code_bits + 31) / 32 * 4;
}

// The bits of a float32 as those of a bfloat16: to the nearest, of two as near to the even one; every NaN becomes
// 0x7fff. For numbers that are 0 or at least 2^-133, as all numbers of coded rows are.
COHORT_HOST_DEVICE inline uint16_t bfloat16_of(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// The same for any float32: only 0 becomes 0.
COHORT_HOST_DEVICE inline uint16_t bfloat16_of_any(uint32_t bits) {
  const uint16_t rounded = bfloat16_of(bits);
  const bool vanished = (rounded & 0x7fff) == 0 && (bits & 0x7fffffffu) != 0;
  return vanished ? static_cast<uint16_t>(rounded | 1) : rounded;
}

}  // namespace cohort::ibp
