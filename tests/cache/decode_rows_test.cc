#include "cache/decode_rows.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/owners.h"
#include "tests/base/fails.h"
#include "tests/base/on_gpu.h"
#include "tests/cache/feature_table.h"

namespace cohort::cache {
namespace {

constexpr int64_t kDecodedRows = 2001;
constexpr int64_t kFewRows = 60;
constexpr std::size_t kGuardBytes = 256;

// All rows, by decode_rows() into two places of GPU 0.
std::vector<std::vector<std::byte>> decoded(const Table& table, int64_t piece_bytes) {
  const auto bytes = static_cast<std::size_t>(table.rows.shape.num_rows * table.rows.row_bytes);
  std::vector<base::DeviceBytes> memory;
  std::vector<RowsOnGpu> gpus;
  for (int i = 0; i < 2; ++i) {
    memory.emplace_back(bytes + kGuardBytes);
    base::fill_gpu(memory.back().data(), 0xEE, bytes + kGuardBytes);
    gpus.push_back({0, memory.back().data()});
  }
  decode_rows(SlabRows(table.rows, true), table.rows.shape.num_rows, gpus, piece_bytes);
  std::vector<std::vector<std::byte>> found;
  for (const base::DeviceBytes& each : memory) {
    found.push_back(base::download(each));
    EXPECT_TRUE(std::all_of(found.back().end() - kGuardBytes, found.back().end(),
                            [](std::byte b) { return b == std::byte{0xEE}; }));
    found.back().resize(bytes);
  }
  return found;
}

void expect_rows_of(const Table& table) {
  const int64_t all = table.rows.shape.num_rows;
  for (const int64_t rows : {int64_t{1}, int64_t{100}, all - 1, all, 2 * all}) {
    if (rows == 1 && all > kFewRows) continue;  // each piece is waited for
    for (const auto& found : decoded(table, rows * table.rows.row_bytes + 3)) {
      ASSERT_EQ(std::memcmp(found.data(), table.bytes.data(), found.size()), 0) << rows << " rows a piece";
    }
  }
}

TEST(GpuDecodeRows, GivesTheRowsOfEveryCodecAndLayout) {
  for (const std::string codec : {"exponent", "invariant", "sparse", "raw"}) {
    for (const ibp::LayoutChoice layout : {ibp::LayoutChoice::kPacked, ibp::LayoutChoice::kSlots}) {
      for (const uint32_t slot_bytes : {0u, 448u}) {
        if (layout == ibp::LayoutChoice::kPacked && slot_bytes > 0) continue;
        SCOPED_TRACE(testing::Message() << codec << static_cast<int>(layout) << " slots of " << slot_bytes);
        Table table("float32", kDecodedRows, 128, 4, codec == "sparse");
        table.encode(codec, {layout, slot_bytes});
        expect_rows_of(table);
      }
    }
  }
}

TEST(GpuDecodeRows, GivesRowsOfOtherSizes) {
  for (const int64_t columns : {4, 20, 256, 1000}) {
    SCOPED_TRACE(columns);
    Table table("float32", kDecodedRows, columns, 4);
    table.encode("auto");
    expect_rows_of(table);
  }
  Table few("float32", kFewRows, 128, 4);
  few.encode("auto");
  expect_rows_of(few);
  Table halves("bfloat16", kDecodedRows, 64, 2);
  halves.encode("auto");
  expect_rows_of(halves);
  decode_rows(SlabRows(halves.rows, true), 0, {});
}

TEST(GpuDecodeRows, NamesADamagedRow) {
  Table table("float32", kDecodedRows, 128, 4);
  table.encode("exponent");
  const ibp::EncodedRef& ref = table.rows.encoded->encoded().ref;
  ASSERT_EQ(ref.layout, ibp::Layout::kSlots);
  // Escapes wherever a code can be: more than the row has exponents for.
  std::memset(const_cast<std::byte*>(ref.data) + 777 * ref.stride_bytes, 0, 448);
  EXPECT_TRUE(base::fails_with([&] { decoded(table, 100 * table.rows.row_bytes); }, {"feature row 777"}));
}

}  // namespace
}  // namespace cohort::cache
