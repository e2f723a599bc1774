#include "cache/tiered_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "base/prefetch.h"
#include "cache/row_subset.h"

namespace cohort::cache {
namespace {

constexpr std::size_t kFewTieredRows = 256;  // not worth waking threads for

[[noreturn]] void fail_row(const std::string& file, int64_t row) {
  throw base::Error({base::format("{}: row {}", file, row), "a valid encoding", "bytes that are not an encoded row",
                     "the data is damaged: run cohort dataset check"});
}

ibp::EncodedRows copy_of(const FarRows& far, const RowBits& rows, base::Mapping& memory) {
  const RowSubset some(far.encoded(), rows);
  const auto bytes = static_cast<std::size_t>(some.bytes());
  if (bytes > 0) memory = base::Mapping::zeros(bytes, "host memory", " for feature rows", "use less --host-bytes");
  return some.copy_to(memory.data(), [&] { far.release_pages(); });
}

}  // namespace

TieredRows::TieredRows(std::shared_ptr<const FarRows> far, RowBits in_memory)
    : far_(std::move(far)),
      in_memory_(std::move(in_memory)),
      rows_(copy_of(*far_, in_memory_, memory_)),
      decoder_(rows_.profile) {}

TieredFetch TieredRows::fetch(std::span<const int64_t> ids, std::byte* out, bool plane_a) const {
  TieredFetch fetch;
  std::vector<int64_t> numbers(ids.size());  // among the rows in memory, or -1
  std::vector<int64_t> missing;
  std::vector<int64_t> positions;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    base::ask_ahead(ids, i, [&](int64_t next) { in_memory_.ref().prefetch(next); });
    numbers[i] = in_memory_.ref().find(ids[i]);
    if (numbers[i] >= 0) continue;
    missing.push_back(ids[i]);
    positions.push_back(static_cast<int64_t>(i));
  }
  const int64_t row_bytes = rows_.ref.row_bytes;
  const std::string& file = far_->path();
  const auto take = [=, decoder = decoder_, at = std::move(positions), wanted = missing](std::size_t i,
                                                                                         const ibp::RowSpan& row) {
    if (!decoder.decode(row, out + at[i] * row_bytes)) fail_row(file, wanted[i]);
  };
  fetch.far = far_->fetch(missing, plane_a, take);
  const ibp::EncodedRef rows = planes_of(rows_.ref, plane_a);
  int64_t bytes = 0, bad = -1;
#pragma omp parallel for schedule(static) reduction(+ : bytes) reduction(max : bad) if (ids.size() > kFewTieredRows)
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (numbers[i] < 0) continue;
    const ibp::RowSpan row = ibp::locate(rows, numbers[i]);
    bytes += ibp::joined_bytes(rows, row);
    if (!decoder_.decode(row, out + static_cast<int64_t>(i) * row_bytes)) bad = ids[i];
  }
  if (bad >= 0) fail_row(file, bad);
  fetch.host = {std::ssize(ids) - std::ssize(missing), bytes, 0};
  return fetch;
}

}  // namespace cohort::cache
