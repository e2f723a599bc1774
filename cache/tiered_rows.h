// The encoded rows of a table, some of them in host memory and the others on a disk, as a CPU fetches them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/mapping.h"
#include "base/tier_use.h"
#include "cache/disk_rows.h"
#include "cache/row_bits.h"
#include "ibp/host.h"

namespace cohort::cache {

// A fetch that is under way.
struct TieredFetch {
  base::TierUse host{};  // what was read from memory
  DiskFetch disk{};
};

class TieredRows {
 public:
  // `in_memory` is counted. Copies these rows; the others must be in the file as long as this is used.
  TieredRows(DiskRows disk, RowBits in_memory);

  // out[i] = row ids[i], decoded: [n, row_bytes]; plane_a: as HostRows::fetch() has it. Rows in memory are there when
  // this returns, all when the disk's part is finished. Throws base::Error for rows that are no valid encoding.
  TieredFetch fetch(std::span<const int64_t> ids, std::byte* out, bool plane_a = false) const;

  const DiskRows& disk() const { return disk_; }
  int64_t num_rows_in_memory() const { return in_memory_.num_chosen(); }

 private:
  DiskRows disk_;
  RowBits in_memory_;
  base::Mapping memory_;
  ibp::EncodedRows rows_;  // in memory
  ibp::HostDecoder decoder_;
};

}  // namespace cohort::cache
