// Encoding one row by one warp into shared memory: the same bits as the host bodies. Internal to ibp/.
#pragma once

#include <type_traits>

#include "ibp/device_bits.cuh"
#include "ibp/device_dictionary.cuh"
#include "ibp/exponent_fields.h"
#include "ibp/forms.h"
#include "ibp/sparse_header.h"

namespace cohort::ibp {

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

// A row of `bytes` (any alignment) to `out`, then zeros up to `end`, a multiple of 4. `out` is one of 4.
__device__ inline void write_words(std::byte* out, uint32_t end, const std::byte* from, uint32_t bytes) {
  auto* words = reinterpret_cast<uint32_t*>(out);
  for (uint32_t i = lane_id(); i < end / 4; i += 32) {
    words[i] = i * 4 < bytes ? static_cast<uint32_t>(load_bytes(from + i * 4, min(4u, bytes - i * 4))) : 0;
  }
}

// A row that is being encoded in shared memory. Bits beyond its room are left out: the row then stays raw.
struct Sink {
  uint32_t* words;  // zeros before
  uint32_t room_bits;
  __device__ void put(uint32_t bit, uint32_t count, uint64_t value) const {
    if (bit + count <= room_bits) or_field_wide(words, bit, count, value);
  }
};

// Words that a row may take while it is encoded; a multiple of 4.
COHORT_HOST_DEVICE inline uint32_t room_words(uint32_t row_bytes) { return (row_bytes + 15) / 16 * 4; }

__device__ inline void zero_words_warp(uint32_t* words, uint32_t first, uint32_t end) {
  for (uint32_t i = first + lane_id(); i < end; i += 32) words[i] = 0;
  __syncwarp();
}

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

// Codec exponent: a lane codes one column, or two of 16 bits (kPairs) as one field of twice the width, so that the
// fields of all lanes come to `width_` whole words. Lane i makes word i of them.
// kLayers: what follows the fields is that of codec layers.
template <bool kPairs, bool kLayers = false>
class ExponentEncoder {
 public:
  __device__ explicit ExponentEncoder(const ProfileRef& profile)
      : profile_(profile),
        fields_(profile),
        width_(fields_.element * kPerLane),
        word_(lane_id() < width_ ? lane_id() : 0, width_) {}

  // The bits that the row takes. Those beyond its room are not written.
  __device__ uint32_t encode(const std::byte* row, uint32_t* words) const {
    // Words of fields alone are stored; the next one may have escaped exponents, too.
    const uint32_t whole_words = profile_.num_columns * fields_.element / 32, room = room_words(profile_.row_bytes);
    zero_words_warp(words, whole_words, room);
    const Sink sink{words, room * 32};
    uint32_t escape_bit = profile_.escape_offset_bytes() * 8;
    Columns columns = load(row, lane_id());
    for (uint32_t first = 0, at = lane_id(); first < profile_.num_columns; first += 32 * kPerLane, at += width_) {
      const Columns ahead = load(row, first / kPerLane + 32 + lane_id());
      const Fields mine = code(columns);
      const uint32_t a = __shfl_sync(kAllLanes, mine.bits, word_.field);
      const uint32_t b = __shfl_sync(kAllLanes, mine.bits, word_.field + 1);
      const uint32_t c = __shfl_sync(kAllLanes, mine.bits, word_.field + 2);
      if (lane_id() < width_ && at <= whole_words) {
        const uint32_t word = word_.join(a, b, c);
        if (at < whole_words) {
          words[at] = word;
        } else if (word != 0) {
          atomicOr(words + at, word);
        }
      }
      if constexpr (!kLayers) escape_bit = put_escapes(columns, mine, escape_bit, sink);
      columns = ahead;
    }
    if constexpr (kLayers) escape_bit = put_layers(row, escape_bit, sink);
    __syncwarp();
    return escape_bit;
  }

 private:
  static constexpr uint32_t kPerLane = kPairs ? 2 : 1;
  // The columns of a lane, side by side, and the profile's numbers for them.
  struct Columns {
    uint32_t bits = 0, add = 0, count = 0;
  };
  struct Fields {
    uint32_t bits = 0;
    bool first_escaped = false, second_escaped = false;
  };

