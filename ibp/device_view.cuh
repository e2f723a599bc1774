// Decoding one row by one warp, for use inside any kernel. Header only.
//
//   const RowSpan span = locate(rows, row);                       // encoded_ref.h: reads the directory
//   decode_row_warp(profile, span, words, out);                   // all 32 lanes, converged
//
// `words` is the row as 32-bit words in any memory the GPU reads (span.begin itself, or a copy in shared memory).
#pragma once

#include "ibp/device_bits.cuh"
#include "ibp/encoded_ref.h"
#include "ibp/profile_ref.h"
#include "ibp/sparse_header.h"

namespace cohort::ibp {

// ---- invariant -----------------------------------------------------------------------------------------------------

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

// One lane's part of a group of 32 chunks.
template <typename Chunk>
struct ChunkPart {
  ChunkCode<Chunk> code;
  uint32_t index = 0, width = 0, bit = 0;
  bool active = false, match = false;
};

template <typename Chunk>
__device__ inline ChunkPart<Chunk> open_chunk(const ProfileRef& profile, const ChunkCode<Chunk>* codes,
                                              const uint32_t* words, uint32_t first) {
  ChunkPart<Chunk> part;
  part.index = first + lane_id();
  part.active = part.index < profile.num_chunks;
  if (!part.active) return part;
  part.code = load_code(codes + part.index);
  part.match = ((words[first / 32] >> lane_id()) & 1) != 0;
  part.width = uint32_t{sizeof(Chunk)} * 8 - (part.match ? ones_of(part.code.mask) : 0);
  return part;
}

template <typename Chunk>
__device__ inline void close_chunk(const ProfileRef& profile, const uint32_t* words, const ChunkPart<Chunk>& part,
                                   std::byte* out) {
  if (!part.active) return;
  auto chunk = static_cast<Chunk>(part.width ? read_field_wide(words, part.bit, part.width) : 0);
  if (part.match) chunk = restore_bits(part.code, chunk);
  const uint32_t offset = part.index * uint32_t{sizeof(Chunk)};
  store_word(out, profile.row_bytes, offset / 4, static_cast<uint32_t>(chunk));
  if (sizeof(Chunk) == 8 && offset + 4 < profile.row_bytes) {
    store_word(out, profile.row_bytes, offset / 4 + 1, static_cast<uint32_t>(uint64_t{chunk} >> 32));
  }
}

// Two groups of 32 chunks a turn: their widths share one prefix sum (a group is at most 2048 bits long).
template <typename Chunk>
__device__ bool decode_chunks_warp(const ProfileRef& profile, const ChunkCode<Chunk>* codes, const uint32_t* words,
                                   uint32_t bytes, std::byte* out) {
  const uint32_t header_words = (profile.num_chunks + 31) / 32;
  if (bytes < header_words * 4) return false;
  uint32_t first_bit = header_words * 32;
  for (uint32_t first = 0; first < profile.num_chunks; first += 64) {
    ChunkPart<Chunk> low = open_chunk(profile, codes, words, first);
    ChunkPart<Chunk> high = open_chunk(profile, codes, words, first + 32);
    uint32_t total = 0;
    const uint32_t before = exclusive_sum_warp(low.width | (high.width << 16), total);
    low.bit = first_bit + (before & 0xffff);
    high.bit = first_bit + (total & 0xffff) + (before >> 16);
    first_bit += (total & 0xffff) + (total >> 16);
    if (first_bit > bytes * 8) return false;  // the same in every lane
    close_chunk(profile, words, low, out);
    close_chunk(profile, words, high, out);
  }
  return true;
}

// ---- exponent ------------------------------------------------------------------------------------------------------

// The masks and shifts of a row's fields. A lane takes every 32nd field, so that its bit within a word stays the same
// from group to group, and its word advances by the width of a field.
struct FieldReader {
  __device__ FieldReader(const ProfileRef& profile, uint32_t stride_bits)
      : stride(stride_bits),
        low(lane_id() * stride_bits / 32),
        high((lane_id() * stride_bits + stride_bits - 1) / 32),
        shift(lane_id() * stride_bits % 32),
        width(profile.coded_element_bits()),
        magnitude_mask(low_bits_32(profile.mantissa_bits + profile.code_bits)),
        code_mask(low_bits_32(profile.code_bits) << profile.mantissa_bits) {}
  uint32_t stride, low, high, shift, width;
  uint32_t magnitude_mask, code_mask;

