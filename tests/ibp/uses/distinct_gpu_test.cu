// Ids that occur more than once: each row is decoded once, and bags of rows have the sums that the host finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "ibp/uses/bags.h"
#include "tests/ibp/fetched.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

template <typename Id>
std::vector<Id> draw(int64_t count, int64_t bound, uint64_t seed) {
  std::vector<Id> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<Id>(base::random_below(uint64_t(bound), base::key_of(seed), i, 0));
  }
  return ids;
}

// What the GPU finds among ids, and the rows that it gives for them.
struct Found {
  Distinct distinct;
  std::vector<int32_t> row_index;
  std::vector<std::byte> rows;
};

template <typename Id>
Found find(const DeviceTable& table, const std::vector<Id>& ids, int64_t padding = -1) {
  const auto count = static_cast<int64_t>(ids.size());
  const base::DeviceArray<Id> device_ids = base::upload(ids);
  const base::DeviceBytes memory(distinct_bytes(count));
  base::fill_gpu(memory.data(), 0xa5, memory.bytes());
  const base::DeviceArray<int32_t> row_index = base::upload(std::vector<int32_t>(ids.size(), -7));
  Found found;
  found.distinct = find_distinct(table, {device_ids.data(), sizeof(Id) == 8, count, padding}, memory.data(),
                                 row_index.data(), nullptr);
  found.row_index = base::download(row_index.data(), ids.size());
  if (found.distinct.outside) return found;
  const base::DeviceBytes out(static_cast<std::size_t>(found.distinct.count) * table.ref().row_bytes);
  Gather gather(1);
  gather.fetch_distinct(table, distinct_in(memory.data(), count), out.data(), nullptr);
  cuda_check(cudaDeviceSynchronize());
  gather.check();
  found.rows = base::download(out.data(), out.bytes());
  return found;
}

template <typename Id>
void expect_distinct(const Rows& rows, const DeviceTable& table, const std::vector<Id>& ids) {
  std::vector<Id> different = ids;
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  const Found found = find(table, ids, ids[ids.size() / 2]);
  ASSERT_FALSE(found.distinct.outside);
  ASSERT_EQ(found.distinct.count, static_cast<int64_t>(different.size()));
  const auto number_of = [&](Id id) {
    return std::lower_bound(different.begin(), different.end(), id) - different.begin();
  };
  EXPECT_EQ(found.distinct.padding_row, number_of(ids[ids.size() / 2]));
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(found.row_index[i], number_of(ids[i])) << i;
  const std::size_t row_bytes = rows.table.row_bytes();
  for (std::size_t i = 0; i < different.size(); ++i) {
    ASSERT_EQ(std::memcmp(found.rows.data() + i * row_bytes, rows.table.row(different[i]), row_bytes), 0) << i;
  }
}

TEST(GpuDistinct, RowsOfEveryCodec) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
    const Rows rows = make_rows(Content::kMixed, dtype, 64, 900);
    std::vector<Profile> profiles = all_profiles(rows.table);
    if (dtype == Dtype::kFloat32) profiles.push_back(fit(rows.table, {.codec = "planes"}).profile);
    for (const Profile& profile : profiles) {
      SCOPED_TRACE(name_of(profile.codec));
      const EncodedRows encoded = encode(rows.table, profile);
      for (const Place place : {Place::kPinned, Place::kDevice}) {
        const DeviceTable table(encoded, place);
        expect_distinct(rows, table, draw<int64_t>(3000, 900, 1));
        expect_distinct(rows, table, draw<int32_t>(500, 900, 2));
      }
    }
  }
}

TEST(GpuDistinct, AnyNumberOfIds) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 8, 70000);
  const DeviceTable table(encode(rows.table, all_profiles(rows.table)[0]), Place::kDevice);
  for (const int64_t count : {1, 2, 31, 257, 5000, 300001})
    expect_distinct(rows, table, draw<int64_t>(count, 70000, 3));
  expect_distinct(rows, table, std::vector<int32_t>(4000, 69999));
  const Rows one = make_rows(Content::kMixed, Dtype::kFloat32, 8, 1);
  expect_distinct(one, DeviceTable(encode(one.table, all_profiles(one.table)[0]), Place::kDevice),
                  std::vector<int64_t>(9, 0));
}

