// The encoded rows of a table, some of them in host memory and the others far, as a CPU fetches them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/mapping.h"
#include "base/tier_use.h"
#include "cache/far_rows.h"
#include "cache/row_bits.h"
#include "ibp/host.h"

namespace cohort::cache {

// A fetch that is under way.
struct TieredFetch {
  base::TierUse host{};  // what was read from memory
  FarFetch far{};
};

class TieredRows {
 public:
  // `in_memory` is counted. Copies these rows from the file of encoded rows.
  TieredRows(std::shared_ptr<const FarRows> far, RowBits in_memory);

  // out[i] = row ids[i], decoded: [n, row_bytes]; plane_a: as HostRows::fetch() has it. Rows in memory are there when
  // this returns, all when the part that is far is finished. Throws base::Error for rows that are no valid encoding.
  TieredFetch fetch(std::span<const int64_t> ids, std::byte* out, bool plane_a = false) const;

  const FarRows& far() const { return *far_; }
  // Rows in memory: row i of these is the i-th of the chosen ones.
  const ibp::EncodedRows& in_memory() const { return rows_; }
  const RowBits& chosen() const { return in_memory_; }

 private:
  std::shared_ptr<const FarRows> far_;
  RowBits in_memory_;
  base::Mapping memory_;
  ibp::EncodedRows rows_;  // in memory
  ibp::HostDecoder decoder_;
};

}  // namespace cohort::cache
