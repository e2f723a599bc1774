// Decoding one row by one warp, for use inside any kernel. Header only.
//
//   const RowSpan span = locate(rows, row);                       // encoded_ref.h: reads the directory
//   decode_row_warp(profile, span, words, out);                   // all 32 lanes, converged
//
// `words` is the row as 32-bit words in any memory the GPU reads (span.begin itself, or a copy in shared memory).
#pragma once

#include "ibp/encoded_ref.h"
#include "ibp/profile_ref.h"
#include "ibp/sparse_header.h"

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
#pragma unroll 4
  for (uint32_t i = lane_id(); i < (row_bytes + 3) / 4; i += 32) store_word(out, row_bytes, i, words[i]);
}

// ---- invariant -----------------------------------------------------------------------------------------------------

// The sum of `value` over the lanes before this one; `total` over all.
__device__ inline uint32_t exclusive_sum_warp(uint32_t value, uint32_t& total) {
  uint32_t sum = value;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane_id() >= step) sum += other;
  }
  total = __shfl_sync(kAllLanes, sum, 31);
  return sum - value;
}

__device__ inline uint32_t ones_of(uint32_t value) { return __popc(value); }
__device__ inline uint32_t ones_of(uint64_t value) { return __popcll(value); }

template <typename Chunk>
__device__ bool decode_chunks_warp(const ProfileRef& profile, const ChunkCode<Chunk>* codes, const uint32_t* words,
                                   uint32_t bytes, std::byte* out) {
  constexpr uint32_t kBits = sizeof(Chunk) * 8;
  const uint32_t header_words = (profile.num_chunks + 31) / 32;
  if (bytes < header_words * 4) return false;
  const uint32_t end_bit = bytes * 8;
  uint32_t first_bit = header_words * 32;
  for (uint32_t first = 0; first < profile.num_chunks; first += 32) {
    const uint32_t i = first + lane_id();
    const bool active = i < profile.num_chunks;
    const bool match = active && ((words[first / 32] >> lane_id()) & 1);
    ChunkCode<Chunk> code;
    if (active) code = codes[i];
    const uint32_t width = !active ? 0 : match ? kBits - ones_of(code.mask) : kBits;
    uint32_t total = 0;
    const uint32_t bit = first_bit + exclusive_sum_warp(width, total);
    first_bit += total;
    if (first_bit > end_bit) return false;  // the same in every lane
    if (!active) continue;
    auto chunk = static_cast<Chunk>(width ? read_field_wide(words, bit, width) : 0);
    if (match) chunk = restore_bits(code, chunk);
    const uint32_t offset = i * sizeof(Chunk);
    store_word(out, profile.row_bytes, offset / 4, static_cast<uint32_t>(chunk));
    if (sizeof(Chunk) == 8 && offset + 4 < profile.row_bytes) {
      store_word(out, profile.row_bytes, offset / 4 + 1, static_cast<uint32_t>(uint64_t{chunk} >> 32));
    }
  }
  return true;
}

// ---- exponent ------------------------------------------------------------------------------------------------------

// An element from its field, when its exponent has a code.
__device__ inline uint32_t coded_element(const ProfileRef& profile, uint32_t field, uint32_t add, uint32_t sign_bit) {
  const uint32_t magnitude_bits = profile.mantissa_bits + profile.code_bits;
  return ((field & low_bits_32(magnitude_bits)) + add) | ((field >> magnitude_bits) << sign_bit);
}
__device__ inline bool is_escaped(const ProfileRef& profile, uint32_t field) {
  return ((field >> profile.mantissa_bits) & low_bits_32(profile.code_bits)) == 0;
}

// An element whose exponent is the `rank`-th escaped one; `ok` turns false when the row has no so many.
__device__ inline uint32_t escaped_element(const ProfileRef& profile, const uint32_t* words, uint32_t end_bit,
                                           uint32_t field, uint32_t rank, uint32_t sign_bit, bool& ok) {
  const uint32_t bit = profile.escape_offset_bytes() * 8 + rank * profile.exponent_bits;
  if (bit + profile.exponent_bits > end_bit) {
    ok = false;
    return 0;
  }
  const uint32_t exponent = read_field(words, bit, profile.exponent_bits);
  const uint32_t sign = field >> (profile.mantissa_bits + profile.code_bits);
  return (field & low_bits_32(profile.mantissa_bits)) | (exponent << profile.mantissa_bits) | (sign << sign_bit);
}