  // The field of this lane in `group`, with other bits above it.
  __device__ uint32_t read(const uint32_t* words, uint32_t group) const {
    return __funnelshift_r(words[group * stride + low], words[group * stride + high], shift);
  }
  // An element whose exponent has a code.
  __device__ uint32_t element(uint32_t field, uint32_t add, uint32_t sign_bit) const {
    return ((field & magnitude_mask) + add) | (((field >> (width - 1)) & 1) << sign_bit);
  }
  __device__ bool escaped(uint32_t field) const { return (field & code_mask) == 0; }
};

// An element whose exponent is the `rank`-th escaped one; `ok` turns false when the row has not so many.
__device__ inline uint32_t escaped_element(const ProfileRef& profile, const FieldReader& reader, const uint32_t* words,
                                           uint32_t end_bit, uint32_t field, uint32_t rank, uint32_t sign_bit,
                                           bool& ok) {
  const uint32_t bit = profile.escape_offset_bytes() * 8 + rank * profile.exponent_bits;
  if (bit + profile.exponent_bits > end_bit) {
    ok = false;
    return 0;
  }
  const uint32_t exponent = profile.exponent_bits == 8 ? reinterpret_cast<const uint8_t*>(words)[bit / 8]
                                                       : read_field(words, bit, profile.exponent_bits);
  const uint32_t sign = (field >> (reader.width - 1)) & 1;
  return (field & low_bits_32(profile.mantissa_bits)) | (exponent << profile.mantissa_bits) | (sign << sign_bit);
}

// Four groups of 32 columns a turn: their loads are in flight together.
__device__ inline bool decode_singles_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                           std::byte* out) {
  constexpr uint32_t kGroups = 4;
  const FieldReader reader(profile, profile.coded_element_bits());
  const bool aligned = reinterpret_cast<uintptr_t>(out) % 4 == 0;
  uint32_t num_escapes = 0;
  bool ok = true;
  for (uint32_t first = 0; first < profile.num_columns; first += 32 * kGroups) {
    const uint32_t mine = first + lane_id();
    uint32_t field[kGroups], element[kGroups];
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      const bool active = mine + 32 * g < profile.num_columns;
      field[g] = active ? reader.read(words, first / 32 + g) : ~0u;
      element[g] = active ? __ldg(profile.add + mine + 32 * g) : 0;
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      element[g] = reader.element(field[g], element[g], 31);
      const uint32_t ballot = __ballot_sync(kAllLanes, reader.escaped(field[g]));
      if (ballot == 0) continue;
      if (reader.escaped(field[g])) {
        element[g] =
            escaped_element(profile, reader, words, bytes * 8, field[g], num_escapes + ballots_below(ballot), 31, ok);
      }
      num_escapes += __popc(ballot);
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      const uint32_t column = mine + 32 * g;
      if (column >= profile.num_columns) continue;
      if (aligned) reinterpret_cast<uint32_t*>(out)[column] = element[g];
      if (!aligned) store_bytes(out + column * 4, element[g], 4);
    }
  }
  return __all_sync(kAllLanes, ok);
}

// Two 16-bit columns, from their fields; escaped exponents are filled in.
__device__ inline uint32_t decode_pair(const ProfileRef& profile, const FieldReader& reader, const uint32_t* words,
                                       uint32_t end_bit, uint32_t low_field, uint32_t high_field, uint32_t add,
                                       uint32_t& num_escapes, bool& ok) {
  uint32_t low = reader.element(low_field, add & 0xffff, 15) & 0xffff;
  uint32_t high = reader.element(high_field, add >> 16, 15) & 0xffff;
  const bool low_escaped = reader.escaped(low_field), high_escaped = reader.escaped(high_field);
  if (__any_sync(kAllLanes, low_escaped || high_escaped)) {
    const uint32_t lows = __ballot_sync(kAllLanes, low_escaped), highs = __ballot_sync(kAllLanes, high_escaped);
    const uint32_t rank = num_escapes + ballots_below(lows) + ballots_below(highs);
    if (low_escaped) low = escaped_element(profile, reader, words, end_bit, low_field, rank, 15, ok);
    if (high_escaped) {
      high = escaped_element(profile, reader, words, end_bit, high_field, rank + (low_escaped ? 1 : 0), 15, ok);
    }
    num_escapes += __popc(lows) + __popc(highs);
  }
  return low | (high << 16);
}

