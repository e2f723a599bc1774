#include "cache/row_slab.h"

#include <algorithm>

#include "base/staged_copy.h"
#include "cache/directory.h"
#include "cache/pack_rows.h"

namespace cohort::cache {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} << 20;  // of rows copied at a time

}  // namespace

PlacedRows store_rows(const SlabRows& rows, std::span<const uint32_t> nodes, std::byte* to, int64_t bytes) {
  PlacedRows result;
  result.entries.assign(nodes.size(), kNoEntry);
  const int64_t most_bytes = rows.most_bytes(), align = rows.align_bytes();
  const auto piece_rows = static_cast<std::size_t>(std::max<int64_t>(1, kPieceBytes / most_bytes));
  base::StagedCopy copy(std::min(piece_rows, nodes.size()) * static_cast<std::size_t>(most_bytes),
                        "copy rows into a slab");
  RowReader reader(rows);
  int64_t end = 0;
  bool full = false;
  for (std::size_t first = 0; first < nodes.size() && !full; first += piece_rows) {
    const auto spans = reader.read(nodes.subspan(first, std::min(piece_rows, nodes.size() - first)));
    const PackedRows packed = pack_rows(spans, align, bytes - end, end, copy.next(), result.entries.data() + first);
    result.step_bytes = std::min(result.step_bytes, packed.step_bytes);
    copy.copy_to(to + end, static_cast<std::size_t>(packed.bytes));
    end += packed.bytes;
    full = packed.count < std::ssize(spans);
  }
  copy.finish();
  return result;
}

}  // namespace cohort::cache