TEST(GpuDistinct, SaysWhatIsNotThere) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 8, 64);
  const DeviceTable table(encode(rows.table, all_profiles(rows.table)[0]), Place::kDevice);
  EXPECT_TRUE(find<int64_t>(table, {3, 64, 1}).distinct.outside);
  EXPECT_TRUE(find<int64_t>(table, {3, (int64_t{1} << 32) + 3}).distinct.outside);
  EXPECT_TRUE(find<int32_t>(table, {-1}).distinct.outside);
  EXPECT_EQ(find<int64_t>(table, {3, 63, 1}, 2).distinct.padding_row, -1);
  EXPECT_EQ(find<int64_t>(table, {3, 63, 1}).distinct.padding_row, -1);
  EXPECT_THROW(find_distinct(table, {nullptr, true, 0}, nullptr, nullptr, nullptr), base::Error);
}

TEST(GpuDistinct, ADamagedRowIsToldOnce) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 32, 64);
  EncodedRows encoded =
      encode(rows.table, fit(rows.table, {.codec = "exponent"}).profile, {.layout = LayoutChoice::kPacked});
  ASSERT_EQ(encoded.ref.layout, Layout::kPacked);
  std::vector<uint64_t> entries(encoded.ref.entries, encoded.ref.entries + 64);
  entries[5] = make_entry(entry_offset_bytes(entries[5]), 4, false);
  encoded.ref.entries = entries.data();
  const DeviceTable table(encoded, Place::kDevice);
  EXPECT_THROW(find<int64_t>(table, {4, 5, 5}), base::Error);
  EXPECT_EQ(find<int64_t>(table, {4, 6, 6}).distinct.count, 2);
}

// Rows of integers up to 8 in float32, whose sums are exact.
TEST(GpuBags, HaveTheSumsOfTheHost) {
  constexpr int64_t kRows = 50, kIds = 400;
  for (const uint32_t columns : {1u, 3u, 4u, 33u, 128u}) {
    std::vector<float> rows(kRows * columns);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<float>(base::random_below(17, base::key_of(4), i, 0)) - 8;
    }
    const std::vector<int32_t> row_index = draw<int32_t>(kIds, kRows, columns);
    const std::vector<int32_t> offsets = {0, 0, 1, 9, 9, 100, 399, 400};
    const base::DeviceArray<float> device_rows = base::upload(rows);
    const base::DeviceArray<int32_t> device_index = base::upload(row_index), device_offsets = base::upload(offsets);
    for (const bool last_is_end : {false, true}) {
      BagsRef bags{.row_index = device_index.data(),
                   .count = kIds,
                   .padding_row = 3,
                   .offsets = device_offsets.data(),
                   .wide = false,
                   .num_offsets = 8,
                   .num_bags = last_is_end ? 7 : 8};
      const auto size = static_cast<std::size_t>(bags.num_bags) * columns;
      for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
        const base::DeviceArray<float> out = base::upload(std::vector<float>(size, -99));
        reduce_bags(device_rows.data(), Dtype::kFloat32, columns, bags, mode, out.data(), nullptr);
        const std::vector<float> found = base::download(out.data(), size);
        for (std::size_t i = 0; i < size; ++i) {
          const std::size_t bag = i / columns;
          float sum = 0, most = 0;
          int members = 0;
          const auto end = bag + 1 < offsets.size() ? offsets[bag + 1] : kIds;
          for (int64_t at = offsets[bag]; at < end; ++at) {
            if (row_index[std::size_t(at)] == 3) continue;
            const float value = rows[std::size_t(row_index[std::size_t(at)]) * columns + i % columns];
            most = members++ == 0 ? value : std::max(most, value);
            sum += value;
          }
          const float mean = members ? sum / static_cast<float>(members) : 0;
          ASSERT_EQ(found[i], mode == BagMode::kSum ? sum : mode == BagMode::kMean ? mean : most) << i;
        }
      }
    }
  }
  EXPECT_THROW(reduce_bags(nullptr, Dtype::kBits64, 1, {.num_bags = 1}, BagMode::kSum, nullptr, nullptr), base::Error);
}

}  // namespace
}  // namespace cohort::ibp