__device__ inline uint32_t ballots_below(uint32_t ballot) { return __popc(ballot & ((1u << lane_id()) - 1)); }

__device__ inline bool decode_singles_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                           std::byte* out) {
  const uint32_t field_bits = profile.coded_element_bits();
  const bool aligned = reinterpret_cast<uintptr_t>(out) % 4 == 0;
  uint32_t num_escapes = 0;
  bool ok = true;
#pragma unroll 4
  for (uint32_t first = 0; first < profile.num_columns; first += 32) {
    const uint32_t column = first + lane_id();
    const bool active = column < profile.num_columns;
    const uint32_t field = active ? read_field(words, column * field_bits, field_bits) : 0;
    const bool escaped = active && is_escaped(profile, field);
    uint32_t element = active ? coded_element(profile, field, __ldg(profile.add + column), 31) : 0;
    const uint32_t ballot = __ballot_sync(kAllLanes, escaped);
    if (ballot) {
      const uint32_t rank = num_escapes + ballots_below(ballot);
      if (escaped) element = escaped_element(profile, words, bytes * 8, field, rank, 31, ok);
      num_escapes += __popc(ballot);
    }
    if (active && aligned) reinterpret_cast<uint32_t*>(out)[column] = element;
    if (active && !aligned) store_bytes(out + column * 4, element, 4);
  }
  return __all_sync(kAllLanes, ok);
}

__device__ inline bool decode_pairs_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                         std::byte* out) {
  const uint32_t field_bits = profile.coded_element_bits();
  const uint32_t num_pairs = (profile.num_columns + 1) / 2;
  uint32_t num_escapes = 0;
  bool ok = true;
#pragma unroll 4
  for (uint32_t first = 0; first < num_pairs; first += 32) {
    const uint32_t pair = first + lane_id();
    const bool has_low = pair < num_pairs;
    const bool has_high = pair * 2 + 1 < profile.num_columns;
    const uint32_t both_bits = has_high ? 2 * field_bits : field_bits;
    const uint32_t both = has_low ? read_field(words, pair * 2 * field_bits, both_bits) : 0;
    const uint32_t low_field = both & low_bits_32(field_bits), high_field = both >> field_bits;
    const uint32_t add = has_low ? __ldg(profile.add + pair) : 0;
    uint32_t low = coded_element(profile, low_field, add & 0xffff, 15) & 0xffff;
    uint32_t high = coded_element(profile, high_field, add >> 16, 15) & 0xffff;
    const bool low_escaped = has_low && is_escaped(profile, low_field);
    const bool high_escaped = has_high && is_escaped(profile, high_field);
    if (__any_sync(kAllLanes, low_escaped || high_escaped)) {
      const uint32_t lows = __ballot_sync(kAllLanes, low_escaped), highs = __ballot_sync(kAllLanes, high_escaped);
      const uint32_t rank = num_escapes + ballots_below(lows) + ballots_below(highs);
      if (low_escaped) low = escaped_element(profile, words, bytes * 8, low_field, rank, 15, ok);
      if (high_escaped) {
        high = escaped_element(profile, words, bytes * 8, high_field, rank + (low_escaped ? 1 : 0), 15, ok);
      }
      num_escapes += __popc(lows) + __popc(highs);
    }
    if (has_low) store_word(out, profile.row_bytes, pair, low | (high << 16));
  }
  return __all_sync(kAllLanes, ok);
}

// ---- sparse --------------------------------------------------------------------------------------------------------

// Element `rank` of the row's set columns.
__device__ inline uint64_t sparse_value(const ProfileRef& profile, const SparseRow& row, const uint32_t* words,
                                        uint64_t constant, uint32_t rank) {
  const uint32_t width = value_width(profile, row.kind);
  if (width == 0) return constant;
  const uint64_t field = read_field_wide(words, row.value_bit + rank * width, width);
  return row.kind == ValueKind::kNarrow ? field | (profile.value_prefix << width) : field;
}

