#include "ibp/writable.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/format.h"

namespace cohort::ibp {
namespace {

using base::Error;

}  // namespace

WritableRows::WritableRows(const EncodedRows& rows)
    : rows_{rows.profile, {}, {}}, tables_(rows.profile), homes_(rows), ref_(homes_.ref()) {
  reserve_addresses();
  homes_.copy(rows, memory_.data());
}

WritableRows::WritableRows(const Profile& profile, int64_t num_rows, uint32_t slot_bytes)
    : rows_{profile, {}, {}},
      tables_((validate(profile), profile)),
      homes_(profile, num_rows, slot_bytes),
      ref_(homes_.ref()) {
  reserve_addresses();
}

// Addresses for every row in the overflow area; only what is written takes memory.
void WritableRows::reserve_addresses() {
  const uint64_t most = homes_.bytes_with(homes_.num_cells() + ref_.num_rows);
  memory_ = base::Mapping::zeros(std::max<uint64_t>(most, 1), "put: host memory", " of addresses for rows");
  ref_.data = memory_.data();
  cells_.used = static_cast<unsigned long long>(homes_.num_cells());
  rows_.ref = Homes::packed_ref(ref_, homes_.num_cells());
}

void WritableRows::check_ids(std::span<const int64_t> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < ref_.num_rows) continue;
    throw Error(
        {base::format("put: ids[{}]", i), base::format("0 to {}", ref_.num_rows - 1), base::format("{}", ids[i]), ""});
  }
  std::vector<int64_t> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return;
  throw Error({"put: ids", "each row once", base::format("row {} twice", *twice), "put the last of its rows only"});
}

// Notes where a row lies now; `coded`: its bytes at home, 0: raw. Away from home it is copied there.
void WritableRows::store(int64_t row, uint32_t coded, const std::byte* raw) {
  const Home home = ref_.home_of(row);
  uint64_t& entry = ref_.entries[row];
  const bool was_away = ref_.is_away(entry);
  const uint32_t used = coded ? coded : ref_.raw_bytes();
  if (used <= home.bytes) {
    if (was_away) list_[cells_.free + cells_.left++] = ref_.cell_of(entry);
    entry = make_entry(home.offset, used, coded == 0);
    return;
  }
  if (!was_away) entry = ref_.entry_of_cell(cells_.take(list_.data(), cells_.taken++));
  std::memcpy(ref_.data + entry_offset_bytes(entry), raw, ref_.row_bytes);
}

void WritableRows::put(std::span<const int64_t> ids, const RowTable& rows) {
  check_table_fits(rows, rows_.profile, "put");
  if (std::cmp_not_equal(ids.size(), rows.num_rows)) {
    throw Error({"put: rows", base::format("{}, one for each id", ids.size()), base::format("{}", rows.num_rows), ""});
  }
  check_ids(ids);
  std::vector<uint32_t> bytes(ids.size());
  list_.resize(std::max<std::size_t>(list_.size(), cells_.free + ids.size()));  // from here on nothing can fail
  encode_each(tables_.ref(), rows, [&](int64_t i, uint32_t coded, const std::byte* from) {
    const Home home = ref_.home_of(ids[static_cast<std::size_t>(i)]);
    if (coded > std::min(home.bytes, ref_.longest_bytes)) coded = 0;
    bytes[static_cast<std::size_t>(i)] = coded;
    std::byte* to = ref_.data + home.offset;
    if (coded) {
      std::memcpy(to, from, coded);
    } else if (ref_.raw_bytes() <= home.bytes) {
      std::memcpy(to, rows.row(i), ref_.row_bytes);
      std::memset(to + ref_.row_bytes, 0, ref_.raw_bytes() - ref_.row_bytes);
    }
  });
  for (std::size_t i = 0; i < ids.size(); ++i) store(ids[i], bytes[i], rows.row(static_cast<int64_t>(i)));
  cells_.close_gap(list_.data(), 0, 1);
  cells_.count_again(~0ull);
  rows_.ref.data_bytes = Homes::packed_ref(ref_, static_cast<int64_t>(cells_.used)).data_bytes;
}

}  // namespace cohort::ibp
