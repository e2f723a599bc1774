#include "ibp/homes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/parallel_copy.h"
#include "ibp/bits.h"
#include "ibp/writable.h"

namespace cohort::ibp {
namespace {

using base::Error;

void zero(std::span<std::byte> to) {
  constexpr std::size_t kChunk = std::size_t{1} << 22;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t first = 0; first < to.size(); first += kChunk) {
    std::memset(to.data() + first, 0, std::min(kChunk, to.size() - first));
  }
}

}  // namespace

Homes::Homes(const EncodedRows& rows) : entries_(static_cast<std::size_t>(rows.ref.num_rows)) {
  ref_.num_rows = rows.ref.num_rows;
  ref_.row_bytes = rows.ref.row_bytes;
  ref_.stride_bytes = rows.ref.layout == Layout::kPacked ? 0 : rows.ref.stride_bytes;
  ref_.overflow_begin = round_up(static_cast<uint64_t>(rows.ref.data_bytes), kLineBytes);
  ref_.longest_bytes = std::max(longest_coded_bytes(rows.ref), ref_.stride_bytes);
  num_cells_ = rows.ref.overflow_bytes / ref_.whole_bytes();
  check(rows.profile);
  find_rows(rows);
  ref_.entries = entries_.data();
  if (ref_.stride_bytes != 0) return;
  homes_ = entries_;
  ref_.homes = homes_.data();
}

Homes::Homes(const Profile& profile, int64_t num_rows, uint32_t slot_bytes) {
  validate(profile);
  ref_.num_rows = num_rows;
  ref_.row_bytes = profile.row_bytes();
  ref_.stride_bytes = ref_.longest_bytes = slot_bytes;
  ref_.has_zeros = true;
  num_cells_ = 1;
  if (num_rows < 0 || std::cmp_greater(num_rows, kEntryOffsetMask)) {
    throw Error({"table of zeros: rows", "0 to 2^40 - 1", base::format("{}", num_rows), "split the table"});
  }
  if (slot_bytes == 0 || slot_bytes % 4 != 0 || slot_bytes > ref_.whole_bytes()) {
    throw Error({"table of zeros: slot bytes", base::format("a multiple of 4 of 4 to {}", ref_.whole_bytes()),
                 base::format("{}", slot_bytes), ""});
  }
  ref_.overflow_begin = round_up(static_cast<uint64_t>(num_rows) * slot_bytes, kLineBytes);
  check(profile);
  entries_.assign(static_cast<std::size_t>(num_rows), ref_.entry_of_cell(0));
  ref_.entries = entries_.data();
}

void Homes::check(const Profile& profile) const {
  if (profile.codec == Codec::kPlanes) {
    throw Error({"put: table", "a codec that stores each row in one piece", "codec planes",
                 "use another codec for rows that change"});
  }
  const uint64_t most = bytes_with(num_cells_ + ref_.num_rows);
  if (most / 4 > kEntryOffsetMask) {
    throw Error({"put: table", "at most 4 TiB, raw", base::format("{} bytes", most), "split the table"});
  }
}

uint64_t Homes::bytes_with(int64_t num_cells) const {
  return ref_.overflow_begin + static_cast<uint64_t>(num_cells) * ref_.whole_bytes();
}

// Gives each row the entry that it has in the packed layout.
void Homes::find_rows(const EncodedRows& rows) {
  const ProfileTables tables(rows.profile);
  const EncodedRef& from = rows.ref;
  int64_t bad = -1;
#pragma omp parallel reduction(max : bad) if (worth_threads(from.data_bytes))
  {
    std::vector<std::byte> scratch, row(from.row_bytes);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < from.num_rows; ++i) {
      const RowSpan span = locate(from, i);
      const bool away = span.raw && from.layout == Layout::kSlots;
      const uint64_t offset = away ? ref_.overflow_begin + static_cast<uint64_t>(span.begin - from.overflow)
                                   : static_cast<uint64_t>(span.begin - from.data);
      // A slot does not say how much of it its row uses; an entry does.
      const uint32_t bytes = span.raw ? ref_.raw_bytes() : coded_bytes(tables.ref(), span, row.data(), scratch);
      if (bytes == 0) bad = std::max(bad, i);
      entries_[static_cast<std::size_t>(i)] = make_entry(offset, bytes, span.raw);
    }
  }
  if (bad >= 0) fail_row(bad);
}

void Homes::copy(const EncodedRows& rows, std::byte* to) const {
  base::parallel_copy(to, rows.ref.data, static_cast<std::size_t>(rows.ref.data_bytes));
  base::parallel_copy(to + ref_.overflow_begin, rows.ref.overflow, static_cast<std::size_t>(rows.ref.overflow_bytes));
}

void Homes::fill(const EncodedRows* rows, std::span<std::byte> to) const {
  zero(rows ? to.subspan(static_cast<std::size_t>(rows->ref.data_bytes)) : to);
  if (rows) copy(*rows, to.data());
}

EncodedRef Homes::packed_ref(const HomesRef& at, int64_t num_cells) {
  EncodedRef ref;
  ref.data = at.data;
  ref.entries = at.entries;
  ref.num_rows = at.num_rows;
  ref.data_bytes = static_cast<int64_t>(at.overflow_begin) + num_cells * at.whole_bytes();
  ref.row_bytes = at.row_bytes;
  ref.overflow_stride_bytes = at.whole_bytes();
  ref.max_coded_bytes = at.longest_bytes;
  return ref;
}

}  // namespace cohort::ibp
