// Bit streams of the host codecs: least significant bit first, in little-endian 32-bit words. FORMAT.md section 1.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"

namespace cohort::ibp {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and so is this code");

constexpr uint64_t low_bits(uint32_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }
using base::load_as;
using base::round_up;
using base::store_as;

// Appends fields to `out`, 64 bits at a time; may write up to 8 bytes beyond the last bit.
class BitWriter {
 public:
  explicit BitWriter(std::byte* out) : begin_(out), out_(out) {}

  // `value` has no bits above `count`; count <= 64.
  void put(uint64_t value, uint32_t count) {
    const uint64_t word = pending_ | (value << fill_);
    store_as(out_, word);
    const uint64_t carry = (value >> 1) >> (63 - fill_);
    fill_ += count;
    const uint64_t full = fill_ / 64;
    pending_ = word ^ ((word ^ carry) & -full);  // a branch here would be guessed wrong every other time
    out_ += full * 8;
    fill_ %= 64;
  }
  void align_to_byte() { put(0, (8 - fill_) & 7); }
  // Bytes written, up to a whole 32-bit word; the rest of the last word is zero.
  uint32_t finish() {
    store_as(out_, pending_);
    return static_cast<uint32_t>(out_ - begin_) + (fill_ + 31) / 32 * 4;
  }

 private:
  std::byte* begin_;
  std::byte* out_;
  uint64_t pending_ = 0;
  uint32_t fill_ = 0;  // bits of `pending_`, below 64
};

// `count` <= 32 bits at `bit`; reads 8 bytes from the byte that holds the first.
inline uint32_t read_bits(const std::byte* from, uint64_t bit, uint32_t count) {
  return static_cast<uint32_t>((load_as<uint64_t>(from + bit / 8) >> (bit % 8)) & low_bits(count));
}
inline uint64_t read_bits_wide(const std::byte* from, uint64_t bit, uint32_t count) {
  if (count <= 32) return read_bits(from, bit, count);
  return read_bits(from, bit, 32) | (uint64_t{read_bits(from, bit + 32, count - 32)} << 32);
}

}  // namespace cohort::ibp