  __device__ Columns load(const std::byte* row, uint32_t i) const {
    Columns columns;
    if (i * kPerLane >= profile_.num_columns) return columns;
    columns.count = min(kPerLane, profile_.num_columns - i * kPerLane);
    columns.bits = static_cast<uint32_t>(load_aligned(row + i * 4, columns.count * (4 / kPerLane)));
    columns.add = profile_.add[i];
    return columns;
  }

  // 4 bytes, or the last 2 of a row, at a multiple of an element.
  __device__ static uint32_t load_aligned(const std::byte* from, uint32_t bytes) {
    if constexpr (kPairs) {
      if (bytes == 2) return *reinterpret_cast<const uint16_t*>(from);
      if (reinterpret_cast<uintptr_t>(from) % 4 != 0) {
        const auto* halves = reinterpret_cast<const uint16_t*>(from);
        return halves[0] | (uint32_t{halves[1]} << 16);
      }
    }
    return *reinterpret_cast<const uint32_t*>(from);
  }

  __device__ Fields code(const Columns& columns) const {
    Fields coded;
    if constexpr (kPairs) {
      const auto low = field_of(fields_, static_cast<uint16_t>(columns.bits), static_cast<uint16_t>(columns.add));
      const auto high =
          field_of(fields_, static_cast<uint16_t>(columns.bits >> 16), static_cast<uint16_t>(columns.add >> 16));
      if (columns.count > 0) coded.bits = low.bits;
      if (columns.count > 1) coded.bits |= uint32_t{high.bits} << fields_.element;
      coded.first_escaped = columns.count > 0 && low.escaped;
      coded.second_escaped = columns.count > 1 && high.escaped;
    } else {
      const auto field = field_of(fields_, columns.bits, columns.add);
      if (columns.count > 0) coded.bits = field.bits;
      coded.first_escaped = columns.count > 0 && field.escaped;
    }
    return coded;
  }

  // In the order of the columns; where the next ones go.
  __device__ uint32_t put_escapes(const Columns& columns, const Fields& coded, uint32_t bit, const Sink& sink) const {
    const uint32_t first = __ballot_sync(kAllLanes, coded.first_escaped);
    const uint32_t second = kPairs ? __ballot_sync(kAllLanes, coded.second_escaped) : 0;
    uint32_t at = bit + (ballots_below(first) + ballots_below(second)) * fields_.exponent;
    if (coded.first_escaped) {
      sink.put(at, fields_.exponent, exponent(columns.bits));
      at += fields_.exponent;
    }
    if (coded.second_escaped) sink.put(at, fields_.exponent, exponent(columns.bits >> 16));
    return bit + (__popc(first) + __popc(second)) * fields_.exponent;
  }

  // All groups' second and third layers and the steps in neither; where the last ends. A lane has eight columns side by
  // side.
  __device__ uint32_t put_layers(const std::byte* row, uint32_t bit, const Sink& sink) const {
    for (uint32_t first = 0; first < profile_.num_columns; first += kLayerColumns) {
      uint32_t steps[kLayerColumns / 32], left = 0;
      for (uint32_t i = 0; i < kLayerColumns / 32; i += kPerLane) {
        const Columns columns = load(row, (first + lane_id() * (kLayerColumns / 32) + i) / kPerLane);
        const Fields coded = code(columns);
        left |= (coded.first_escaped ? 1u << i : 0) | (coded.second_escaped ? 2u << i : 0);
        steps[i] = step_of(fields_, static_cast<uint16_t>(columns.bits), static_cast<uint16_t>(columns.add));
        steps[i + 1] =
            step_of(fields_, static_cast<uint16_t>(columns.bits >> 16), static_cast<uint16_t>(columns.add >> 16));
      }
      left = put_layer<kSecondBits>(profile_.second, steps, left, bit, sink);
      left = put_layer<kThirdBits>(profile_.third, steps, left, bit, sink);
      uint32_t total = 0;
      uint32_t at = bit + exclusive_sum_warp(__popc(left), total) * fields_.exponent;
      for (; left; left &= left - 1, at += fields_.exponent) sink.put(at, fields_.exponent, steps[__ffs(left) - 1]);
      bit += total * fields_.exponent;
    }
    return bit;
  }

