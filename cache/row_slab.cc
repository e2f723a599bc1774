#include "cache/row_slab.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "cache/directory.h"
#include "cache/staged_copy.h"

namespace cohort::cache {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;  // of rows copied at a time

}  // namespace

PlacedRows store_rows(const SlabRows& rows, std::span<const uint32_t> nodes, std::byte* to, int64_t bytes) {
  PlacedRows result;
  result.entries.assign(nodes.size(), kNoEntry);
  const int64_t most_bytes = rows.profile().row_bytes() + rows.align_bytes(), align = rows.align_bytes();
  const auto piece_rows = static_cast<std::size_t>(std::max<int64_t>(1, kPieceBytes / most_bytes));
  StagedCopy copy(std::min(piece_rows, nodes.size()) * static_cast<std::size_t>(most_bytes), "copy rows into a slab");
  RowReader reader(rows);
  int64_t end = 0;
  bool full = false;
  for (std::size_t first = 0; first < nodes.size() && !full; first += piece_rows) {
    const auto spans = reader.read(nodes.subspan(first, std::min(piece_rows, nodes.size() - first)));
    const int64_t begin = end;
    int64_t placed = 0;
    for (; placed < std::ssize(spans); ++placed) {
      const ibp::RowSpan& span = spans[static_cast<std::size_t>(placed)];
      const int64_t room = (span.bytes + align - 1) / align * align;
      full = end + room > bytes;
      if (full) break;
      result.entries[first + static_cast<std::size_t>(placed)] =
          ibp::make_entry(static_cast<uint64_t>(end), (span.bytes + 3) / 4 * 4, span.raw);
      if (room % result.step_bytes != 0) result.step_bytes = std::gcd(result.step_bytes, static_cast<uint32_t>(room));
      end += room;
    }
    std::byte* piece = copy.next();
#pragma omp parallel for
    for (int64_t i = 0; i < placed; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto offset = static_cast<int64_t>(ibp::entry_offset_bytes(result.entries[first + at]));
      std::memcpy(piece + (offset - begin), spans[at].begin, spans[at].bytes);
    }
    copy.copy_to(to + begin, static_cast<std::size_t>(end - begin));
  }
  copy.finish();
  return result;
}

}  // namespace cohort::cache
