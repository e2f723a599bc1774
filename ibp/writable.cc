#include "ibp/writable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/parallel_copy.h"
#include "ibp/bits.h"

namespace cohort::ibp {
namespace {

using base::Error;

constexpr uint32_t kAway = 0;  // what put() notes of a row that its home has no room for

}  // namespace

WritableRows::WritableRows(const EncodedRows& rows)
    : rows_{rows.profile, rows.ref, {}},
      tables_(rows.profile),
      stride_bytes_(rows.ref.layout == Layout::kPacked ? 0 : rows.ref.stride_bytes),
      raw_bytes_(static_cast<uint32_t>(round_up(rows.ref.row_bytes, 4))),
      whole_bytes_(static_cast<uint32_t>(round_up(rows.ref.row_bytes, 16))),
      entries_(static_cast<std::size_t>(rows.ref.num_rows)) {
  overflow_begin_ = round_up(static_cast<uint64_t>(rows.ref.data_bytes), kLineBytes);
  reserve_addresses(rows.ref.num_rows);
  take_over(rows);
}

WritableRows::WritableRows(const Profile& profile, int64_t num_rows, uint32_t slot_bytes)
    : rows_{profile, {}, {}},
      tables_((validate(profile), profile)),
      stride_bytes_(slot_bytes),
      raw_bytes_(round_up(profile.row_bytes(), 4u)),
      whole_bytes_(round_up(profile.row_bytes(), 16u)) {
  if (num_rows < 0) throw Error({"table of zeros: rows", "0 or more", fmt::format("{}", num_rows), ""});
  if (slot_bytes == 0 || slot_bytes % 4 != 0 || slot_bytes > whole_bytes_) {
    throw Error({"table of zeros: slot bytes", fmt::format("a multiple of 4 of 4 to {}", whole_bytes_),
                 fmt::format("{}", slot_bytes), ""});
  }
  overflow_begin_ = round_up(static_cast<uint64_t>(num_rows) * slot_bytes, kLineBytes);
  reserve_addresses(num_rows + 1);
  has_zeros_ = true;
  num_places_ = 1;
  entries_.assign(static_cast<std::size_t>(num_rows), make_entry(overflow_begin_, raw_bytes_, true));
  rows_.ref.num_rows = num_rows;
  rows_.ref.row_bytes = profile.row_bytes();
  set_ref(0);
}

// Addresses for every row in the overflow area; only what is written takes memory.
void WritableRows::reserve_addresses(int64_t num_rows) {
  if (rows_.profile.codec == Codec::kPlanes) {
    throw Error({"put: table", "rows in one piece", "codec planes", "use another codec for rows that change"});
  }
  const uint64_t most = overflow_begin_ + static_cast<uint64_t>(num_rows) * whole_bytes_;
  if (most / 4 > kEntryOffsetMask) {
    throw Error({"put: table", "at most 4 TiB, raw", fmt::format("{} bytes", most), "split the table"});
  }
  memory_ = base::Mapping::zeros(std::max<uint64_t>(most, 1), "put: host memory", " of addresses for rows");
}

// Copies the rows, and gives each the entry that it has in the packed layout.
void WritableRows::take_over(const EncodedRows& from) {
  base::parallel_copy(memory_.data(), from.ref.data, static_cast<std::size_t>(from.ref.data_bytes));
  base::parallel_copy(memory_.data() + overflow_begin_, from.ref.overflow,
                      static_cast<std::size_t>(from.ref.overflow_bytes));
  num_places_ = from.ref.overflow_bytes / whole_bytes_;
  int64_t bad = -1;
#pragma omp parallel reduction(max : bad) if (worth_threads(from.ref.data_bytes))
  {
    std::vector<std::byte> scratch, row(from.ref.row_bytes);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < from.ref.num_rows; ++i) {
      const RowSpan span = locate(from.ref, i);
      const bool away = span.raw && from.ref.layout == Layout::kSlots;
      const uint64_t offset = away ? overflow_begin_ + static_cast<uint64_t>(span.begin - from.ref.overflow)
                                   : static_cast<uint64_t>(span.begin - from.ref.data);
      // A slot does not say how much of it its row uses; an entry does.
      const uint32_t bytes = span.raw ? raw_bytes_ : coded_bytes(tables_.ref(), span, row.data(), scratch);
      if (bytes == 0) bad = std::max(bad, i);
      entries_[static_cast<std::size_t>(i)] = make_entry(offset, bytes, span.raw);
    }
  }
  if (bad >= 0) fail_row(bad);
  if (stride_bytes_ == 0) homes_ = entries_;
  set_ref(longest_coded_bytes(from.ref));
}

