#include "cache/row_subset.h"

#include <algorithm>
#include <cstring>

#include "base/bits.h"
#include "base/check.h"

namespace cohort::cache {
namespace {

constexpr int64_t kRegionAlign = 128;
constexpr int64_t kPieceRows = 1 << 18;
constexpr int64_t kRowEntryBytes = sizeof(uint64_t);

int64_t packed_bytes(const ibp::RowSpan& row) { return base::round_up(int64_t{row.bytes}, 4); }

}  // namespace

int64_t RowSubset::bytes_of(const ibp::EncodedRef& all, int64_t row) {
  const ibp::RowSpan span = ibp::locate(all, row);
  if (all.layout != ibp::Layout::kSlots) return packed_bytes(span) + kRowEntryBytes;
  return int64_t{all.stride_bytes} + all.plane_b_stride_bytes + (span.raw ? all.overflow_stride_bytes : 0);
}

// Rows that are not in slots are packed.
RowSubset::RowSubset(const ibp::EncodedRows& all, const RowBits& rows) : all_(all), rows_(rows), ref_(all.ref) {
  base::require(rows.num_rows() == all.ref.num_rows, "a choice among all rows");
  const bool in_slots = ref_.layout == ibp::Layout::kSlots;
  ref_.num_rows = rows.num_chosen();
  ref_.data_bytes = in_slots ? ref_.num_rows * ref_.stride_bytes : 0;
  ref_.overflow_bytes = 0;
  if (in_slots) {
    directory_->flags.resize(static_cast<std::size_t>((ref_.num_rows + 31) / 32));
    directory_->ranks.resize(directory_->flags.size());
  } else {
    ref_.layout = ibp::Layout::kPacked;
    ref_.stride_bytes = 0;
    directory_->entries.resize(static_cast<std::size_t>(ref_.num_rows));
  }
  int64_t number = 0;
  for (int64_t row = 0; row < rows.num_rows(); ++row) {
    if (rows.has(row)) add(ibp::locate(all.ref, row), number++);
  }
}

void RowSubset::add(const ibp::RowSpan& row, int64_t number) {
  if (ref_.layout == ibp::Layout::kPacked) {
    const auto bytes = static_cast<uint32_t>(packed_bytes(row));
    directory_->entries[static_cast<std::size_t>(number)] =
        ibp::make_entry(static_cast<uint64_t>(ref_.data_bytes), bytes, row.raw);
    ref_.data_bytes += bytes;
    return;
  }
  const auto word = static_cast<std::size_t>(number / 32);
  if (number % 32 == 0) {
    directory_->ranks[word] = static_cast<uint32_t>(ref_.overflow_bytes / ref_.overflow_stride_bytes);
  }
  if (!row.raw) return;
  directory_->flags[word] |= 1u << (number % 32);
  ref_.overflow_bytes += ref_.overflow_stride_bytes;
}

int64_t RowSubset::bytes() const {
  return base::round_up(ref_.data_bytes, kRegionAlign) + base::round_up(ref_.plane_b_bytes(), kRegionAlign) +
         ref_.overflow_bytes;
}

ibp::EncodedRows RowSubset::copy_to(std::byte* memory, const std::function<void()>& after_piece) const {
  ibp::EncodedRows some{all_.profile, ref_, {directory_}};
  std::byte* const plane_b = memory + base::round_up(ref_.data_bytes, kRegionAlign);
  some.ref.data = memory;
  if (all_.ref.plane_b) some.ref.plane_b = plane_b;
  some.ref.overflow = plane_b + base::round_up(ref_.plane_b_bytes(), kRegionAlign);
  some.ref.entries = directory_->entries.data();
  some.ref.lengths = nullptr;
  some.ref.flags = directory_->flags.data();
  some.ref.ranks = directory_->ranks.data();
  for (int64_t first = 0; first < rows_.num_rows(); first += kPieceRows) {
    const int64_t last = std::min(rows_.num_rows(), first + kPieceRows);
#pragma omp parallel for schedule(static)
    for (int64_t row = first; row < last; ++row) {
      const int64_t number = rows_.ref().find(row);
      if (number < 0) continue;
      const ibp::RowSpan from = ibp::locate(all_.ref, row), to = ibp::locate(some.ref, number);
      std::memcpy(memory + (to.begin - memory), from.begin, from.bytes);
      if (to.plane_b) std::memcpy(plane_b + (to.plane_b - plane_b), from.plane_b, ref_.plane_b_stride_bytes);
    }
    after_piece();
  }
  return some;
}

}  // namespace cohort::cache
