// Rows of several tables, found by their ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "ibp/uses/sharded/fetch.h"
#include "tests/ibp/fetched.h"

namespace cohort::ibp {
namespace {

// Rows 0 to 99 in a table that another process might have, 100 to 149 in one of this GPU, by profiles of their own.
TEST(GpuShardedRows, OfSeveralTablesComeById) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 32, 150);
  RowTable first = rows.table, second = rows.table;
  first.num_rows = 100;
  second.data = rows.table.row(100);
  second.num_rows = 50;
  const EncodedRows encoded[] = {encode(first, fit(first).profile),
                                 encode(second, fit(second, {.codec = "raw"}).profile)};
  auto shared = std::make_unique<DeviceTable>(encoded[0], Place::kDevice);
  const DeviceTable opened(encoded[0].profile, shared->ref(), shared->share());
  shared.reset();  // what is open stays
  const DeviceTable own(encoded[1], Place::kPinned);
  const std::vector<const DeviceTable*> tables{&opened, &own};
  const base::DeviceArray<EncodedRef> refs = base::upload(std::vector<EncodedRef>{opened.ref(), own.ref()});
  const base::DeviceArray<int64_t> bounds = base::upload(std::vector<int64_t>{0, 100, 150});
  // By owners, row i of all is id 149 - i.
  std::vector<int32_t> owners, rows_there;
  for (int32_t id = 0; id < 150; ++id) {
    owners.push_back(149 - id >= 100);
    rows_there.push_back(149 - id - 100 * owners.back());
  }
  const base::DeviceArray<int32_t> owner = base::upload(owners), position = base::upload(rows_there);
  const base::DeviceArray<int64_t> wide = base::upload(std::vector<int64_t>(rows_there.begin(), rows_there.end()));
  const ShardsRef by_bounds{.refs = refs.data(), .num_rows = 150, .bounds = bounds.data()};
  ShardsRef by_owners = by_bounds, by_wide = by_bounds;
  by_owners.owners = by_wide.owners = owner.data();
  by_owners.positions = position.data();
  by_wide.wide_positions = wide.data();

  constexpr int64_t kCount = 3000;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kCount; ++i)
    ids.push_back(static_cast<int64_t>(base::random_below(150, base::key_of(7), uint64_t(i), 0)));
  const auto in_second =
      static_cast<unsigned long long>(std::count_if(ids.begin(), ids.end(), [](int64_t id) { return id >= 100; }));
  const base::DeviceArray<uint64_t> entries(2 * kCount);
  const base::DeviceArray<int32_t> positions(2 * kCount);
  const base::DeviceArray<unsigned long long> found(5);
  const ShardedScratch scratch{entries.data(), positions.data(), found.data()};
  const base::DeviceBytes out(kCount * 128);
  const auto fetched = [&](const ShardsRef& shards) {
    const base::DeviceArray<int64_t> index = base::upload(ids);
    fetch_sharded(tables, shards, index.data(), kCount, out.data(), scratch, nullptr);
    return base::download(found.data() + 2, 3);
  };
  const auto expect_rows = [&](bool backwards) {
    const std::vector<std::byte> got = base::download(out.data(), out.bytes());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= 150) continue;
      ASSERT_EQ(std::memcmp(got.data() + i * 128, rows.table.row(backwards ? 149 - ids[i] : ids[i]), 128), 0) << i;
    }
  };
  EXPECT_EQ(fetched(by_bounds), (std::vector<unsigned long long>{kCount - in_second, in_second, kNoFetchError}));
  expect_rows(false);
  for (const ShardsRef& shards : {by_owners, by_wide}) {
    EXPECT_EQ(fetched(shards)[2], kNoFetchError);
    expect_rows(true);
  }
  ids[1700] = 150;
  ids[2100] = -1;
  EXPECT_EQ(fetched(by_bounds)[2], 2 * 1700ull);
  expect_rows(false);
}

}  // namespace
}  // namespace cohort::ibp
