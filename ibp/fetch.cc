#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "ibp/bits.h"
#include "ibp/host.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {
namespace {

using base::Error;

// What decoded rows become.
enum class Elements : uint8_t { kAsTheyAre, kBfloat16 };

void round_row(const std::byte* row, bool raw, uint32_t num_columns, std::byte* out) {
  for (uint32_t column = 0; column < num_columns; ++column) {
    const auto bits = load_as<uint32_t>(row + column * 4);
    store_as(out + column * 2, raw ? bfloat16_of_any(bits) : bfloat16_of(bits));
  }
}

// out[i] = row row_of(i), for i < count; returns the first position that went wrong, or INT64_MAX.
template <Elements kElements, typename RowOf>
int64_t decode_rows(const EncodedRows& encoded, int64_t count, RowOf row_of, std::byte* out) {
  constexpr bool kRounded = kElements == Elements::kBfloat16;
  const ProfileTables tables(encoded.profile);
  const int64_t row_bytes = encoded.ref.row_bytes, out_bytes = kRounded ? row_bytes / 2 : row_bytes;
  int64_t bad = INT64_MAX;
#pragma omp parallel reduction(min : bad) if (worth_threads(count * row_bytes))
  {
    std::vector<std::byte> scratch, wide(kRounded ? encoded.ref.row_bytes : 0);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = row_of(i);
      const bool inside = row >= 0 && row < encoded.ref.num_rows;
      std::byte* const to = kRounded ? wide.data() : out + i * out_bytes;
      const RowSpan span = inside ? locate(encoded.ref, row) : RowSpan{};
      if (!inside || !decode_row(tables.ref(), span, to, scratch)) {
        bad = std::min(bad, i);
      } else if constexpr (kRounded) {
        round_row(to, span.raw, encoded.profile.num_columns, out + i * out_bytes);
      }
    }
  }
  return bad;
}

template <Elements kElements>
void fetch_as(const EncodedRows& encoded, std::span<const int64_t> index, void* out) {
  const auto count = static_cast<int64_t>(index.size());
  const auto row_of = [&](int64_t i) { return index[static_cast<std::size_t>(i)]; };
  const int64_t bad = decode_rows<kElements>(encoded, count, row_of, static_cast<std::byte*>(out));
  if (bad == INT64_MAX) return;
  const int64_t row = row_of(bad);
  if (row >= 0 && row < encoded.ref.num_rows) fail_row(row);
  throw Error({base::format("fetch: index[{}]", bad), base::format("0 to {}", encoded.ref.num_rows - 1),
               base::format("{}", row), ""});
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
  fetch_as<Elements::kAsTheyAre>(encoded, index, out);
}

void fetch_bfloat16(const EncodedRows& encoded, std::span<const int64_t> index, uint16_t* out) {
  fetch_as<Elements::kBfloat16>(plane_a_of(encoded), index, out);
}

void decode(const EncodedRows& encoded, void* out) {
  const auto identity = [](int64_t i) { return i; };
  const int64_t bad =
      decode_rows<Elements::kAsTheyAre>(encoded, encoded.ref.num_rows, identity, static_cast<std::byte*>(out));
  if (bad != INT64_MAX) fail_row(bad);
}

}  // namespace cohort::ibp
