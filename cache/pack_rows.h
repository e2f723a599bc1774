// Copying stored rows to lie one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ibp/ibp.h"

namespace cohort::cache {

// Rows that lie one after the other.
struct PackedRows {
  int64_t count = 0;                      // those that found room
  int64_t bytes = 0;                      // that they take
  uint32_t step_bytes = ibp::kLineBytes;  // every row begins at a multiple of this; divides 128
};

// Copies the first of `rows` to `to`, as many as find room in `room` bytes; each begins at a multiple of `align`, 4 or
// 16. entries[i] is made ibp::make_entry() of row i in a region of which `to` is byte `offset`, a multiple of `align`;
// those of rows without room stay as they are. All of OpenMP's threads copy.
PackedRows pack_rows(std::span<const ibp::RowSpan> rows, int64_t align, int64_t room, int64_t offset, std::byte* to,
                     uint64_t* entries);

}  // namespace cohort::cache
