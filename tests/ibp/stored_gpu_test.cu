// Rows that a GPU takes as they are stored: decoded from there, they are the rows of the table, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "tests/ibp/fetched.h"

namespace cohort::ibp {
namespace {

struct Taken {
  std::vector<int64_t> sizes, ends;
  base::DeviceArray<uint64_t> entries;
  base::DeviceBytes data;
};

Taken take_by_gpu(const DeviceTable& table, const std::vector<int64_t>& index) {
  const auto count = static_cast<int64_t>(index.size());
  const base::DeviceArray<int64_t> device_index = base::upload(index);
  const base::DeviceArray<int64_t> sizes = base::upload(std::vector<int64_t>(index.size(), -1));
  stored_sizes(table, device_index.data(), count, sizes.data(), nullptr);
  Taken taken;
  taken.sizes = base::download(sizes.data(), index.size());
  taken.ends.resize(index.size());
  std::partial_sum(taken.sizes.begin(), taken.sizes.end(), taken.ends.begin());
  const base::DeviceArray<int64_t> ends = base::upload(taken.ends);
  taken.entries = base::upload(std::vector<uint64_t>(index.size()));
  taken.data = base::DeviceBytes(static_cast<std::size_t>(std::max<int64_t>(taken.ends.back(), 16)));
  take_stored(table, device_index.data(), count, ends.data(), {taken.entries.data(), taken.data.data()}, nullptr);
  return taken;
}

// out[i]: row i of those taken. Returns what fetch_located() says of damaged ones.
unsigned long long decode(const EncodedRows& encoded, const Taken& taken, std::vector<std::byte>& out) {
  const base::DeviceArray<unsigned long long> count =
      base::upload(std::vector<unsigned long long>{taken.entries.size()});
  const base::DeviceArray<unsigned long long> status = base::upload(std::vector<unsigned long long>{kNoFetchError});
  LocatedRows rows;
  rows.entries = taken.entries.data();
  rows.count = count.data();
  rows.regions = {RegionRef{taken.data.data(), static_cast<int64_t>(taken.data.bytes())}};
  rows.step_bytes = kStoredStep;
  const DeviceProfile profile(encoded.profile);
  const base::DeviceBytes found(taken.entries.size() * encoded.ref.row_bytes);
  fetch_located(profile, rows, found.data(), status.data(), nullptr);
  out = base::download(found.data(), found.bytes());
  return base::download(status.data(), 1)[0];
}

void expect_taken(const Rows& rows, const EncodedRows& encoded, const DeviceTable& table) {
  std::vector<int64_t> index(static_cast<std::size_t>(rows.table.num_rows) + 31);
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<int64_t>(base::random_below(uint64_t(rows.table.num_rows), base::key_of(5), i, 0));
  }
  const Taken taken = take_by_gpu(table, index);
  const StoredRows by_host = take(encoded, index);
  const std::vector<uint64_t> entries = base::download(taken.entries.data(), index.size());
  const std::vector<std::byte> data = base::download(taken.data.data(), taken.data.bytes());
  for (std::size_t i = 0; i < index.size(); ++i) {
    const uint32_t bytes = entry_bytes(by_host.entries[i]);
    ASSERT_EQ(entry_bytes(entries[i]), bytes) << i;
    ASSERT_EQ(entry_raw(entries[i]), entry_raw(by_host.entries[i])) << i;
    ASSERT_EQ(entry_offset_bytes(entries[i]) % kStoredStep, 0u) << i;
    ASSERT_EQ(uint64_t(taken.sizes[i]), (bytes + kStoredStep - 1) / kStoredStep * kStoredStep) << i;
  }
  std::vector<std::byte> found;
  ASSERT_EQ(decode(encoded, taken, found), kNoFetchError);
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::size_t row_bytes = rows.table.row_bytes();
    ASSERT_EQ(std::memcmp(found.data() + i * row_bytes, rows.table.row(index[i]), row_bytes), 0) << i;
  }
}

void expect_taken(const Rows& rows, const EncodedRows& encoded, Place place) {
  const DeviceTable table(encoded, place);
  expect_taken(rows, encoded, table);
  if (place == Place::kDevice) expect_taken(rows, encoded, {encoded.profile, table.ref(), table.share()});
}

class GpuStored : public testing::TestWithParam<std::tuple<Dtype, Content>> {};

TEST_P(GpuStored, RowsComeAsTheyAre) {
  const auto [dtype, content] = GetParam();
  for (const uint32_t num_columns : {1u, 3u, 33u, 128u, 301u}) {
    const Rows rows = make_rows(content, dtype, num_columns, 150);
    std::vector<Profile> profiles = all_profiles(rows.table);
    if (dtype == Dtype::kFloat32) profiles.push_back(fit(rows.table, {.codec = "planes"}).profile);
    for (const Profile& profile : profiles) {
      SCOPED_TRACE(name_of(profile.codec) + " x " + std::to_string(num_columns));
      for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
        if (profile.codec == Codec::kPlanes && layout == LayoutChoice::kPacked) continue;  // has slots
        const EncodedRows encoded = encode(rows.table, profile, {.layout = layout});
        for (const Place place : {Place::kPinned, Place::kDevice}) expect_taken(rows, encoded, place);
      }
      if (rows.table.row_bytes() % 4 != 0 || profile.codec == Codec::kPlanes) continue;
      Rows copy = rows;
      copy.table.data = copy.bytes.data();
      expect_taken(rows, encode_in_place(copy.table, profile), Place::kDevice);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuStored,
                         testing::Combine(testing::ValuesIn(kAllDtypes),
                                          testing::Values(Content::kDense, Content::kMixed, Content::kNoise)),
                         [](const auto& test) {
                           return name_of(std::get<0>(test.param)) + "_" + name_of(std::get<1>(test.param));
                         });

TEST(GpuStoredRows, OnTheHostAreNotShared) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 32, 100);
  EXPECT_FALSE(DeviceTable(encode(rows.table, fit(rows.table).profile), Place::kPinned).share());
}

TEST(GpuStoredRows, IndicesOutsideTheTableHaveNoBytes) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 32, 100);
  const EncodedRows encoded = encode(rows.table, fit(rows.table).profile);
  const Taken taken = take_by_gpu(DeviceTable(encoded, Place::kDevice), {4, 100, -1, 5});
  EXPECT_EQ(taken.sizes[1], 0);
  EXPECT_EQ(taken.sizes[2], 0);
  std::vector<std::byte> found;
  EXPECT_EQ(decode(encoded, taken, found), 2 * 1 + 1u);  // the first of two damaged rows
  EXPECT_EQ(std::memcmp(found.data(), rows.table.row(4), 128), 0);
  EXPECT_EQ(std::memcmp(found.data() + 3 * 128, rows.table.row(5), 128), 0);
  EXPECT_TRUE(
      std::all_of(found.begin() + 128, found.begin() + 3 * 128, [](std::byte each) { return each == std::byte{}; }));
}

}  // namespace
}  // namespace cohort::ibp
