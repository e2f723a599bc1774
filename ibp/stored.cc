#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/format.h"
#include "ibp/bits.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {

using base::Error;

StoredRows take(const EncodedRows& encoded, std::span<const int64_t> index) {
  const auto count = static_cast<int64_t>(index.size());
  StoredRows out;
  out.entries.resize(index.size());
  uint64_t bytes = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0 || index[i] >= encoded.ref.num_rows) {
      throw Error({base::format("take: index[{}]", i), base::format("0 to {}", encoded.ref.num_rows - 1),
                   base::format("{}", index[i]), ""});
    }
    const RowSpan span = locate(encoded.ref, index[i]);
    const uint32_t room = static_cast<uint32_t>(round_up(joined_bytes(encoded.ref, span), 4));
    out.entries[i] = make_entry(bytes, room, span.raw);
    bytes += room;
  }
  out.data.resize(bytes);
#pragma omp parallel for schedule(static) if (worth_threads(static_cast <int64_t>(bytes)))
  for (int64_t i = 0; i < count; ++i) {
    const auto place = static_cast<std::size_t>(i);
    const RowSpan span = locate(encoded.ref, index[place]);
    const uint64_t entry = out.entries[place];
    std::byte* const to = out.data.data() + entry_offset_bytes(entry);
    copy_joined(encoded.ref, span, to);
    const uint32_t used = joined_bytes(encoded.ref, span);
    std::memset(to + used, 0, entry_bytes(entry) - used);
  }
  return out;
}

void decode_stored(const Profile& profile, std::span<const uint64_t> entries, std::span<const std::byte> data,
                   void* out) {
  const ProfileTables tables(profile);
  const int64_t row_bytes = profile.row_bytes();
  const uint64_t raw_bytes = round_up(profile.row_bytes(), 4);
  const uint64_t planes_bytes =
      profile.codec == Codec::kPlanes ? tables.ref().slot_bytes + tables.ref().plane_b_bytes() : 0;
  auto* const rows = static_cast<std::byte*>(out);
  int64_t bad = INT64_MAX;
#pragma omp parallel reduction(min : bad) if (worth_threads(std::ssize(entries) * row_bytes))
  {
    std::vector<std::byte> scratch;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < std::ssize(entries); ++i) {
      const uint64_t entry = entries[static_cast<std::size_t>(i)];
      const uint64_t first = entry_offset_bytes(entry), bytes = entry_bytes(entry);
      const bool inside = first <= data.size() && bytes <= data.size() - first;
      RowSpan span{data.data() + first, static_cast<uint32_t>(bytes), entry_raw(entry), false};
      const bool whole = span.raw ? bytes == raw_bytes : planes_bytes == 0 || bytes == planes_bytes;
      if (!span.raw && planes_bytes) {
        span.bytes = tables.ref().slot_bytes;
        span.plane_b = span.begin + span.bytes;
      }
      if (inside && whole && decode_row(tables.ref(), span, rows + i * row_bytes, scratch)) {
        continue;
      }
      bad = std::min(bad, i);
    }
  }
  if (bad == INT64_MAX) return;
  throw Error({base::format("stored row {}", bad), "a valid encoding", "bytes that are not an encoded row",
               "the data is damaged, or belongs to another profile"});
}

}  // namespace cohort::ibp
