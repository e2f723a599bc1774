#include "ibp/writable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/check.h"
#include "tests/base/fails.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

constexpr int64_t kRows = 300;

// `count` different rows of the table, as random numbers of this step draw them.
std::vector<int64_t> draw_ids(int64_t count, uint64_t step) {
  std::vector<int64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(step));
  ids.resize(static_cast<std::size_t>(count));
  return ids;
}

// A hundred rows of each kind are put, of which `expected` is told.
void expect_puts(WritableRows& written, std::vector<std::byte>& expected, const RowTable& like) {
  const uint32_t row_bytes = like.row_bytes();
  uint64_t step = 0;
  for (const Content content : kAllContents) {
    const Rows fresh = make_rows(content, like.dtype, like.num_columns, 100);
    const std::vector<int64_t> ids = draw_ids(100, ++step);
    written.put(ids, fresh.table);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::memcpy(expected.data() + ids[i] * row_bytes, fresh.table.row(static_cast<int64_t>(i)), row_bytes);
    }
    ASSERT_EQ(decoded(written.rows()), expected) << name_of(written.rows().profile.codec) << " " << name_of(content);
  }
}

class Writable : public testing::TestWithParam<Dtype> {};

TEST_P(Writable, BeginsWithZerosWhereNothingWasPut) {
  for (const uint32_t num_columns : {1u, 50u}) {
    const Rows rows = make_rows(Content::kDense, GetParam(), num_columns, 100);
    const uint32_t row_bytes = rows.table.row_bytes(), whole = (row_bytes + 15) / 16 * 16;
    for (const Profile& profile : all_profiles(rows.table)) {
      for (const uint32_t slot_bytes : {4u, whole / 2 / 4 * 4, whole}) {
        WritableRows written(profile, kRows, slot_bytes);
        std::vector<std::byte> expected(kRows * row_bytes);
        ASSERT_EQ(decoded(written.rows()), expected);
        const int64_t empty = written.rows().stored_bytes();
        expect_puts(written, expected, rows.table);
        ASSERT_LE(written.rows().stored_bytes(), empty + kRows * whole);
      }
    }
  }
}

TEST(WritableZeros, NeedRoomForRows) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 50, 100);
  const Profile profile = fit(rows.table).profile;
  for (const uint32_t slot_bytes : {0u, 6u, 212u}) EXPECT_THROW(WritableRows(profile, 5, slot_bytes), base::Error);
  EXPECT_THROW(WritableRows(profile, -1, 16), base::Error);
  EXPECT_TRUE(decoded(WritableRows(profile, 0, 16).rows()).empty());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Writable, testing::ValuesIn(kAllDtypes));

TEST(WritableCells, AreUsedAgain) {
  const Rows fits = make_rows(Content::kDense, Dtype::kFloat32, 64, kRows);
  const Rows noise = make_rows(Content::kNoise, Dtype::kFloat32, 64, kRows);
  const Profile profile = fit(fits.table, {.codec = "exponent"}).profile;
  WritableRows written(encode(fits.table, profile, {LayoutChoice::kSlots, profile.slot_bytes}));
  const int64_t before = written.rows().ref.data_bytes;
  const auto put = [&](const Rows& from, int64_t first, int64_t count) {
    std::vector<int64_t> ids(static_cast<std::size_t>(count));
    std::iota(ids.begin(), ids.end(), first);
    written.put(ids, {from.table.row(first), count, Dtype::kFloat32, 64});
  };
  for (int64_t first = 0; first < kRows; first += 50) {  // 50 rows of noise at a time
    put(noise, first, 50);
    ASSERT_LE(written.rows().ref.data_bytes, before + 50 * 256) << first;
    put(noise, first, 50);
    put(fits, first, 50);
    ASSERT_EQ(decoded(written.rows()), fits.bytes);
  }
  put(noise, 0, kRows);
  EXPECT_GE(written.rows().ref.data_bytes, before + (kRows - 20) * 256);
  EXPECT_EQ(decoded(written.rows()), noise.bytes);
}

TEST(WritableErrors, ChangeNothing) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 16, kRows);
  WritableRows written(encode(rows.table, fit(rows.table).profile));
  const Rows other = make_rows(Content::kNoise, Dtype::kFloat32, 16, 3);
  const auto fails = [&](const std::vector<int64_t>& ids, const RowTable& table, const std::string& text) {
    EXPECT_TRUE(base::fails_with([&] { written.put(ids, table); }, {text}));
  };
  fails({0, 1, kRows}, other.table, "put: ids[2]: expected 0 to 299, found 300");
  fails({0, -1, 2}, other.table, "put: ids[1]");
  fails({5, 6, 5}, other.table, "found row 5 twice");
  fails({0, 1}, other.table, "expected 2, one for each id, found 3");
  fails({0, 1, 2}, {other.table.data, 3, Dtype::kFloat32, 8}, "float32 x 8");
  fails({0, 1, 2}, {other.table.data, 3, Dtype::kBits32, 16}, "bits32 x 16");
  EXPECT_EQ(decoded(written.rows()), rows.bytes);
  written.put({}, {nullptr, 0, Dtype::kFloat32, 16});
  EXPECT_EQ(decoded(written.rows()), rows.bytes);
}

TEST(WritableErrors, DamagedRowsAreNoTable) {
  const Rows rows = make_rows(Content::kConstant, Dtype::kFloat32, 64, kRows);
  const EncodedRows encoded = encode(rows.table, fit(rows.table, {.codec = "sparse"}).profile, {LayoutChoice::kSlots});
  std::vector<uint64_t> ones(static_cast<std::size_t>(encoded.ref.data_bytes) / 8, ~uint64_t{0});
  EncodedRows damaged = encoded;
  damaged.ref.data = reinterpret_cast<const std::byte*>(ones.data());
  EXPECT_THROW(WritableRows{damaged}, base::Error);
}

}  // namespace
}  // namespace cohort::ibp