  // A code for each of the lane's columns `left`: of its step in `coded`, code c in byte c, or 0. The columns with 0.
  template <uint32_t kBits>
  __device__ static uint32_t put_layer(uint64_t coded, const uint32_t* steps, uint32_t left, uint32_t& bit,
                                       const Sink& sink) {
    uint32_t total = 0, codes = 0, still = 0, bits = 0;
    const uint32_t at = bit + exclusive_sum_warp(__popc(left), total) * kBits;
    for (; left; left &= left - 1, bits += kBits) {
      const uint32_t step = steps[__ffs(left) - 1];
      uint32_t code = 0;
#pragma unroll
      for (uint32_t c = 1; c < 1u << kBits; ++c) code = (coded >> (8 * c) & 0xff) == step ? c : code;
      codes |= code << bits;
      if (code == 0) still |= left & -left;
    }
    if (bits) sink.put(at, bits, codes);
    bit += total * kBits;
    return still;
  }

  __device__ uint32_t exponent(uint32_t bits) const {
    if constexpr (kPairs) return exponent_of(fields_, static_cast<uint16_t>(bits));
    return exponent_of(fields_, bits);
  }

  const ProfileRef& profile_;
  ExponentFields fields_;
  uint32_t width_;
  WordOfFields word_;
};

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

// Whole words of so many bits; 0: too many, so that the row stays raw.
__device__ inline uint32_t coded_bytes_of(const ProfileRef& profile, uint32_t bits) {
  const uint32_t bytes = (bits + 31) / 32 * 4;
  return bytes <= profile.most_coded_bytes ? bytes : 0;
}

__device__ inline uint32_t encode_sparse_warp(const ProfileRef& profile, const std::byte* row, uint32_t* words) {
  const SparseCounts counts = count_sparse_warp(profile, row);
  const bool bitmap = bitmap_is_shorter(profile, counts.num_nonzeros, counts.num_groups);
  const uint32_t bits = sparse_bits(profile, counts.kind, counts.num_nonzeros, bitmap, counts.num_groups);
  const uint32_t bytes = coded_bytes_of(profile, bits);
  if (bytes == 0) return 0;
  zero_words_warp(words, 0, bytes / 4);
  write_sparse_warp(profile, row, counts, bitmap, {words, bytes * 8});
  __syncwarp();
  return bytes;
}

template <typename Chunk>
__device__ uint32_t encode_invariant_warp(const ProfileRef& profile, const ChunkCode<Chunk>* codes,
                                          const std::byte* row, uint32_t* words) {
  const uint32_t room = room_words(profile.row_bytes);
  zero_words_warp(words, 0, room);
  const uint32_t bits = encode_chunks_warp(profile, codes, row, {words, room * 32});
  __syncwarp();
  return coded_bytes_of(profile, bits);
}

// Encodes rows of one profile, which is not of codec planes.
template <Form form>
class RowEncoder {
 public:
  __device__ explicit RowEncoder(const ProfileRef& profile) : profile_(profile), exponent_(profile) {}

  // Encodes a row into `words`: room_words() in shared memory, at a multiple of 16 bytes, which no lane still reads.
  // Its bytes, a multiple of 4, or 0 when it must stay raw; the words then hold anything.
  __device__ uint32_t encode(const std::byte* row, uint32_t* words) const {
    if constexpr (kHasCodes) return coded_bytes_of(profile_, exponent_.encode(row, words));
    if constexpr (form == Form::kChunks4) return encode_invariant_warp(profile_, profile_.codes4, row, words);
    if constexpr (form == Form::kChunks8) return encode_invariant_warp(profile_, profile_.codes8, row, words);
    if constexpr (form == Form::kSparse) return encode_sparse_warp(profile_, row, words);
    if constexpr (form == Form::kDictionary) return encode_dictionary_warp(profile_, row, words);
    return 0;
  }
  __device__ const ProfileRef& profile() const { return profile_; }

 private:
  struct Nothing {
    __device__ explicit Nothing(const ProfileRef&) {}
  };
  static constexpr bool kLayers = form == Form::kLayers, kPairs = form == Form::kPairs || kLayers;
  static constexpr bool kHasCodes = form == Form::kSingles || kPairs;
  const ProfileRef& profile_;
  std::conditional_t<kHasCodes, ExponentEncoder<kPairs, kLayers>, Nothing> exponent_;
};

}  // namespace cohort::ibp
