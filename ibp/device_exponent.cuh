// Decoding a row of the exponent codec by one warp (FORMAT.md 4.3). Part of device_view.cuh.
//
// The output is cut into words of 32 bits (one float32 column, or two columns of 16 bits), a lane makes kWords words
// next to each other and stores them at once. The fields of 32 such lanes take a whole number of words of the row, so
// that a lane finds its bits at the same place in every group.
#pragma once

#include "ibp/device_bits.cuh"
#include "ibp/profile_ref.h"

namespace cohort::ibp {

// Decodes rows of one profile: what the lanes need of it stays in registers from row to row.
// kPairs: two 16-bit columns a word; else one of float32. `out` and row_bytes must be multiples of 4 * kWords; with
// kWords == 1 they may be anything that the element's size allows.
template <bool kPairs, uint32_t kWords>
class ExponentDecoder {
 public:
  __device__ explicit ExponentDecoder(const ProfileRef& profile)
      : width_(profile.coded_element_bits()),
        mantissa_bits_(profile.mantissa_bits),
        exponent_bits_(kPairs ? profile.exponent_bits : 8),
        magnitude_mask_(low_bits_32(profile.mantissa_bits + profile.code_bits)),
        code_mask_(low_bits_32(profile.code_bits) << profile.mantissa_bits),
        num_columns_(profile.num_columns),
        row_bytes_(profile.row_bytes),
        escape_offset_bytes_(profile.escape_offset_bytes()),
        lane_bit_(lane_id() * kWords * width_ * kColumnsOfWord),
        add_(profile.add + lane_id() * kWords) {}

  // False, in every lane, when the row's `bytes` do not hold what its codes ask for.
  __device__ bool decode(const uint32_t* words, uint32_t bytes, std::byte* out) const {
    if (bytes < escape_offset_bytes_) return false;
    const uint32_t num_words = (num_columns_ + kColumnsOfWord - 1) / kColumnsOfWord;
    Progress row{words, bytes * 8};
    uint32_t first = 0;
#pragma unroll 2
    for (; first + 32 * kWords <= num_words; first += 32 * kWords) {
      decode_group(first, true, row, out);
    }
    while (first < num_words) {
      decode_group(first, first + lane_id() * kWords < num_words, row, out);
      first += 32 * kWords;
    }
    return __all_sync(kAllLanes, row.ok);
  }

 private:
  static constexpr uint32_t kColumnsOfWord = kPairs ? 2 : 1;
  static constexpr uint32_t kColumns = kWords * kColumnsOfWord;  // of a lane and group

  // How far a row has come.
  struct Progress {
    const uint32_t* words;
    uint32_t end_bit;
    uint32_t num_escapes = 0;  // in the groups before; the same in every lane
    bool ok = true;
  };

  // Words [first, first + 32 * kWords) of the output; lanes that are not active have none.
  __device__ void decode_group(uint32_t first, bool active, Progress& row, std::byte* out) const {
    uint32_t fields[kWords] = {}, result[kWords] = {};
    bool escaped = false;
    if (active) {
      // A group's fields take a whole number of words, so that a lane's bits begin at the same bit of a word in each.
      read_fields(row.words + lane_bit_ / 32 + first / 32 * (kColumnsOfWord * width_), fields);
      load_words(add_ + first, result);
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) result[i] = elements(fields[i], result[i]);
#pragma unroll
      for (uint32_t i = 0; i < kColumns; ++i) escaped = escaped || is_escaped(fields, first, i);
    }
    if (__any_sync(kAllLanes, escaped)) fill_escapes(first, escaped, fields, row, result);
    if (active) store_words(out, first + lane_id() * kWords, result);
  }

