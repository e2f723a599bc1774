// Which rows of encoded tables are kept in host memory, where they do not all find room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/row_bits.h"
#include "ibp/encoded_ref.h"

namespace cohort::cache {

// The rows of one node type.
struct HostTable {
  int64_t num_rows = 0;
  const ibp::EncodedRef* rows = nullptr;  // null: the type has no features
  const RowBits* elsewhere = nullptr;     // rows that need no place, as every GPU has them; null: none
};

// The rows that are read most often, of all tables together, until `room_bytes` are spent; among rows that are read
// equally often, the first. `reads`: uint32 [rows of all tables], how often each was counted; empty: nothing was.
// RowSubset::bytes_of() says what a row takes. The result is counted (RowBits::count()).
std::vector<RowBits> rows_in_host_memory(std::span<const HostTable> tables, std::span<const uint32_t> reads,
                                         int64_t room_bytes);

}  // namespace cohort::cache
