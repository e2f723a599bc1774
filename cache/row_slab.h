// The feature rows that one GPU keeps, in its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/owners.h"
#include "cache/slab_rows.h"

namespace cohort::cache {

// Where rows of a slab lie.
struct PlacedRows {
  std::vector<uint64_t> entries;  // [n], by position in `nodes`: ibp::make_entry(), region 0; kNoEntry: found no room
  uint32_t step_bytes = ibp::kLineBytes;  // every row begins at a multiple of this; divides 128
};

// Stores rows one after the other in `bytes` of the current GPU's memory, as many as find room.
PlacedRows store_rows(const SlabRows& rows, std::span<const uint32_t> nodes, std::byte* to, int64_t bytes);

class RowSlab {
 public:
  // Takes `bytes` of the current GPU.
  RowSlab(const SlabRows& rows, std::span<const uint32_t> nodes, int64_t bytes)
      : slab_(static_cast<std::size_t>(bytes), "allocate a slab of feature rows"),
        placed_(store_rows(rows, nodes, slab_.data(), bytes)) {}

  std::span<const uint64_t> entries() const { return placed_.entries; }
  uint32_t step_bytes() const { return placed_.step_bytes; }
  ibp::RegionRef region() const { return {slab_.data(), static_cast<int64_t>(slab_.bytes())}; }

 private:
  base::DeviceBytes slab_;
  PlacedRows placed_;
};

}  // namespace cohort::cache
