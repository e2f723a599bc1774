#include "cache/row_slab.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "cache/directory.h"

namespace cohort::cache {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;  // of rows copied at a time

}  // namespace

RowSlab::RowSlab(SlabRows& rows, std::span<const uint32_t> nodes, int64_t bytes)
    : slab_(static_cast<std::size_t>(bytes), "allocate a slab of feature rows"), entries_(nodes.size(), kNoEntry) {
  const int64_t most_bytes = rows.profile().row_bytes() + rows.align_bytes(), align = rows.align_bytes();
  const auto piece_rows = static_cast<std::size_t>(std::max<int64_t>(1, kPieceBytes / most_bytes));
  const base::PinnedBytes piece(std::min(piece_rows, nodes.size()) * static_cast<std::size_t>(most_bytes));
  int64_t end = 0;
  bool full = false;
  for (std::size_t first = 0; first < nodes.size() && !full; first += piece_rows) {
    const auto spans = rows.read(nodes.subspan(first, std::min(piece_rows, nodes.size() - first)));
    const int64_t begin = end;
    for (std::size_t i = 0; i < spans.size() && !full; ++i) {
      const ibp::RowSpan& span = spans[i];
      const int64_t room = (span.bytes + align - 1) / align * align;
      full = end + room > bytes;
      if (full) break;
      std::memcpy(piece.data() + (end - begin), span.begin, span.bytes);
      entries_[first + i] = ibp::make_entry(static_cast<uint64_t>(end), (span.bytes + 3) / 4 * 4, span.raw);
      step_bytes_ = std::gcd(step_bytes_, static_cast<uint32_t>(room));
      end += room;
    }
    base::copy_to_gpu(slab_.data() + begin, piece.data(), static_cast<std::size_t>(end - begin),
                      "copy rows into a slab");
  }
}

}  // namespace cohort::cache
