// Decoding a row of codec exponent or layers with columns of 16 bits by one warp (FORMAT.md 4.3 and 4.6). Part of
// device_view.cuh.
//
// The output is cut into words of two columns, a lane makes kWords words next to each other and stores them at once.
// The fields of 32 such lanes take a whole number of words of the row, so that a lane finds its bits at the same place
// in every group.
#pragma once

#include "ibp/device_bits.cuh"
#include "ibp/profile_ref.h"

namespace cohort::ibp {

// Decodes rows of one profile: what the lanes need of it stays in registers from row to row.
// `out` and row_bytes must be multiples of 4 * kWords; with kWords == 1 of 2.
template <uint32_t kWords>
class PairsDecoder {
 public:
  __device__ explicit PairsDecoder(const ProfileRef& profile)
      : width_(profile.coded_element_bits()),
        mantissa_bits_(profile.mantissa_bits),
        exponent_bits_(profile.exponent_bits),
        magnitude_mask_(low_bits_32(profile.mantissa_bits + profile.code_bits)),
        code_mask_(low_bits_32(profile.code_bits) << profile.mantissa_bits),
        num_columns_(profile.num_columns),
        row_bytes_(profile.row_bytes),
        escape_offset_bytes_(profile.escape_offset_bytes()),
        lane_bit_(lane_id() * kWords * width_ * kColumnsOfWord),
        add_(profile.add + lane_id() * kWords) {}

  // False, in every lane, when the row's `bytes`, at least escape_offset_bytes(), do not hold what its codes ask for.
  __device__ bool decode(const uint32_t* words, uint32_t bytes, std::byte* out) const {
    const uint32_t num_words = (num_columns_ + kColumnsOfWord - 1) / kColumnsOfWord;
    const uint32_t last_bit = bytes * 8 - exponent_bits_;  // where an exponent may begin
    uint32_t num_escapes = 0;
    uint32_t first = 0;
#pragma unroll 2
    for (; first + 32 * kWords <= num_words; first += 32 * kWords) {
      decode_group(words, first, true, last_bit, num_escapes, out);
    }
    if (first < num_words) {
      decode_group(words, first, first + lane_id() * kWords < num_words, last_bit, num_escapes, out);
    }
    return escape_offset_bytes_ * 8 + num_escapes * exponent_bits_ <= bytes * 8;
  }

 protected:
  static constexpr uint32_t kColumnsOfWord = 2;
  static constexpr uint32_t kColumns = kWords * kColumnsOfWord;  // of a lane and group

  // Words [first, first + 32 * kWords) of the output; lanes that are not active have none. `num_escapes` counts those
  // of the groups before and is the same in every lane.
  __device__ void decode_group(const uint32_t* words, uint32_t first, bool active, uint32_t last_bit,
                               uint32_t& num_escapes, std::byte* out) const {
    uint32_t fields[kWords] = {}, result[kWords] = {};
    bool escaped[kColumns] = {}, any = false;
    if (active) {
      // A group's fields take a whole number of words, so that a lane's bits begin at the same bit of a word in each.
      read_fields(words + lane_bit_ / 32 + first / 32 * (kColumnsOfWord * width_), fields);
      load_words(add_ + first, result);
#pragma unroll
      for (uint32_t i = 0; i < kColumns; ++i) escaped[i] = is_escaped(fields, first, i), any = any || escaped[i];
#pragma unroll
      for (uint32_t i = 0; i < kWords; ++i) result[i] = elements(fields[i], result[i]);
    }
    if (__any_sync(kAllLanes, any)) fill_escapes(words, escaped, any, last_bit, num_escapes, result);
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
    const uint32_t high = fields << (16 - width_);  // the second field's magnitude from bit 16, the first's sign at 15
    const uint32_t magnitudes = (fields & magnitude_mask_) | (high & (magnitude_mask_ << 16));
    const uint32_t sums = magnitudes + (add & 0x7fff7fffu);  // 15 bits each: no carry reaches the other element
    const uint32_t signs = (high & 0x8000u) | ((fields << (32 - 2 * width_)) & 0x80000000u);
    return (sums & 0x7fff7fffu) | signs;
  }

