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

RowSlab::RowSlab(const SlabRows& rows, std::span<const uint32_t> nodes, int64_t bytes)
    : slab_(static_cast<std::size_t>(bytes), "allocate a slab of feature rows"), entries_(nodes.size(), kNoEntry) {
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
      entries_[first + static_cast<std::size_t>(placed)] =
          ibp::make_entry(static_cast<uint64_t>(end), (span.bytes + 3) / 4 * 4, span.raw);
      if (room % step_bytes_ != 0) step_bytes_ = std::gcd(step_bytes_, static_cast<uint32_t>(room));
      end += room;
    }
    std::byte* piece = copy.next();
#pragma omp parallel for
    for (int64_t i = 0; i < placed; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto offset = static_cast<int64_t>(ibp::entry_offset_bytes(entries_[first + at]));
      std::memcpy(piece + (offset - begin), spans[at].begin, spans[at].bytes);
    }
    copy.copy_to(slab_.data() + begin, static_cast<std::size_t>(end - begin));
  }
  copy.finish();
}

}  // namespace cohort::cache
