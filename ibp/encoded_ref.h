// Where an encoded row lies: plain views, passed by value to host functions and kernels. FORMAT.md sections 2 and 3.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "base/host_device.h"

namespace cohort::ibp {

enum class Layout : uint8_t {
  kPacked = 0,   // rows back to back, one 64-bit entry a row
  kInPlace = 1,  // row i at i * row_bytes, one 16-bit length a row: no memory saved, fewer bytes over the link
  kSlots = 2,    // row i at i * slot_bytes, one bit a row: set when the row lies in the overflow area
};

// One stored row. `bytes` is its exact length, or (exact == false) the room it may have used.
struct RowSpan {
  const std::byte* begin = nullptr;
  uint32_t bytes = 0;
  bool raw = false;
  bool exact = true;
  const std::byte* plane_b = nullptr;  // of a coded row of codec planes: null: plane A alone is asked for
};

// A 64-bit entry of the packed layout: offset / 4 in bits 0..39, length / 4 in bits 40..55, raw in bit 63. Rows that
// lie in several regions of memory (LocatedRows in gpu.h) have the region's number in bits 56..58.
constexpr int kMaxRegions = 8;
constexpr uint64_t kEntryOffsetMask = (uint64_t{1} << 40) - 1;
COHORT_HOST_DEVICE constexpr uint64_t make_entry(uint64_t offset_bytes, uint32_t bytes, bool raw) {
  return (offset_bytes / 4) | (uint64_t{bytes / 4} << 40) | (uint64_t{raw} << 63);
}
COHORT_HOST_DEVICE constexpr uint64_t entry_offset_bytes(uint64_t entry) { return (entry & kEntryOffsetMask) * 4; }
COHORT_HOST_DEVICE constexpr uint32_t entry_bytes(uint64_t entry) { return uint32_t((entry >> 40) & 0xffff) * 4; }
COHORT_HOST_DEVICE constexpr bool entry_raw(uint64_t entry) { return (entry >> 63) != 0; }
COHORT_HOST_DEVICE constexpr uint32_t entry_region(uint64_t entry) { return uint32_t(entry >> 56) % kMaxRegions; }
COHORT_HOST_DEVICE constexpr uint64_t entry_in_region(uint64_t entry, uint32_t region) {
  return entry | (uint64_t{region} << 56);
}

// A region: this GPU's memory, a peer's, or pinned host memory.
struct RegionRef {
  const std::byte* begin = nullptr;  // 16-byte aligned
  int64_t bytes = 0;
};

// Encoded rows, wherever they are: the pointers are valid on the side (host or device) that uses the view.
struct EncodedRef {
  const std::byte* data = nullptr;      // uint8  [data_bytes], 16-byte aligned
  const std::byte* overflow = nullptr;  // uint8  [overflow_bytes], raw rows at overflow_stride_bytes (slots)
  const uint64_t* entries = nullptr;    // uint64 [num_rows] (packed)
  const uint16_t* lengths = nullptr;    // uint16 [num_rows] in units of 4 bytes, 0 = raw (in place)
  const uint32_t* flags = nullptr;      // uint32 [ceil(num_rows / 32)] 1 = overflow (slots)
  const uint32_t* ranks = nullptr;      // uint32 [ceil(num_rows / 32)] set flags before this word (slots)
  const std::byte* plane_b = nullptr;   // uint8  [num_rows, plane_b_stride_bytes] (codec planes), 16-byte aligned;
                                        // null there: the rows as plane A alone tells them
  int64_t num_rows = 0;
  int64_t data_bytes = 0;
  int64_t overflow_bytes = 0;
  uint32_t row_bytes = 0;              // of a decoded row
  uint32_t stride_bytes = 0;           // slots: slot_bytes; in place: row_bytes; packed: 0
  uint32_t overflow_stride_bytes = 0;  // row_bytes rounded up to 16
  uint32_t plane_b_stride_bytes = 0;   // codec planes, else 0
  uint32_t max_coded_bytes = 0;        // of the longest row that is not raw; slots: what is read of each
  Layout layout = Layout::kPacked;

