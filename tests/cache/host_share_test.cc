#include "cache/host_share.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cache/row_subset.h"
#include "tests/ibp/rows.h"

namespace cohort::cache {
namespace {

ibp::EncodedRows packed_rows(int64_t num_rows, uint32_t num_columns) {
  const ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, num_columns, num_rows);
  return ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "raw"}).profile,
                     {.layout = ibp::LayoutChoice::kPacked});
}

std::vector<int64_t> chosen_of(const RowBits& bits) {
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < bits.num_rows(); ++row) {
    if (bits.has(row)) rows.push_back(row);
  }
  return rows;
}

TEST(HostShare, TakesTheFirstRowsWhereNothingWasCounted) {
  const ibp::EncodedRows rows = packed_rows(100, 4);  // 16 bytes and an entry of 8
  const std::vector<HostTable> tables = {{100, &rows.ref}};
  EXPECT_EQ(chosen_of(rows_in_host_memory(tables, {}, 5 * 24 + 23)[0]), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(rows_in_host_memory(tables, {}, 100 * 24)[0].num_chosen(), 100);
  EXPECT_EQ(rows_in_host_memory(tables, {}, 0)[0].num_chosen(), 0);
}

TEST(HostShare, TakesTheRowsThatAreReadMostAndAmongEqualOnesTheFirst) {
  const ibp::EncodedRows rows = packed_rows(10, 4);
  const std::vector<HostTable> tables = {{10, &rows.ref}};
  const std::vector<uint32_t> reads = {0, 7, 3, 3, 70000, 3, 0, 100000, 3, 1};
  EXPECT_EQ(chosen_of(rows_in_host_memory(tables, reads, 5 * 24)[0]), (std::vector<int64_t>{1, 2, 3, 4, 7}));
  EXPECT_EQ(chosen_of(rows_in_host_memory(tables, reads, 1 * 24)[0]), (std::vector<int64_t>{4}));  // as if equal
}

TEST(HostShare, CountsTheRowsOfAllTypesAndPassesOverThoseElsewhere) {
  const ibp::EncodedRows narrow = packed_rows(6, 4), wide = packed_rows(4, 12);  // 24 and 56 bytes
  RowBits cached(6);
  cached.choose(0);
  const std::vector<HostTable> tables = {{6, &narrow.ref, &cached}, {3}, {4, &wide.ref}};
  const std::vector<uint32_t> reads = {9, 0, 8, 0, 0, 0, 50, 50, 50, 0, 9, 0, 8};
  const auto chosen = rows_in_host_memory(tables, reads, 24 + 2 * 56);
  EXPECT_EQ(chosen_of(chosen[0]), (std::vector<int64_t>{2}));
  EXPECT_EQ(chosen[1].num_rows(), 0);
  EXPECT_EQ(chosen_of(chosen[2]), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(chosen[2].ref().find(3), 1);
}

// Against the definition: rows by falling count and rising number, until the first that finds no room.
TEST(HostShare, SpendsTheRoomInOrder) {
  const ibp::Rows made = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 40, 500);
  const ibp::EncodedRows rows = ibp::encode(made.table, ibp::fit(made.table, {.codec = "sparse"}).profile,
                                            {.layout = ibp::LayoutChoice::kPacked});
  const std::vector<HostTable> tables = {{500, &rows.ref}};
  std::vector<uint32_t> reads(500);
  for (std::size_t i = 0; i < reads.size(); ++i) reads[i] = static_cast<uint32_t>(i * 31 % 17);
  std::vector<int64_t> order(500);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int64_t row) { return reads[static_cast<std::size_t>(row)]; });
  for (const int64_t room : {100, 5000, 20000}) {
    int64_t left = room;
    std::vector<int64_t> expected;
    for (const int64_t row : order) {
      if ((left -= RowSubset::bytes_of(rows.ref, row)) < 0) break;
      expected.push_back(row);
    }
    std::ranges::sort(expected);
    EXPECT_EQ(chosen_of(rows_in_host_memory(tables, reads, room)[0]), expected) << room;
  }
}

}  // namespace
}  // namespace cohort::cache