__device__ inline bool scatter_list_warp(const ProfileRef& profile, const SparseRow& row, const uint32_t* words,
                                         uint64_t constant, std::byte* out) {
  bool ok = true;
  for (uint32_t i = lane_id(); i < row.num_nonzeros; i += 32) {
    const uint32_t column = read_field(words, row.index_bit + i * profile.index_bits, profile.index_bits);
    ok = ok && column < profile.num_columns;
    if (!ok) continue;
    store_bytes(out + column * profile.element_bytes, sparse_value(profile, row, words, constant, i),
                profile.element_bytes);
  }
  return __all_sync(kAllLanes, ok);
}

// Lane l takes groups l, l + 32, ...; their words and values are found by prefix sums over the warp.
__device__ inline bool scatter_bitmap_warp(const ProfileRef& profile, const SparseRow& row, const uint32_t* words,
                                           uint64_t constant, std::byte* out) {
  uint32_t groups_before = 0, ones_before = 0;
  bool ok = true;
  for (uint32_t first = 0; first < row.num_groups; first += 32) {
    const uint32_t group = first + lane_id();
    const bool set = group < row.num_groups && read_field(words, row.index_bit + group, 1);
    const uint32_t sets = __ballot_sync(kAllLanes, set);
    uint32_t word = set ? read_field(words, row.group_bit + (groups_before + ballots_below(sets)) * 32, 32) : 0;
    uint32_t total = 0;
    uint32_t rank = ones_before + exclusive_sum_warp(__popc(word), total);
    groups_before += __popc(sets);
    ones_before += total;
    if (ones_before > row.num_nonzeros) return false;  // the same in every lane
    for (; word; word &= word - 1, ++rank) {
      const uint32_t column = group * 32 + __ffs(word) - 1;
      ok = ok && column < profile.num_columns;
      if (!ok) break;
      store_bytes(out + column * profile.element_bytes, sparse_value(profile, row, words, constant, rank),
                  profile.element_bytes);
    }
  }
  return __all_sync(kAllLanes, ok && ones_before == row.num_nonzeros);
}

__device__ inline bool decode_sparse_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                          std::byte* out) {
  SparseRow row;
  if (bytes < 4 || !read_sparse_header(profile, words[0], row) || row.group_bit > bytes * 8) return false;
  zero_row_warp(out, profile.row_bytes);
  uint32_t groups = 0;
  for (uint32_t first = 0; row.bitmap && first < row.num_groups; first += 32) {
    const uint32_t group = first + lane_id();
    const bool set = group < row.num_groups && read_field(words, row.index_bit + group, 1);
    groups += __popc(__ballot_sync(kAllLanes, set));
  }
  place_values(profile, row, groups);
  if (row.end_bit > bytes * 8) return false;
  uint64_t constant = profile.constant;
  if (row.kind == ValueKind::kRowConstant) {
    constant = read_field_wide(words, kSparseHeaderBits, profile.element_bytes * 8);
  }
  __syncwarp();  // the zeros are written before the elements
  return row.bitmap ? scatter_bitmap_warp(profile, row, words, constant, out)
                    : scatter_list_warp(profile, row, words, constant, out);
}

// ---- any row -------------------------------------------------------------------------------------------------------

// Decodes the row into out[0 .. row_bytes-1]. False, in every lane, when it is no valid row; `out` then holds anything.
__device__ inline bool decode_row_warp(const ProfileRef& profile, const RowSpan& span, const uint32_t* words,
                                       std::byte* out) {
  if (span.raw) {
    if (span.bytes < profile.row_bytes) return false;
    copy_row_warp(words, out, profile.row_bytes);
    return true;
  }
  switch (profile.codec) {
    case Codec::kExponent:
      if (span.bytes < profile.escape_offset_bytes()) return false;
      return profile.element_bytes == 4 ? decode_singles_warp(profile, words, span.bytes, out)
                                        : decode_pairs_warp(profile, words, span.bytes, out);
    case Codec::kInvariant:
      return profile.chunk_bytes == 4 ? decode_chunks_warp(profile, profile.codes4, words, span.bytes, out)
                                      : decode_chunks_warp(profile, profile.codes8, words, span.bytes, out);
    case Codec::kSparse:
      return decode_sparse_warp(profile, words, span.bytes, out);
    default:
      return false;
  }
}

}  // namespace cohort::ibp
