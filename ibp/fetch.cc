#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ibp/host.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

using base::Error;

// out[i] = row row_of(i), for i < count; returns the first position that went wrong, or INT64_MAX.
template <typename RowOf>
int64_t decode_rows(const EncodedRows& encoded, int64_t count, RowOf row_of, std::byte* out) {
  const ProfileTables tables(encoded.profile);
  const int64_t row_bytes = encoded.ref.row_bytes;
  int64_t bad = INT64_MAX;
#pragma omp parallel reduction(min : bad) if (worth_threads(count * row_bytes))
  {
    std::vector<std::byte> scratch;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = row_of(i);
      const bool inside = row >= 0 && row < encoded.ref.num_rows;
      if (inside && decode_row(tables.ref(), locate(encoded.ref, row), out + i * row_bytes, scratch)) continue;
      bad = std::min(bad, i);
    }
  }
  return bad;
}

}  // namespace

HostDecoder::HostDecoder(const Profile& profile) : tables_(std::make_shared<const ProfileTables>(profile)) {}

bool HostDecoder::decode(const RowSpan& stored, std::byte* row) const {
  thread_local std::vector<std::byte> scratch;
  return decode_row(tables_->ref(), stored, row, scratch);
}

EncodedRows plane_a_of(const EncodedRows& encoded) {
  if (encoded.profile.codec != Codec::kPlanes) {
    throw Error({"fetch: plane A", "rows of codec planes", "codec " + name_of(encoded.profile.codec),
                 "encode the rows with codec planes"});
  }
  EncodedRows rows = encoded;
  rows.ref.plane_b = nullptr;
  return rows;
}

void fetch(const EncodedRows& encoded, std::span<const int64_t> index, void* out) {
  const auto count = static_cast<int64_t>(index.size());
  const auto row_of = [&](int64_t i) { return index[static_cast<std::size_t>(i)]; };
  const int64_t bad = decode_rows(encoded, count, row_of, static_cast<std::byte*>(out));
  if (bad == INT64_MAX) return;
  const int64_t row = row_of(bad);
  if (row >= 0 && row < encoded.ref.num_rows) fail_row(row);
  throw Error({fmt::format("fetch: index[{}]", bad), fmt::format("0 to {}", encoded.ref.num_rows - 1),
               fmt::format("{}", row), ""});
}

void decode(const EncodedRows& encoded, void* out) {
  const auto identity = [](int64_t i) { return i; };
  const int64_t bad = decode_rows(encoded, encoded.ref.num_rows, identity, static_cast<std::byte*>(out));
  if (bad != INT64_MAX) fail_row(bad);
}

}  // namespace cohort::ibp