  // Column i of the lane's.
  __device__ bool is_escaped(const uint32_t (&fields)[kWords], uint32_t first, uint32_t i) const {
    if (kWords == 1 && (first + lane_id()) * kColumnsOfWord + i >= num_columns_) return false;
    return ((fields[i / kColumnsOfWord] >> (i % kColumnsOfWord * width_)) & code_mask_) == 0;
  }

  // Puts the escaped exponents in: they follow the codes in the order of the columns. Sign and mantissa are right
  // already.
  __device__ void fill_escapes(const uint32_t* words, const bool (&escaped)[kColumns], bool any, uint32_t last_bit,
                               uint32_t& num_escapes, uint32_t (&result)[kWords]) const {
    uint32_t escapes = 0;  // a bit for each of the lane's columns
#pragma unroll
    for (uint32_t i = 0; i < kColumns; ++i) escapes |= escaped[i] ? 1u << i : 0;
    const uint32_t lanes = __ballot_sync(kAllLanes, any);
    uint32_t rank = ballots_below(lanes), total = __popc(lanes);
    if (kColumns > 1 && __any_sync(kAllLanes, escapes & (escapes - 1))) {  // more than one in a lane
      rank = exclusive_sum_warp(__popc(escapes), total);
    }
    rank += num_escapes;
    num_escapes += total;
    for (; escapes; escapes &= escapes - 1, ++rank) {
      const uint32_t i = __ffs(escapes) - 1, shift = mantissa_bits_ + i % kColumnsOfWord * 16;
      const uint32_t bit = min(escape_offset_bytes_ * 8 + rank * exponent_bits_, last_bit);
      const uint32_t clear = ~(low_bits_32(exponent_bits_) << shift), set = read_exponent(words, bit) << shift;
#pragma unroll
      for (uint32_t w = 0; w < kWords; ++w) {
        if (w == i / kColumnsOfWord) result[w] = (result[w] & clear) | set;
      }
    }
  }

  __device__ uint32_t read_exponent(const uint32_t* words, uint32_t bit) const {
    if (exponent_bits_ == 8) return reinterpret_cast<const uint8_t*>(words)[bit / 8];
    return read_field(words, bit, exponent_bits_);
  }

  __device__ void store_words(std::byte* out, uint32_t first, const uint32_t (&words)[kWords]) const {
    if constexpr (kWords == 1) {
      store_word(out, row_bytes_, first, words[0]);
    } else {
      ibp::store_words(out + first * 4, words);
    }
  }

  uint32_t width_, mantissa_bits_, exponent_bits_, magnitude_mask_, code_mask_;
  uint32_t num_columns_, row_bytes_, escape_offset_bytes_;
  uint32_t lane_bit_;
  const uint32_t* add_;
};

// Codec layers (FORMAT.md 4.6). A lane has eight columns side by side, so that the lanes of a warp have the columns of
// a group. The columns that a layer has no code for are few; their ranks say where the next layer has theirs. `out` and
// row_bytes must be multiples of 4 * kStored; with kStored == 1 of 2.
template <uint32_t kStored>
class LayersDecoder : PairsDecoder<4> {
 public:
  __device__ explicit LayersDecoder(const ProfileRef& profile)
      : PairsDecoder<4>(profile), second_(profile.second), third_(profile.third) {}

  // False, in every lane, when the row's `bytes`, at least escape_offset_bytes(), do not hold what its codes ask for.
  __device__ bool decode(const uint32_t* words, uint32_t bytes, std::byte* out) const {
    const uint32_t end = bytes * 8;
    uint32_t bit = escape_offset_bytes_ * 8;
    for (uint32_t first = 0; first < num_columns_; first += kLayerColumns) {
      decode_group(words, first / kColumnsOfWord, end, bit, out);
    }
    return bit <= end;
  }

 private:
  static constexpr uint32_t kWords = 4;
  static_assert(32 * kColumns == kLayerColumns);

