// encode_gpu() batch after batch: what one batch gives is compared in gather_test.cu.
#include <gtest/gtest.h>

#include "tests/ibp/fetched.h"

namespace cohort::ibp {
namespace {

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
      expect_same_encoding(host, encode_gpu(from_pinned, profile, {.layout = layout}));
      expect_same_encoding(host, encode_gpu(rows.table, profile, {.layout = layout}));
    }
  }
}

TEST(GpuEncode, EveryRowInTheOverflowArea) {
  const Rows rows = make_rows(Content::kNoise, Dtype::kUint8, 60'000, 1300);
  const Profile profile = fit(rows.table, {.codec = "sparse"}).profile;
  const EncodeOptions options{.layout = LayoutChoice::kSlots, .slot_bytes = 32};
  const EncodedRows gpu = encode_gpu(rows.table, profile, options);
  EXPECT_EQ(gpu.ref.overflow_bytes, 1300 * 60'000);
  expect_same_encoding(encode(rows.table, profile, options), gpu);
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
    expect_same_encoding(encode(rows.table, profile, options), gpu);
    const auto too_few = static_cast<std::size_t>(gpu.ref.data_bytes) - 1;
    EXPECT_THROW(encode_gpu(rows.table, profile, options, out.first(too_few)), base::Error);
    EXPECT_THROW(encode_gpu(rows.table, profile, options, out.subspan(8)), base::Error);
  }
}

TEST(GpuEncode, ALargeResultMovesToTheGpu) {
  const Rows rows = make_rows(Content::kNoise, Dtype::kBits64, 2000, 6000);  // 96 MB that do not shrink
  const EncodedRows encoded = encode_gpu(rows.table, fit(rows.table, {.codec = "raw"}).profile);
  const DeviceTable table(encoded, Place::kDevice);
  const auto found = base::download(table.ref().data, encoded.ref.data_bytes);
  EXPECT_EQ(std::memcmp(found.data(), encoded.ref.data, found.size()), 0);
}

}  // namespace
}  // namespace cohort::ibp
