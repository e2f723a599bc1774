// The feature rows that one GPU keeps, in its memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/owners.h"
#include "cache/slab_rows.h"

namespace cohort::cache {

class RowSlab {
 public:
  // Takes `bytes` of the current GPU and stores these rows one after the other, as many as find room.
  RowSlab(const SlabRows& rows, std::span<const uint32_t> nodes, int64_t bytes);

  // uint64 [n], by position in `nodes`: ibp::make_entry(), region 0; kNoEntry for rows that found no room.
  std::span<const uint64_t> entries() const { return entries_; }
  uint32_t step_bytes() const { return step_bytes_; }  // every row begins at a multiple of this; divides 128
  ibp::RegionRef region() const { return {slab_.data(), static_cast<int64_t>(slab_.bytes())}; }

 private:
  base::DeviceBytes slab_;
  std::vector<uint64_t> entries_;
  uint32_t step_bytes_ = ibp::kLineBytes;
};

}  // namespace cohort::cache
