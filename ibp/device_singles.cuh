// Decoding a row of codecs exponent and planes with float32 columns by one warp (FORMAT.md 4.3, 4.5). Part of
// device_view.cuh.
//
// A lane decodes kWords columns next to each other and stores them at once. A field is brought to the top of a word: an
// arithmetic shift then leaves the sign where it belongs, above the code and the mantissa, and (base - 1) << 23 is
// added to all three. The sum does not reach the sign: where a code is not 0, base - 1 + code is an exponent, 0..255.
#pragma once

#include "ibp/device_bits.cuh"
#include "ibp/profile_ref.h"

namespace cohort::ibp {

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

// Which bits of the mantissas a row has: all of them, the top ones, or the top ones in plane A and the rest in plane B.
enum class Mantissas : uint8_t { kWhole, kPlaneA, kPlanes };

// Decodes rows of one profile: what the lanes need of it stays in registers from row to row. `out` and row_bytes must
// be multiples of 4 * kWords. kOneGroup: num_columns is 32 * kWords; the bases then stay in registers too. kRounded:
// the elements are stored as bfloat16, and `out` must be a multiple of 2 * kWords.
template <uint32_t kWords, bool kOneGroup, Mantissas kMantissas = Mantissas::kWhole, bool kRounded = false>
class SinglesDecoder {
 public:
  __device__ explicit SinglesDecoder(const ProfileRef& profile)
      : width_(profile.coded_element_bits()),
        rest_bits_(kWhole ? 0 : profile.rest_bits),
        kept_bits_(0x80000000u | (low_bits_32(width_ - 1) << rest_bits_)),
        code_bytes_((0x80u - (0x80u >> profile.code_bits)) * 0x01010101u),
        num_columns_(profile.num_columns),
        escape_offset_bytes_(profile.escape_offset_bytes()),
        lane_bit_(lane_id() * kWords * width_),
        add_(profile.add + lane_id() * kWords) {
    if constexpr (kOneGroup) load_words(add_, lane_add_);
  }

  // False, in every lane, when the row's `bytes`, at least escape_offset_bytes(), do not hold what its codes ask for.
  // kPlanes: `plane_b` of the row.
  __device__ bool decode(const uint32_t* words, uint32_t bytes, std::byte* out,
                         const uint32_t* plane_b = nullptr) const {
    const uint32_t* from = words + lane_bit_ / 32;
    std::byte* to = out + lane_id() * kWords * kStoredBytes;
    Row row{reinterpret_cast<const uint8_t*>(words), bytes - 1, escape_offset_bytes_, plane_b};
    if constexpr (kOneGroup) {
      decode_group(from, lane_add_, true, row, to);
      return row.next_escape <= bytes;
    }
    uint32_t first = 0;
#pragma unroll 2
    for (; first + 32 * kWords <= num_columns_; first += 32 * kWords) {
      decode_group(from + first / 32 * width_, first, true, row, to + first * kStoredBytes);
    }
    if (first < num_columns_) {
      const bool active = first + lane_id() * kWords < num_columns_;
      decode_group(from + first / 32 * width_, first, active, row, to + first * kStoredBytes);
    }
    return row.next_escape <= bytes;
  }

 private:
  // Where the escaped exponents of a row are, a byte each; the same in every lane.
  struct Row {
    const uint8_t* begin;
    uint32_t last_byte;       // no exponent is read beyond it
    uint32_t next_escape;     // the byte of the first exponent that no group so far has taken
    const uint32_t* plane_b;  // kPlanes: of the group
  };
  static constexpr bool kWhole = kMantissas == Mantissas::kWhole;
  static constexpr uint32_t kStoredBytes = kRounded ? 2 : 4;  // of an element in the output

  __device__ void decode_group(const uint32_t* from, uint32_t first, bool active, Row& row, std::byte* out) const {
    uint32_t add[kWords] = {};
    if (active) load_words(add_ + first, add);
    decode_group(from, add, active, row, out);
  }

  // The group whose fields the lane finds at `from`, for the lane's place in the output; a lane that is not active has
  // none.
  __device__ void decode_group(const uint32_t* from, const uint32_t (&add)[kWords], bool active, Row& row,
                               std::byte* out) const {
    uint32_t fields[kWords] = {}, result[kWords] = {}, escapes = 0;
    if (active) {
      if constexpr (kWhole) {
        read_fields(from, fields);
      } else {
        read_narrow_fields(from, fields);
      }
      escapes = escapes_of(fields);
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) {
        fields[i] = static_cast<uint32_t>(static_cast<int32_t>(fields[i]) >> (32 - width_ - rest_bits_)) & kept_bits_;
        result[i] = fields[i] + add[i];
      }
    }
    const uint32_t lanes = __ballot_sync(kAllLanes, escapes != 0);
    if (lanes) fill_escapes(fields, escapes, lanes, row, result);
    if constexpr (!kWhole) {
      if (active) add_rest(row, result);
      if (kMantissas == Mantissas::kPlanes) row.plane_b += rest_bits_ * kWords;  // a group has 32 * kWords columns
    }
    if (!active) return;
    if constexpr (kRounded) {
      store_rounded(out, result);
    } else {
      store_words(out, result);
    }
  }

