// encode_gpu() batch after batch: what one batch gives is compared in gather_test.cu.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/owners.h"
#include "ibp/gpu.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

void expect_same(const EncodedRows& host, const EncodedRows& gpu) {
  const EncodedRef &a = host.ref, &b = gpu.ref;
  ASSERT_EQ(a.num_rows, b.num_rows);
  ASSERT_EQ(a.data_bytes, b.data_bytes);
  ASSERT_EQ(a.overflow_bytes, b.overflow_bytes);
  ASSERT_EQ(a.max_coded_bytes, b.max_coded_bytes);
  ASSERT_EQ(std::memcmp(a.data, b.data, std::size_t(a.data_bytes)), 0);
  if (a.overflow_bytes) ASSERT_EQ(std::memcmp(a.overflow, b.overflow, std::size_t(a.overflow_bytes)), 0);
  const auto rows = std::size_t(a.num_rows), words = (rows + 31) / 32;
  if (a.entries) ASSERT_EQ(std::memcmp(a.entries, b.entries, rows * 8), 0);
  if (a.flags) ASSERT_EQ(std::memcmp(a.flags, b.flags, words * 4), 0);
  if (a.ranks) ASSERT_EQ(std::memcmp(a.ranks, b.ranks, words * 4), 0);
}

// 208 MB: seven batches through four lanes, with rows that do not shrink in each.
Rows many_rows() {
  Rows rows = make_rows(Content::kOnes, Dtype::kBits64, 2000, 13'001);
  for (int64_t row = 0; row < rows.table.num_rows; row += 37) {
    for (int64_t i = 0; i < 16'000; ++i) {
      rows.bytes[std::size_t(row * 16'000 + i)] = static_cast<std::byte>(base::random_64(base::key_of(5), row, i));
    }
  }
  return rows;
}

TEST(GpuEncode, ManyBatchesAreTheHostsBytes) {
  const Rows rows = many_rows();
  base::PinnedBytes pinned(rows.bytes.size());
  std::memcpy(pinned.data(), rows.bytes.data(), rows.bytes.size());
  RowTable from_pinned = rows.table;
  from_pinned.data = pinned.data();
  for (const char* codec : {"sparse", "invariant", "raw"}) {
    const Profile profile = fit(rows.table, {.codec = codec}).profile;
    for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
      SCOPED_TRACE(std::string(codec) + (layout == LayoutChoice::kSlots ? ", slots" : ", packed"));
      const EncodedRows host = encode(rows.table, profile, {.layout = layout});
      expect_same(host, encode_gpu(from_pinned, profile, {.layout = layout}));
      expect_same(host, encode_gpu(rows.table, profile, {.layout = layout}));
    }
  }
}

TEST(GpuEncode, EveryRowInTheOverflowArea) {
  const Rows rows = make_rows(Content::kNoise, Dtype::kUint8, 60'000, 1300);
  const Profile profile = fit(rows.table, {.codec = "sparse"}).profile;
  const EncodeOptions options{.layout = LayoutChoice::kSlots, .slot_bytes = 32};
  const EncodedRows gpu = encode_gpu(rows.table, profile, options);
  EXPECT_EQ(gpu.ref.overflow_bytes, 1300 * 60'000);
  expect_same(encode(rows.table, profile, options), gpu);
}

TEST(GpuEncode, IntoTheCallersMemory) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 100, 3000);
  const Profile profile = fit(rows.table, {.codec = "exponent"}).profile;
  for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
    const EncodeOptions options{.layout = layout};
    const base::PinnedBytes memory(std::size_t(data_bound(profile, 3000, options)));
    const std::span<std::byte> out(memory.data(), memory.bytes());
    const EncodedRows gpu = encode_gpu(rows.table, profile, options, out);
    EXPECT_EQ(gpu.ref.data, out.data());
    expect_same(encode(rows.table, profile, options), gpu);
    const auto too_few = static_cast<std::size_t>(gpu.ref.data_bytes) - 1;
    EXPECT_THROW(encode_gpu(rows.table, profile, options, out.first(too_few)), base::Error);
    EXPECT_THROW(encode_gpu(rows.table, profile, options, out.subspan(8)), base::Error);
  }
}

TEST(GpuEncode, ALargeResultMovesToTheGpu) {
  const Rows rows = make_rows(Content::kNoise, Dtype::kBits64, 2000, 6000);  // 96 MB that do not shrink
  const EncodedRows encoded = encode_gpu(rows.table, fit(rows.table, {.codec = "raw"}).profile);
  const DeviceTable table(encoded, Place::kDevice);
  std::vector<std::byte> found(static_cast<std::size_t>(encoded.ref.data_bytes));
  base::cuda_check(cudaMemcpy(found.data(), table.ref().data, found.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(std::memcmp(found.data(), encoded.ref.data, found.size()), 0);
}

}  // namespace
}  // namespace cohort::ibp