  // `bit`, the same in every lane: where the group's second layer begins; becomes that of the next group.
  __device__ void decode_group(const uint32_t* words, uint32_t first, uint32_t end, uint32_t& bit,
                               std::byte* out) const {
    const uint32_t word = first + lane_id() * kWords, before = min(word * kColumnsOfWord, num_columns_);
    const uint32_t columns = min(kColumns, num_columns_ - before);
    uint32_t fields[kWords] = {}, result[kWords] = {}, left = 0;
    if (columns > 0) {
      read_fields(words + lane_bit_ / 32 + first / 32 * (kColumnsOfWord * width_), fields);
      load_words(add_ + first, result);
#pragma unroll
      for (uint32_t i = 0; i < kColumns; ++i) left |= is_escaped(fields, first, i) ? 1u << i : 0;
      left &= (1u << columns) - 1;
    }
    uint32_t steps[kWords] = {};
    read_layers(words, end, left, bit, steps);
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      // 15 bits each: no carry reaches the other element.
      result[i] = elements(fields[i], (result[i] & 0x7fff7fffu) + steps[i]);
    }
    if (columns > 0) store(out, word, columns, result);
  }

  // The steps of the lane's columns `left`, each where the exponent of its element is.
  __device__ void read_layers(const uint32_t* words, uint32_t end, uint32_t left, uint32_t& bit,
                              uint32_t (&steps)[kWords]) const {
    if (!__any_sync(kAllLanes, left != 0)) return;
    uint32_t total = 0;
    uint32_t rank = exclusive_sum_warp(__popc(left), total);
    uint32_t codes = read_field(words, min(bit + rank * kSecondBits, end), kColumns * kSecondBits);
    bit += total * kSecondBits;
    uint32_t still = 0;
#pragma unroll
    for (uint32_t i = 0; i < kColumns; ++i) {
      if ((left >> i & 1) == 0) continue;
      const uint32_t code = codes & ((1u << kSecondBits) - 1);
      codes >>= kSecondBits;
      if (code == 0) still |= 1u << i;
      steps[i / kColumnsOfWord] |= byte_of(second_, code) << shift_of(i);
    }
    if (!__any_sync(kAllLanes, still != 0)) return;
    rank = exclusive_sum_warp(__popc(still), total);
    codes = read_field(words, min(bit + rank * kThirdBits, end), kColumns * kThirdBits);
    bit += total * kThirdBits;
    uint32_t last = 0;
    for (; still; still &= still - 1, codes >>= kThirdBits) {
      const uint32_t code = codes & ((1u << kThirdBits) - 1);
      code == 0 ? void(last |= still & -still) : set_step(steps, __ffs(still) - 1, byte_of(third_, code));
    }
    if (!__any_sync(kAllLanes, last != 0)) return;
    rank = exclusive_sum_warp(__popc(last), total);
    for (; last; last &= last - 1, ++rank) {
      const uint32_t at = min(bit + rank * exponent_bits_, end);
      set_step(steps, __ffs(last) - 1, read_field(words, at, exponent_bits_));
    }
    bit += total * exponent_bits_;
  }

  template <typename Word>
  __device__ static uint32_t byte_of(Word bytes, uint32_t i) {
    return static_cast<uint32_t>(bytes >> (8 * i)) & 0xff;
  }
  __device__ uint32_t shift_of(uint32_t column) const { return mantissa_bits_ + column % kColumnsOfWord * 16; }
  __device__ void set_step(uint32_t (&steps)[kWords], uint32_t column, uint32_t step) const {
    const uint32_t set = step << shift_of(column);
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) {
      if (i == column / kColumnsOfWord) steps[i] |= set;
    }
  }

  __device__ void store(std::byte* out, uint32_t word, uint32_t columns, const uint32_t (&words)[kWords]) const {
    if constexpr (kStored == 4) {
      ibp::store_words(out + word * 4, words);
    } else {
#pragma unroll
      for (uint32_t i = 0; i < kWords; i += kStored) {
        if (i * kColumnsOfWord >= columns) continue;
        if constexpr (kStored == 2) {
          const uint32_t both[2] = {words[i], words[i + 1]};
          ibp::store_words(out + (word + i) * 4, both);
        } else {
          store_word(out, row_bytes_, word + i, words[i]);
        }
      }
    }
  }

  uint32_t second_;
  uint64_t third_;
};

}  // namespace cohort::ibp
