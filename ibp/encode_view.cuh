// Encoding one row by one warp into shared memory: the same bits as the host bodies. Internal to ibp/.
#pragma once

#include "ibp/device_view.cuh"

namespace cohort::ibp {

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

// Up to 8 bytes of a row of any alignment.
__device__ inline uint64_t load_bytes(const std::byte* from, uint32_t count) {
  if (reinterpret_cast<uintptr_t>(from) % 4 == 0) {
    const auto* words = reinterpret_cast<const uint32_t*>(from);
    if (count == 4) return words[0];
    if (count == 8) return words[0] | (uint64_t{words[1]} << 32);
  }
  uint64_t value = 0;
  for (uint32_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(from[i]) << (8 * i);
  return value;
}

// A sink that only counts, for the first pass over a row; `words` null.
struct Sink {
  uint32_t* words;
  __device__ void put(uint32_t bit, uint32_t count, uint64_t value) const {
    if (words) or_field_wide(words, bit, count, value);
  }
};

template <typename Chunk>
__device__ uint32_t encode_chunks_warp(const ProfileRef& profile, const ChunkCode<Chunk>* codes, const std::byte* row,
                                       Sink sink) {
  constexpr uint32_t kBits = sizeof(Chunk) * 8;
  uint32_t bit = (profile.num_chunks + 31) / 32 * 32;
  for (uint32_t first = 0; first < profile.num_chunks; first += 32) {
    const uint32_t i = first + lane_id();
    const bool active = i < profile.num_chunks;
    Chunk chunk = 0;
    ChunkCode<Chunk> code;
    if (active) {
      const uint32_t offset = i * sizeof(Chunk);
      chunk = static_cast<Chunk>(load_bytes(row + offset, min(uint32_t{sizeof(Chunk)}, profile.row_bytes - offset)));
      code = load_code(codes + i);
    }
    const bool match = active && (chunk & code.mask) == code.value;
    const uint32_t width = !active ? 0 : match ? kBits - ones_of(code.mask) : kBits;
    uint32_t total = 0;
    const uint32_t at = bit + exclusive_sum_warp(width, total);
    bit += total;
    const uint32_t participation = __ballot_sync(kAllLanes, match);
    if (lane_id() == 0) sink.put(first, 32, participation);
    if (width) sink.put(at, width, match ? drop_bits(code, chunk) : chunk);
  }
  return bit;
}

__device__ inline uint32_t encode_exponent_warp(const ProfileRef& profile, const std::byte* row, Sink sink) {
  const uint32_t field_bits = profile.coded_element_bits(), element_bits = profile.element_bytes * 8;
  const uint32_t exponent_mask = low_bits_32(profile.exponent_bits) << profile.mantissa_bits;
  const uint32_t limit = (1u << profile.code_bits) - 1;
  uint32_t escape_bit = profile.escape_offset_bytes() * 8;
  for (uint32_t first = 0; first < profile.num_columns; first += 32) {
    const uint32_t column = first + lane_id();
    const bool active = column < profile.num_columns;
    uint32_t bits = 0, add = 0;
    if (active) {
      bits = static_cast<uint32_t>(load_element(row, profile.element_bytes, column));
      add = profile.element_bytes == 4 ? profile.add[column] : (profile.add[column / 2] >> (column % 2 * 16)) & 0xffff;
    }
    const uint32_t exponent = bits & exponent_mask;
    const uint32_t above = ((exponent - add) & low_bits_32(element_bits)) >> profile.mantissa_bits;
    const bool escaped = active && above - 1 >= limit;
    const uint32_t field = (bits & low_bits_32(profile.mantissa_bits)) |
                           ((escaped ? 0 : above) << profile.mantissa_bits) |
                           ((bits >> (element_bits - 1)) << (profile.mantissa_bits + profile.code_bits));
    if (active) sink.put(column * field_bits, field_bits, field);
    const uint32_t ballot = __ballot_sync(kAllLanes, escaped);
    if (escaped) {
      sink.put(escape_bit + ballots_below(ballot) * profile.exponent_bits, profile.exponent_bits,
               exponent >> profile.mantissa_bits);
    }
    escape_bit += __popc(ballot) * profile.exponent_bits;
  }
  return escape_bit;
}

// What decides the form of a sparse row.
struct SparseCounts {
  uint32_t num_nonzeros = 0;
  uint32_t num_groups = 0;
  ValueKind kind = ValueKind::kProfileConstant;
  uint64_t first = 0;
};

__device__ inline SparseCounts count_sparse_warp(const ProfileRef& profile, const std::byte* row) {
  SparseCounts counts;
  bool constant = true, equal = true, narrow = profile.value_bits < profile.element_bytes * 8;
  for (uint32_t first = 0; first < profile.num_columns; first += 32) {
    const uint32_t column = first + lane_id();
    const uint64_t value = column < profile.num_columns ? load_element(row, profile.element_bytes, column) : 0;
    const uint32_t set = __ballot_sync(kAllLanes, value != 0);
    if (set == 0) continue;
    if (counts.num_nonzeros == 0) counts.first = __shfl_sync(kAllLanes, value, __ffs(set) - 1);
    counts.num_nonzeros += __popc(set);
    ++counts.num_groups;
    if (value == 0) continue;
    constant = constant && value == profile.constant;
    equal = equal && value == counts.first;
    narrow = narrow && (value >> profile.value_bits) == profile.value_prefix;
  }
  counts.kind =
      choose_value_kind(__all_sync(kAllLanes, constant), __all_sync(kAllLanes, equal), __all_sync(kAllLanes, narrow));
  return counts;
}

__device__ inline void write_sparse_warp(const ProfileRef& profile, const std::byte* row, const SparseCounts& counts,
                                         bool bitmap, Sink sink) {
  SparseRow layout;
  const uint32_t header = make_sparse_header(counts.num_nonzeros, counts.kind, bitmap);
  read_sparse_header(profile, header, layout);
  place_values(profile, layout, counts.num_groups);
  if (lane_id() == 0) {
    sink.put(0, 32, header);
    if (counts.kind == ValueKind::kRowConstant) sink.put(32, profile.element_bytes * 8, counts.first);
  }
  const uint32_t width = value_width(profile, counts.kind);
  uint32_t ones = 0, groups = 0;
  for (uint32_t first = 0; first < profile.num_columns; first += 32) {
    const uint32_t column = first + lane_id();
    const uint64_t value = column < profile.num_columns ? load_element(row, profile.element_bytes, column) : 0;
    const uint32_t set = __ballot_sync(kAllLanes, value != 0);
    if (set == 0) continue;
    const uint32_t rank = ones + ballots_below(set);
    if (bitmap && lane_id() == 0) {
      sink.put(layout.index_bit + first / 32, 1, 1);
      sink.put(layout.group_bit + groups * 32, 32, set);
    }
    if (value != 0 && !bitmap) sink.put(layout.index_bit + rank * profile.index_bits, profile.index_bits, column);
    if (value != 0 && width) {
      const uint64_t field = width == 64 ? value : value & ((uint64_t{1} << width) - 1);
      sink.put(layout.value_bit + rank * width, width, field);
    }
    ones += __popc(set);
    ++groups;
  }
}

// Encodes a row into `words` (zeroed here, room for row_bytes); its bytes, or 0 when it must stay raw.
__device__ inline uint32_t encode_row_warp(const ProfileRef& profile, const std::byte* row, uint32_t* words) {
  SparseCounts counts;
  bool bitmap = false;
  const auto run = [&](Sink sink) -> uint32_t {
    if (profile.codec == Codec::kExponent) return encode_exponent_warp(profile, row, sink);
    if (profile.codec == Codec::kSparse) {
      if (sink.words) write_sparse_warp(profile, row, counts, bitmap, sink);
      return sparse_bits(profile, counts.kind, counts.num_nonzeros, bitmap, counts.num_groups);
    }
    return profile.chunk_bytes == 4 ? encode_chunks_warp(profile, profile.codes4, row, sink)
                                    : encode_chunks_warp(profile, profile.codes8, row, sink);
  };
  if (profile.codec == Codec::kRaw) return 0;
  if (profile.codec == Codec::kSparse) {
    counts = count_sparse_warp(profile, row);
    bitmap = bitmap_is_shorter(profile, counts.num_nonzeros, counts.num_groups);
  }
  const uint32_t bytes = (run(Sink{nullptr}) + 31) / 32 * 4;
  if (bytes >= profile.row_bytes) return 0;
  for (uint32_t i = lane_id(); i < bytes / 4; i += 32) words[i] = 0;
  __syncwarp();
  run(Sink{words});
  __syncwarp();
  return bytes;
}

}  // namespace cohort::ibp
