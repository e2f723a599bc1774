// Where rows that change lie, for put() of the host and of the GPU. Internal to ibp/.
#pragma once

#include "ibp/encoded_ref.h"

namespace cohort::ibp {

// Set in an entry while a put() that names the row is under way on a GPU. Readers of entries ignore it.
inline constexpr uint64_t kEntryClaimed = uint64_t{1} << 62;

// What a row has for itself: its slot, or as many bytes as it had when it was packed.
struct Home {
  uint64_t offset;
  uint32_t bytes;
};

// Rows in their homes and, behind these, cells for raw rows that do not fit theirs: the overflow area.
struct HomesRef {
  std::byte* data = nullptr;
  uint64_t* entries = nullptr;      // uint64 [num_rows]: where each row is now
  const uint64_t* homes = nullptr;  // uint64 [num_rows]: entries of rows that were packed; null: slots
  int64_t num_rows = 0;
  uint64_t overflow_begin = 0;  // a multiple of 128
  uint32_t stride_bytes = 0;    // of slots
  uint32_t row_bytes = 0;
  uint32_t longest_bytes = 0;  // of an encoded row: longer ones stay raw
  bool has_zeros = false;      // the first cell is that of all rows which were never put

  COHORT_HOST_DEVICE uint32_t raw_bytes() const { return (row_bytes + 3) / 4 * 4; }       // of a raw row's entry
  COHORT_HOST_DEVICE uint32_t whole_bytes() const { return (row_bytes + 15) / 16 * 16; }  // of a cell

  COHORT_HOST_DEVICE Home home_of(int64_t row) const {
    if (homes == nullptr) return {static_cast<uint64_t>(row) * stride_bytes, stride_bytes};
    return {entry_offset_bytes(homes[row]), entry_bytes(homes[row])};
  }
  // Whether the row of this entry has a cell of its own.
  COHORT_HOST_DEVICE bool is_away(uint64_t entry) const {
    return entry_offset_bytes(entry) >= overflow_begin + (has_zeros ? whole_bytes() : 0);
  }
  COHORT_HOST_DEVICE int64_t cell_of(uint64_t entry) const {
    return static_cast<int64_t>((entry_offset_bytes(entry) - overflow_begin) / whole_bytes());
  }
  COHORT_HOST_DEVICE uint64_t entry_of_cell(int64_t cell) const {
    return make_entry(overflow_begin + static_cast<uint64_t>(cell) * whole_bytes(), raw_bytes(), true);
  }
};

// The cells of the overflow area. In a put(), rows take the last free ones and then new ones, and those that rows
// leave are collected behind the free ones: settle() makes them free. So the rows of a put() may take turns in any
// order.
struct OverflowCells {
  unsigned long long used = 0;   // all cells below, free ones too
  unsigned long long free = 0;   // cells in `list`
  unsigned long long taken = 0;  // by rows of this put()
  unsigned long long left = 0;   // in `list` behind the free ones

  // The i-th that is taken in this put().
  COHORT_HOST_DEVICE int64_t take(const int64_t* list, unsigned long long i) const {
    return i < free ? list[free - 1 - i] : static_cast<int64_t>(used + (i - free));
  }

  COHORT_HOST_DEVICE unsigned long long taken_of_free() const { return taken < free ? taken : free; }
  // The first half of settle(), by `step` threads of which this is thread `first`: the last cells that were left fill
  // the gap where others were taken.
  COHORT_HOST_DEVICE void close_gap(int64_t* list, unsigned long long first, unsigned long long step) const {
    const unsigned long long gap = taken_of_free(), count = left < gap ? left : gap;
    for (unsigned long long i = first; i < count; i += step) list[free - gap + i] = list[free + left - 1 - i];
  }
  // The second half, by one thread. `capacity`: cells that there is memory for.
  COHORT_HOST_DEVICE void count_again(unsigned long long capacity) {
    const unsigned long long gap = taken_of_free(), wanted = used + (taken - gap);
    used = wanted < capacity ? wanted : capacity;
    free = free - gap + left;
    taken = left = 0;
  }
};

}  // namespace cohort::ibp