  COHORT_HOST_DEVICE int64_t plane_b_bytes() const { return num_rows * plane_b_stride_bytes; }
};

COHORT_HOST_DEVICE inline uint32_t count_ones(uint32_t word) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(word));
#else
  return static_cast<uint32_t>(__builtin_popcount(word));
#endif
}

// The longest row that is not raw, with the room that it may have used (RowSpan::bytes); 0: unknown.
inline uint32_t longest_coded_bytes(const EncodedRef& rows) {
  return std::max(rows.max_coded_bytes, rows.layout == Layout::kInPlace ? rows.stride_bytes : 0);
}

// Every row begins at a multiple of this, a power of two up to 128.
inline uint32_t step_of(const EncodedRef& rows) {
  if (rows.layout == Layout::kPacked) return 4;
  const auto step = std::gcd(std::gcd(rows.stride_bytes, 128u), reinterpret_cast<uintptr_t>(rows.data));
  if (rows.overflow_bytes == 0) return static_cast<uint32_t>(step);
  const auto overflow = std::gcd(uint64_t{rows.overflow_stride_bytes}, reinterpret_cast<uintptr_t>(rows.overflow));
  return static_cast<uint32_t>(std::gcd(step, overflow));
}

// Finds row `row` of 0..num_rows-1: O(1), reads only the directory.
COHORT_HOST_DEVICE inline RowSpan locate(const EncodedRef& rows, int64_t row) {
  if (rows.layout == Layout::kPacked) {
    const uint64_t entry = rows.entries[row];
    return {rows.data + entry_offset_bytes(entry), entry_bytes(entry), entry_raw(entry), true};
  }
  const std::byte* begin = rows.data + row * int64_t{rows.stride_bytes};
  if (rows.lengths) {
    const uint32_t bytes = uint32_t{rows.lengths[row]} * 4;
    return {begin, bytes ? bytes : rows.row_bytes, bytes == 0, true};
  }
  const uint64_t group = static_cast<uint64_t>(row) / 32;
  const uint32_t word = rows.flags[group];
  const uint32_t bit = 1u << (static_cast<uint32_t>(row) % 32);
  if ((word & bit) == 0) {
    return {begin, rows.max_coded_bytes, false, false,
            rows.plane_b ? rows.plane_b + row * int64_t{rows.plane_b_stride_bytes} : nullptr};
  }
  const int64_t rank = int64_t{rows.ranks[group]} + count_ones(word & (bit - 1));
  return {rows.overflow + rank * rows.overflow_stride_bytes, rows.row_bytes, true, true};
}

// The bytes of a stored row when it lies in one piece: codec planes: plane B right behind the slot of plane A.
COHORT_HOST_DEVICE inline uint32_t joined_bytes(const EncodedRef& rows, const RowSpan& span) {
  return span.bytes + (span.plane_b ? rows.plane_b_stride_bytes : 0);
}

// Copies a stored row to where it lies in one piece: joined_bytes().
inline void copy_joined(const EncodedRef& rows, const RowSpan& span, std::byte* to) {
  std::memcpy(to, span.begin, span.bytes);
  if (span.plane_b) std::memcpy(to + span.bytes, span.plane_b, rows.plane_b_stride_bytes);
}

// The entry of row `row`: region 0 is the data, region 1 the overflow area.
COHORT_HOST_DEVICE inline uint64_t entry_of(const EncodedRef& rows, int64_t row) {
  const RowSpan span = locate(rows, row);
  const bool overflow = rows.layout == Layout::kSlots && span.raw;
  const std::byte* region = overflow ? rows.overflow : rows.data;
  const auto offset = static_cast<uint64_t>(span.begin - region);
  return entry_in_region(make_entry(offset, (span.bytes + 3) / 4 * 4, span.raw), overflow);
}

}  // namespace cohort::ibp