  // The lane's fields, one a word with other bits above it; reads kWords + 1 words.
  __device__ void read_fields(const uint32_t* from, uint32_t (&fields)[kWords]) const {
    const uint32_t shift = lane_bit_ % 32, bits = width_ * kColumnsOfWord;
    uint32_t raw[kWords + 1];
#pragma unroll
    for (uint32_t i = 0; i <= kWords; ++i) raw[i] = from[i];
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) raw[i] = __funnelshift_r(raw[i], raw[i + 1], shift);
    fields[0] = raw[0];
    if constexpr (kWords >= 2) fields[1] = __funnelshift_r(raw[0], raw[1], bits);
    if constexpr (kWords == 4) {  // 18 <= bits <= 30: the third starts in word 1, the last in word 1 or 2
      fields[2] = __funnelshift_r(raw[1], raw[2], 2 * bits - 32);
      const bool late = 3 * bits >= 64;
      fields[3] = __funnelshift_r(late ? raw[2] : raw[1], late ? raw[3] : raw[2], 3 * bits % 32);
    }
  }

  // The elements of a word where no exponent is escaped.
  __device__ uint32_t elements(uint32_t fields, uint32_t add) const {
    if constexpr (!kPairs) {
      return ((fields & magnitude_mask_) + add) | ((fields << (32 - width_)) & 0x80000000u);
    }
    const uint32_t high = fields << (16 - width_);  // the second field's magnitude from bit 16, the first's sign at 15
    const uint32_t magnitudes = (fields & magnitude_mask_) | (high & (magnitude_mask_ << 16));
    const uint32_t sums = magnitudes + (add & 0x7fff7fffu);  // 15 bits each: no carry reaches the other element
    const uint32_t signs = (high & 0x8000u) | ((fields << (32 - 2 * width_)) & 0x80000000u);
    return (sums & 0x7fff7fffu) | signs;
  }

  // Column i of the lane's.
  __device__ bool is_escaped(const uint32_t (&fields)[kWords], uint32_t first, uint32_t i) const {
    if (kPairs && kWords == 1 && (first + lane_id()) * kColumnsOfWord + i >= num_columns_) return false;
    return ((fields[i / kColumnsOfWord] >> (i % kColumnsOfWord * width_)) & code_mask_) == 0;
  }

  // Puts the escaped exponents in: they follow the codes in the order of the columns.
  __device__ void fill_escapes(uint32_t first, bool escaped, const uint32_t (&fields)[kWords], Progress& row,
                               uint32_t (&result)[kWords]) const {
    uint32_t escapes = 0;  // a bit for each of the lane's columns
#pragma unroll
    for (uint32_t i = 0; i < kColumns; ++i) escapes |= escaped && is_escaped(fields, first, i) ? 1u << i : 0;
    const uint32_t lanes = __ballot_sync(kAllLanes, escaped);
    uint32_t before = ballots_below(lanes), total = __popc(lanes);
    if (kColumns > 1 && __any_sync(kAllLanes, escapes & (escapes - 1))) {  // more than one in a lane
      before = exclusive_sum_warp(__popc(escapes), total);
    }
    uint32_t rank = row.num_escapes + before;
    row.num_escapes += total;
    for (; escapes; escapes &= escapes - 1, ++rank) {
      const uint32_t i = __ffs(escapes) - 1, bit = escape_offset_bytes_ * 8 + rank * exponent_bits_;
      row.ok = row.ok && bit + exponent_bits_ <= row.end_bit;
      if (row.ok) put_escape(fields, i, read_exponent(row.words, bit), result);
    }
  }

  __device__ uint32_t read_exponent(const uint32_t* words, uint32_t bit) const {
    if (exponent_bits_ == 8) return reinterpret_cast<const uint8_t*>(words)[bit / 8];
    return read_field(words, bit, exponent_bits_);
  }

  __device__ void put_escape(const uint32_t (&fields)[kWords], uint32_t i, uint32_t exponent,
                             uint32_t (&result)[kWords]) const {
    const uint32_t word = i / kColumnsOfWord, column = i % kColumnsOfWord;
    uint32_t field = fields[0];
#pragma unroll
    for (uint32_t w = 1; w < kWords; ++w) field = w == word ? fields[w] : field;
    field >>= column * width_;
    const uint32_t sign = ((field >> (width_ - 1)) & 1) << (32 / kColumnsOfWord - 1);
    const uint32_t element = (field & low_bits_32(mantissa_bits_)) | (exponent << mantissa_bits_) | sign;
    const uint32_t kept = !kPairs ? 0 : column ? 0x0000ffffu : 0xffff0000u;
#pragma unroll
    for (uint32_t w = 0; w < kWords; ++w) {
      if (w == word) result[w] = (result[w] & kept) | (element << (column * 16));
    }
  }

  __device__ static void load_words(const uint32_t* from, uint32_t (&words)[kWords]) {
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

  __device__ void store_words(std::byte* out, uint32_t first, const uint32_t (&words)[kWords]) const {
    if constexpr (kWords == 4) {
      *reinterpret_cast<uint4*>(out + first * 4) = uint4{words[0], words[1], words[2], words[3]};
    } else if constexpr (kWords == 2) {
      *reinterpret_cast<uint2*>(out + first * 4) = uint2{words[0], words[1]};
    } else {
      store_word(out, row_bytes_, first, words[0]);
    }
  }

  uint32_t width_, mantissa_bits_, exponent_bits_, magnitude_mask_, code_mask_;
  uint32_t num_columns_, row_bytes_, escape_offset_bytes_;
  uint32_t lane_bit_;
  const uint32_t* add_;
};

}  // namespace cohort::ibp