__device__ inline bool decode_pairs_warp(const ProfileRef& profile, const uint32_t* words, uint32_t bytes,
                                         std::byte* out) {
  constexpr uint32_t kGroups = 4;
  const uint32_t width = profile.coded_element_bits();
  const FieldReader reader(profile, 2 * width);
  const uint32_t num_whole = profile.num_columns / 2, num_pairs = (profile.num_columns + 1) / 2;
  uint32_t num_escapes = 0;
  bool ok = true;
  for (uint32_t first = 0; first < num_pairs; first += 32 * kGroups) {
    const uint32_t mine = first + lane_id();
    uint32_t low[kGroups], high[kGroups], pairs[kGroups];
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      const uint32_t pair = mine + 32 * g;
      low[g] = pair < num_whole ? reader.read(words, first / 32 + g) : ~0u;
      high[g] = pair < num_whole ? low[g] >> width : ~0u;
      if (pair >= num_whole && pair < num_pairs) low[g] = read_field(words, pair * 2 * width, width);
      pairs[g] = pair < num_pairs ? __ldg(profile.add + pair) : 0;
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      pairs[g] = decode_pair(profile, reader, words, bytes * 8, low[g], high[g], pairs[g], num_escapes, ok);
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      const uint32_t pair = mine + 32 * g;
      if (pair < num_pairs) store_word(out, profile.row_bytes, pair, pairs[g]);
    }
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

// The decoder a profile needs. A kernel that knows it at compile time is smaller and faster.
enum class Form : uint8_t { kRaw, kSingles, kPairs, kChunks4, kChunks8, kSparse };

COHORT_HOST_DEVICE inline Form form_of(const ProfileRef& profile) {
  switch (profile.codec) {
    case Codec::kExponent:
      return profile.element_bytes == 4 ? Form::kSingles : Form::kPairs;
    case Codec::kInvariant:
      return profile.chunk_bytes == 4 ? Form::kChunks4 : Form::kChunks8;
    case Codec::kSparse:
      return Form::kSparse;
    default:
      return Form::kRaw;
  }
}

// Decodes the row into out[0 .. row_bytes-1]. False, in every lane, when it is no valid row; `out` then holds anything.
template <Form form>
__device__ inline bool decode_row_warp(const ProfileRef& profile, const RowSpan& span, const uint32_t* words,
                                       std::byte* out) {
  if (span.raw) {
    if (span.bytes < profile.row_bytes) return false;
    copy_row_warp(words, out, profile.row_bytes);
    return true;
  }
  if constexpr (form == Form::kSingles || form == Form::kPairs) {
    if (span.bytes < profile.escape_offset_bytes()) return false;
    if constexpr (form == Form::kSingles) return decode_singles_warp(profile, words, span.bytes, out);
    return decode_pairs_warp(profile, words, span.bytes, out);
  }
  if constexpr (form == Form::kChunks4) return decode_chunks_warp(profile, profile.codes4, words, span.bytes, out);
  if constexpr (form == Form::kChunks8) return decode_chunks_warp(profile, profile.codes8, words, span.bytes, out);
  if constexpr (form == Form::kSparse) return decode_sparse_warp(profile, words, span.bytes, out);
  return false;
}

// The same for any profile.
__device__ inline bool decode_row_warp(const ProfileRef& profile, const RowSpan& span, const uint32_t* words,
                                       std::byte* out) {
  switch (form_of(profile)) {
    case Form::kRaw:
      return decode_row_warp<Form::kRaw>(profile, span, words, out);
    case Form::kSingles:
      return decode_row_warp<Form::kSingles>(profile, span, words, out);
    case Form::kPairs:
      return decode_row_warp<Form::kPairs>(profile, span, words, out);
    case Form::kChunks4:
      return decode_row_warp<Form::kChunks4>(profile, span, words, out);
    case Form::kChunks8:
      return decode_row_warp<Form::kChunks8>(profile, span, words, out);
    case Form::kSparse:
      return decode_row_warp<Form::kSparse>(profile, span, words, out);
  }
  return false;
}

}  // namespace cohort::ibp