void WritableRows::set_ref(uint32_t max_coded_bytes) {
  EncodedRef ref;
  ref.data = memory_.data();
  ref.entries = entries_.data();
  ref.num_rows = rows_.ref.num_rows;
  ref.data_bytes = static_cast<int64_t>(overflow_begin_) + num_places_ * whole_bytes_;
  ref.row_bytes = rows_.ref.row_bytes;
  ref.overflow_stride_bytes = whole_bytes_;
  ref.max_coded_bytes = max_coded_bytes;
  rows_.ref = ref;
}

WritableRows::Home WritableRows::home_of(int64_t row) const {
  if (stride_bytes_ != 0) return {static_cast<uint64_t>(row) * stride_bytes_, stride_bytes_};
  const uint64_t entry = homes_[static_cast<std::size_t>(row)];
  return {entry_offset_bytes(entry), entry_bytes(entry)};
}

bool WritableRows::is_away(int64_t row) const {
  const uint64_t offset = entry_offset_bytes(entries_[static_cast<std::size_t>(row)]);
  return offset >= overflow_begin_ + (has_zeros_ ? whole_bytes_ : 0);
}

void WritableRows::check_ids(std::span<const int64_t> ids) const {
  const int64_t num_rows = rows_.ref.num_rows;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < num_rows) continue;
    throw Error({fmt::format("put: ids[{}]", i), fmt::format("0 to {}", num_rows - 1), fmt::format("{}", ids[i]), ""});
  }
  std::vector<int64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return;
  throw Error({"put: ids", "each row once", fmt::format("row {} twice", *twice), "put the last of its rows only"});
}

void WritableRows::store_away(int64_t row, const std::byte* raw) {
  uint64_t& entry = entries_[static_cast<std::size_t>(row)];
  if (!is_away(row)) {
    int64_t place = num_places_;
    if (free_.empty()) {
      ++num_places_;
    } else {
      place = free_.back();
      free_.pop_back();
    }
    entry = make_entry(overflow_begin_ + static_cast<uint64_t>(place) * whole_bytes_, raw_bytes_, true);
  }
  std::memcpy(memory_.data() + entry_offset_bytes(entry), raw, rows_.ref.row_bytes);
}

void WritableRows::put(std::span<const int64_t> ids, const RowTable& rows) {
  check_table_fits(rows, rows_.profile, "put");
  if (std::cmp_not_equal(ids.size(), rows.num_rows)) {
    throw Error({"put: rows", fmt::format("{}, one for each id", ids.size()), fmt::format("{}", rows.num_rows), ""});
  }
  check_ids(ids);
  std::vector<uint32_t> bytes(ids.size());
  free_.reserve(free_.size() + ids.size());  // from here on nothing can fail
  encode_each(tables_.ref(), rows, [&](int64_t i, uint32_t coded, const std::byte* from) {
    const Home home = home_of(ids[static_cast<std::size_t>(i)]);
    const bool raw = coded == 0;
    const uint32_t used = raw ? raw_bytes_ : coded;
    bytes[static_cast<std::size_t>(i)] = used <= home.bytes ? used : kAway;
    if (used > home.bytes) return;
    std::byte* to = memory_.data() + home.offset;
    std::memcpy(to, raw ? rows.row(i) : from, raw ? rows_.ref.row_bytes : coded);
    if (raw) std::memset(to + rows_.ref.row_bytes, 0, raw_bytes_ - rows_.ref.row_bytes);
  });
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = ids[i];
    if (bytes[i] == kAway) {
      store_away(row, rows.row(static_cast<int64_t>(i)));
      continue;
    }
    uint64_t& entry = entries_[static_cast<std::size_t>(row)];
    if (is_away(row)) {
      free_.push_back(static_cast<int64_t>((entry_offset_bytes(entry) - overflow_begin_) / whole_bytes_));
    }
    const bool raw = bytes[i] >= rows_.ref.row_bytes;  // a coded row is shorter
    entry = make_entry(home_of(row).offset, bytes[i], raw);
    if (!raw) rows_.ref.max_coded_bytes = std::max(rows_.ref.max_coded_bytes, bytes[i]);
  }
  rows_.ref.data_bytes = static_cast<int64_t>(overflow_begin_) + num_places_ * whole_bytes_;
}

}  // namespace cohort::ibp
