#include "cache/row_subset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/ibp/rows.h"

namespace cohort::cache {
namespace {

constexpr int64_t kSubsetRows = 1003;

TEST(RowBits, FindTheNumberOfEachChosenRow) {
  RowBits bits(kSubsetRows);
  for (int64_t row = 0; row < kSubsetRows; row += 7) bits.choose(row);
  bits.choose(kSubsetRows - 1);
  bits.count();
  int64_t number = 0;
  for (int64_t row = 0; row < kSubsetRows; ++row) {
    const bool chosen = row % 7 == 0 || row == kSubsetRows - 1;
    ASSERT_EQ(bits.has(row), chosen);
    ASSERT_EQ(bits.ref().find(row), chosen ? number++ : -1) << row;
  }
  EXPECT_EQ(bits.num_chosen(), number);
  EXPECT_EQ(RowBitsRef{}.find(5), -1);
}

struct SubsetCase {
  const char* codec;
  ibp::LayoutChoice layout;
  bool in_place = false;
  uint32_t num_columns = 48;
};

class Subset : public testing::TestWithParam<SubsetCase> {};

// The rows decode to the same, and take what bytes_of() has said.
TEST_P(Subset, HasTheChosenRows) {
  ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, GetParam().num_columns, kSubsetRows);
  const std::vector<std::byte> expected = rows.bytes;
  const ibp::Profile profile = ibp::fit(rows.table, {.codec = GetParam().codec}).profile;
  const ibp::EncodedRows all = GetParam().in_place ? ibp::encode_in_place(rows.table, profile)
                                                   : ibp::encode(rows.table, profile, {.layout = GetParam().layout});
  RowBits bits(kSubsetRows);
  std::vector<int64_t> chosen;
  int64_t most_bytes = 0;
  for (int64_t row = 0; row < kSubsetRows; ++row) {
    if (row % 3 != 1 && row % 64 < 50) continue;
    bits.choose(row);
    chosen.push_back(row);
    most_bytes += RowSubset::bytes_of(all.ref, row);
  }
  bits.count();
  const RowSubset subset(all, bits);
  EXPECT_LE(subset.bytes(), most_bytes + 2 * 128);
  EXPECT_GE(subset.bytes(), most_bytes - 8 * std::ssize(chosen));
  int num_pieces = 0;
  std::vector<uint64_t> memory(static_cast<std::size_t>(subset.bytes()) / 8 + 3);
  auto* begin = reinterpret_cast<std::byte*>(memory.data());
  begin += (16 - reinterpret_cast<uintptr_t>(begin) % 16) % 16;
  const ibp::EncodedRows some = subset.copy_to(begin, [&] { ++num_pieces; });
  EXPECT_GE(num_pieces, 1);
  ASSERT_EQ(some.ref.num_rows, std::ssize(chosen));
  const auto row_bytes = static_cast<std::size_t>(some.ref.row_bytes);
  std::vector<std::byte> found(chosen.size() * row_bytes);
  ibp::decode(some, found.data());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::byte* row = expected.data() + static_cast<std::size_t>(chosen[i]) * row_bytes;
    ASSERT_EQ(std::memcmp(found.data() + i * row_bytes, row, row_bytes), 0) << "row " << chosen[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Subset,
                         testing::Values(SubsetCase{"sparse", ibp::LayoutChoice::kPacked},
                                         SubsetCase{"exponent", ibp::LayoutChoice::kSlots},
                                         SubsetCase{"exponent", ibp::LayoutChoice::kSlots, false, 7},
                                         SubsetCase{"exponent", ibp::LayoutChoice::kSlots, false, 101},
                                         SubsetCase{"planes", ibp::LayoutChoice::kSlots, false, 101},
                                         SubsetCase{"planes", ibp::LayoutChoice::kSlots},
                                         SubsetCase{"raw", ibp::LayoutChoice::kPacked},
                                         SubsetCase{"exponent", ibp::LayoutChoice::kAuto, true}));

TEST(Subset, OfNoRowsHasNone) {
  const ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 8, 40);
  const ibp::EncodedRows all = ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "sparse"}).profile);
  RowBits none(40);
  none.count();
  const RowSubset subset(all, none);
  EXPECT_EQ(subset.bytes(), 0);
  EXPECT_EQ(subset.copy_to(nullptr, [] {}).ref.num_rows, 0);
}

}  // namespace
}  // namespace cohort::cache
