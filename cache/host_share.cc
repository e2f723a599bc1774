#include "cache/host_share.h"

#include <algorithm>

#include "base/check.h"
#include "cache/row_subset.h"

namespace cohort::cache {
namespace {

constexpr uint32_t kMostCount = (1 << 16) - 1;  // rows with more reads are as one

// The tables' rows one after the other: visit(table, row, reads).
template <typename Visit>
void for_rows(std::span<const HostTable> tables, std::span<const uint32_t> reads, Visit visit) {
  std::size_t item = 0;
  for (std::size_t table = 0; table < tables.size(); ++table) {
    const HostTable& of = tables[table];
    for (int64_t row = 0; row < of.num_rows; ++row, ++item) {
      if (!of.rows || (of.elsewhere && of.elsewhere->has(row))) continue;
      visit(table, row, reads.empty() ? 0 : std::min(reads[item], kMostCount));
    }
  }
}

}  // namespace

std::vector<RowBits> rows_in_host_memory(std::span<const HostTable> tables, std::span<const uint32_t> reads,
                                         int64_t room_bytes) {
  std::vector<int64_t> bytes(kMostCount + 1);  // of the rows with so many reads
  for_rows(tables, reads, [&](std::size_t table, int64_t row, uint32_t count) {
    bytes[count] += RowSubset::bytes_of(*tables[table].rows, row);
  });
  uint32_t least = kMostCount + 1;  // rows with at least so many reads all find room
  while (least > 0 && bytes[least - 1] <= room_bytes) room_bytes -= bytes[--least];
  std::vector<RowBits> chosen;
  for (const HostTable& table : tables) chosen.emplace_back(table.rows ? table.num_rows : 0);
  for_rows(tables, reads, [&](std::size_t table, int64_t row, uint32_t count) {
    if (count + 1 == least) {
      const int64_t of_row = RowSubset::bytes_of(*tables[table].rows, row);
      if (of_row > room_bytes) room_bytes = 0;  // those behind it find none either
      if (room_bytes == 0) return;
      room_bytes -= of_row;
    } else if (count < least) {
      return;
    }
    chosen[table].choose(row);
  });
  for (RowBits& rows : chosen) rows.count();
  return chosen;
}

}  // namespace cohort::cache