  // The low bits of the mantissas: as plane B has them, or the middle of their range, of numbers that are not 0.
  __device__ void add_rest(const Row& row, uint32_t (&result)[kWords]) const {
    const uint32_t bit = lane_id() * kWords * rest_bits_;
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      if constexpr (kMantissas == Mantissas::kPlanes) {
        result[i] |= read_field(row.plane_b, bit + i * rest_bits_, rest_bits_);
      } else {
        result[i] += (result[i] & 0x7f800000u) ? 1u << (rest_bits_ - 1) : 0;
      }
    }
  }

  // The lane's fields of any width, each at the top of a word with other bits below. As many as one word holds are read
  // at once.
  __device__ void read_narrow_fields(const uint32_t* from, uint32_t (&fields)[kWords]) const {
    if (kWords * width_ <= 32) return read_narrow_fields<kWords>(from, fields);
    if (kWords == 4 && 2 * width_ <= 32) return read_narrow_fields < kWords == 4 ? 2 : 1 > (from, fields);
    read_narrow_fields<1>(from, fields);
  }
  template <uint32_t kAtOnce>
  __device__ void read_narrow_fields(const uint32_t* from, uint32_t (&fields)[kWords]) const {
#pragma unroll
    for (uint32_t i = 0; i < kWords; i += kAtOnce) {
      const uint32_t several = read_field(from, lane_bit_ % 32 + i * width_, kAtOnce * width_);
#pragma unroll
      for (uint32_t j = 0; j < kAtOnce; ++j) fields[i + j] = several << (32 - (j + 1) * width_);
    }
  }

  // The same with other bits below the fields; reads kWords + 1 words. 25 <= width <= 28.
  __device__ void read_fields(const uint32_t* from, uint32_t (&fields)[kWords]) const {
    uint32_t raw[kWords + 1];
#pragma unroll
    for (uint32_t i = 0; i <= kWords; ++i) raw[i] = from[i];
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) raw[i] = __funnelshift_r(raw[i], raw[i + 1], lane_bit_ % 32);
    fields[0] = raw[0] << (32 - width_);
    if constexpr (kWords >= 2) fields[1] = __funnelshift_r(raw[0], raw[1], 2 * width_ - 32);
    if constexpr (kWords == 4) {
      fields[2] = __funnelshift_r(raw[1], raw[2], 3 * width_ - 64);
      fields[3] = __funnelshift_r(raw[2], raw[3], 4 * width_ - 96);
    }
  }

  // Bit 8 * i + 7 is 1 when the code of the lane's column i is 0: the codes are compared as bytes of one word, each
  // below the bit that its sum with the largest code reaches unless it is 0.
  __device__ uint32_t escapes_of(const uint32_t (&fields)[kWords]) const {
    uint32_t top = fields[0] >> 24;
    if constexpr (kWords >= 2) top = __byte_perm(fields[0], fields[1], 0x0073);
    if constexpr (kWords == 4) top = __byte_perm(top, __byte_perm(fields[2], fields[3], 0x0073), 0x5410);
    return ~((top & code_bytes_) + code_bytes_) & (0x80808080u >> (32 - 8 * kWords));
  }

  // Puts the escaped exponents in: they follow the codes in the order of the columns. `fields` are sign and mantissa
  // where the code is 0.
  __device__ void fill_escapes(const uint32_t (&fields)[kWords], uint32_t escapes, uint32_t lanes, Row& row,
                               uint32_t (&result)[kWords]) const {
    uint32_t rank = ballots_below(lanes), total = __popc(lanes);
    if (kWords > 1 && __any_sync(kAllLanes, escapes & (escapes - 1))) {  // more than one in a lane
      rank = exclusive_sum_warp(__popc(escapes), total);
    }
    rank += row.next_escape;
    row.next_escape += total;
    for (; escapes; escapes &= escapes - 1, ++rank) {
      const uint32_t exponent = uint32_t{row.begin[min(rank, row.last_byte)]} << 23, lowest = escapes & -escapes;
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) {
        if (lowest == 0x80u << (8 * i)) result[i] = fields[i] + exponent;
      }
    }
  }

  uint32_t width_, rest_bits_, kept_bits_, code_bytes_;
  uint32_t num_columns_, escape_offset_bytes_;
  uint32_t lane_bit_;
  const uint32_t* add_;
  uint32_t lane_add_[kWords];
};

}  // namespace cohort::ibp
