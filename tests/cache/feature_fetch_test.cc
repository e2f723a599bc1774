#include "cache/feature_fetch.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "base/cuda_check.h"
#include "cache/fill_slabs.h"
#include "tests/base/fails.h"
#include "tests/cache/fetched_rows.h"

namespace cohort::cache {
namespace {

// Rows and bytes of the tiers, computed by hand from the plan.
void expect_use(const TierUses& uses, const Plan& plan, int member, int64_t count, const std::vector<int64_t>& nodes) {
  std::array<int64_t, kNumTiers> rows{};
  const auto& own = plan.gpus[static_cast<std::size_t>(member)].slabs[0].nodes;
  for (const int64_t node : nodes) {
    const bool local = std::find(own.begin(), own.end(), node) != own.end();
    rows[local ? 0 : node % 3 == 0 ? 1 : 2] += 1;
  }
  for (std::size_t tier = 0; tier < kNumTiers; ++tier) {
    EXPECT_EQ(uses[tier].rows, rows[tier]) << tier;
    EXPECT_EQ(uses[tier].bytes > 0, rows[tier] > 0) << tier;
    EXPECT_EQ(uses[tier].us > 0, rows[tier] > 0) << tier;
  }
  EXPECT_EQ(rows[0] + rows[1] + rows[2], count);
}

void expect_all_modes(Table& table, bool has_file) {
  const std::vector<int64_t> nodes = random_nodes(table.rows.shape.num_rows, table.rows.shape.num_rows / 2);
  for (const bool host_coded : {false, true}) {
    if (host_coded && !has_file) continue;
    const auto host = std::make_shared<const HostFeatures>(table.rows, host_coded);
    for (const bool slab_coded : {false, true}) {
      for (const bool ordered : {false, true}) {
        for (const int num_members : {0, 1, 3}) {
          SCOPED_TRACE(testing::Message() << host_coded << slab_coded << ordered << num_members);
          FeatureFetch rows(host, table.rows.row_bytes, {0, ordered});
          SlabRows slab_rows(table.rows, slab_coded);
          const Plan plan = num_members ? plan_of(table, slab_rows, num_members, 40) : Plan{};
          const int member = num_members == 3 ? 1 : 0;
          if (num_members) {
            const std::vector<int> gpus(static_cast<std::size_t>(num_members), 0);
            const SlabRows pinned = slab_rows.reading(host->in_place_of(table.rows));
            auto views = fill_row_slabs(plan, gpus, ordered ? pinned : slab_rows, table.rows.shape.num_rows);
            rows.set_slabs(std::move(views[static_cast<std::size_t>(member)]));
          }
          for (int again = 0; again < 2; ++again) {
            expect_rows(table, nodes, fetch(rows, table, nodes));
            const TierUses uses = rows.use();
            if (num_members && !(slab_coded && !has_file)) {  // rows encoded on the way may not all find room
              expect_use(uses, plan, member, static_cast<int64_t>(nodes.size()), nodes);
            }
          }
          expect_rows(table, {}, fetch(rows, table, {}));
          EXPECT_EQ(rows.use()[kHostTier].rows, 0);
        }
      }
    }
  }
}

TEST(GpuFeatureFetch, EveryModeGivesTheRowsExponent) {
  Table table("float32", 3000, 128, 4);
  table.encode("exponent");
  expect_all_modes(table, true);
}

TEST(GpuFeatureFetch, EveryModeGivesTheRowsSparse) {
  Table table("float32", 1000, 300, 4, true);
  table.encode("sparse");
  expect_all_modes(table, true);
}

TEST(GpuFeatureFetch, EveryModeGivesTheRowsInvariant) {
  Table table("bfloat16", 1000, 202, 2);
  table.encode("invariant");
  expect_all_modes(table, true);
}

TEST(GpuFeatureFetch, EveryModeGivesTheRowsPlanes) {
  Table table("float32", 3000, 128, 4);
  const float nan = std::numeric_limits<float>::quiet_NaN();  // makes rows that are stored raw
  for (std::size_t row = 0; row < 3000; row += 100) std::memcpy(table.bytes.data() + row * 512, &nan, 4);
  table.encode("planes");
  expect_all_modes(table, true);
}

TEST(GpuFeatureFetch, AsksTheHostForNothingWhereAllRowsAreCached) {
  Table table("float32", 3000, 128, 4);
  table.encode("exponent");
  const std::vector<int64_t> nodes = random_nodes(3000, 1700);
  const std::vector<int> gpus = {0, 0};
  for (const std::size_t members : {1u, 2u}) {
    SCOPED_TRACE(members);
    const SlabRows slab_rows(table.rows, true);
    const Plan plan = plan_of(table, slab_rows, static_cast<int>(members), 0, 1);
    FeatureFetch rows(std::make_shared<const HostFeatures>(table.rows, true), table.rows.row_bytes, {});
    rows.set_slabs(std::move(fill_row_slabs(plan, std::span(gpus).first(members), slab_rows, 3000)[0]));
    expect_rows(table, nodes, fetch(rows, table, nodes));
    const TierUses uses = rows.use();
    EXPECT_EQ(uses[kHostTier].rows + uses[kHostTier].bytes, 0);
    EXPECT_EQ(uses[0].rows + uses[1].rows, 1700);
    EXPECT_EQ(uses[1].rows > 0, members == 2);
  }
}

TEST(GpuFeatureFetch, EncodesWithoutAFile) {
  Table table("float32", 9000, 64, 4);
  expect_all_modes(table, false);
}

TEST(GpuFeatureFetch, AnyRowSize) {
  for (const int64_t columns : {1, 3, 5, 24, 100, 257, 2408, 65536}) {
    Table table("uint8", 300, columns, 1);
    expect_all_modes(table, false);
  }
}

TEST(GpuFeatureFetch, OrdersRowsOfALargeTableByRanges) {
  Table table("float32", 150'000, 5, 4);
  FeatureFetch rows(std::make_shared<const HostFeatures>(table.rows, false), table.rows.row_bytes, {});
  for (const int64_t count : {150'000, 1, 40'000, 3}) {
    SCOPED_TRACE(count);
    const std::vector<int64_t> nodes = random_nodes(150'000, count);
    expect_rows(table, nodes, fetch(rows, table, nodes));
    EXPECT_EQ(rows.use()[kHostTier].rows, count);
  }
}

// Random batches, so many of them on their way at once and up to three in use, the rows of all of which stay. The pool
// has `num_rows`, the first half of them from the beginning. Returns how many rows of earlier batches were found.
int64_t expect_rows_of_pooled_batches(const Table& table, FeatureFetch& rows, int64_t num_rows, std::size_t at_once) {
  std::mt19937_64 random(7);
  const base::Stream streams[2];
  const base::DeviceBytes pool(static_cast<std::size_t>(num_rows * table.rows.row_bytes));
  base::fill_gpu(pool.data(), 0xFF, pool.bytes());
  rows.grow_pool(num_rows / 2, streams[0]);
  std::deque<PooledBatch> in_use;
  std::size_t under_way = 0;  // the last ones
  int64_t found = 0;
  for (uint32_t number = 0; number < 40; ++number) {
    if (number == 20) {
      for (const base::Stream& stream : streams) stream.synchronize();
      rows.grow_pool(num_rows, streams[number % 2]);
    }
    if (in_use.size() == 3) in_use.pop_front();
    const int64_t most = std::min(num_rows / 6, table.rows.shape.num_rows);
    const auto count = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(most));
    std::vector<int64_t> nodes = random_nodes(table.rows.shape.num_rows, count, random());
    // Every third batch, as those of trees, has most of its nodes several times.
    if (number % 3 == 1) nodes.resize(static_cast<std::size_t>(count) / 4 + 1);
    for (std::size_t i = 0; number % 3 == 1 && std::ssize(nodes) < count; ++i) nodes.push_back(nodes[i * i % (i + 1)]);
    in_use.emplace_back(std::move(nodes));
    const PooledBatch& batch = in_use.back();
    rows.fetch(batch.on_gpu.data(), std::ssize(batch.nodes),
               {.rows = pool.data(),
                .row_index = batch.row_index.data(),
                .batch = {number, number + 1 - static_cast<uint32_t>(in_use.size())},
                .poison = true},
               streams[number % 2]);
    if (++under_way < at_once) continue;
    streams[(number + 1 - under_way) % 2].synchronize();
    const PooledBatch& done = in_use[in_use.size() - under_way--];
    const TierUses uses = rows.use();
    const int64_t again = uses[static_cast<std::size_t>(Tier::kRecent)].rows;
    EXPECT_EQ(uses[0].rows + uses[1].rows + uses[2].rows + again, std::ssize(done.nodes));
    const int64_t num_different = std::ssize(std::set(done.nodes.begin(), done.nodes.end()));
    EXPECT_GE(again, std::ssize(done.nodes) - num_different);
    found += again - (std::ssize(done.nodes) - num_different);
    for (std::size_t i = 0; i + under_way < in_use.size(); ++i) expect_rows_in_pool(table, pool, in_use[i]);
    if (testing::Test::HasFatalFailure()) break;
  }
  for (const base::Stream& stream : streams) stream.synchronize();
  while (under_way-- > 0) rows.use();
  return found;
}

TEST(GpuFeatureFetch, KeepsTheRowsOfBatchesInUseInThePool) {
  for (const int64_t columns : {1, 25, 128}) {
    Table table("float32", 700, columns, 4);
    for (const int64_t num_rows : {240, 700}) {
      for (const std::size_t at_once : {1u, 2u}) {
        for (const bool reuse : {false, true}) {
          SCOPED_TRACE(testing::Message() << columns << ", " << num_rows << ", " << at_once << reuse);
          FeatureFetch rows(std::make_shared<const HostFeatures>(table.rows, false), table.rows.row_bytes, {});
          SlabRows slab_rows(table.rows, false);
          const std::vector<int> gpus = {0};
          rows.set_slabs(std::move(fill_row_slabs(plan_of(table, slab_rows, 1, 40), gpus, slab_rows, 700)[0]));
          rows.use_pool(700, reuse);
          EXPECT_EQ(expect_rows_of_pooled_batches(table, rows, num_rows, at_once) > 0, reuse);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Batches share the lists of host rows: one is split after the one before, also where one of no rows lies between. A
// gate has the first and the third begin at the same time, so that one that did not wait would write into used lists.
TEST(GpuFeatureFetch, ABatchWaitsForTheOneBeforeAnEmptyOne) {
  constexpr int64_t kCount = 2'000'000;
  Table table("uint8", kCount, 4, 1);
  FeatureFetch rows(std::make_shared<const HostFeatures>(table.rows, false), table.rows.row_bytes, {.num_fetches = 3});
  const std::array<std::vector<int64_t>, 3> nodes = {
      random_nodes(kCount, kCount, 1), {}, random_nodes(kCount, kCount, 2)};
  std::array<base::DeviceArray<int64_t>, 3> on_gpu;
  std::array<base::DeviceBytes, 3> out;
  for (std::size_t i = 0; i < 3; ++i) {
    on_gpu[i] = base::upload(nodes[i]);
    out[i] = base::DeviceBytes(nodes[i].size() * static_cast<std::size_t>(table.rows.row_bytes));
  }
  const std::array<base::Stream, 3> streams;
  const base::Stream gate;
  const base::Event opened;
  for (int round = 0; round < 5; ++round) {  // the first allocates
    std::atomic<bool> may_open = false;
    const auto wait = [](void* open) {
      while (!static_cast<std::atomic<bool>*>(open)->load()) std::this_thread::yield();
    };
    base::cuda_check(cudaLaunchHostFunc(gate, wait, &may_open));
    opened.record(gate);
    if (round == 0) may_open = true;
    for (std::size_t i = 0; i < 3; ++i) {
      opened.wait_on(streams[i]);
      rows.fetch(on_gpu[i].data(), std::ssize(nodes[i]), {.rows = out[i].data()}, streams[i]);
    }
    may_open = true;
    for (const base::Stream& stream : streams) stream.synchronize();
    for (std::size_t i = 0; i < 3; ++i) {
      rows.use();
      expect_rows(table, nodes[i], base::download(out[i]));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SlabRows, RefuseRowsBeyondTheFormat) {
  const Table table("uint8", 2, 65537, 1);
  EXPECT_THROW(SlabRows(table.rows, false), base::Error);
}

TEST(GpuFeatureFetch, NamesADamagedRow) {
  Table table("float32", 500, 128, 4);
  table.encode("exponent");
  const auto host = std::make_shared<const HostFeatures>(table.rows, true);
  // Escapes wherever a code can be: more than the row has exponents for.
  std::memset(const_cast<std::byte*>(host->encoded().ref.data) + 77 * host->encoded().ref.stride_bytes, 0, 448);
  FeatureFetch rows(host, table.rows.row_bytes, {});
  std::vector<int64_t> nodes = {5, 77, 6};
  fetch(rows, table, nodes);
  EXPECT_TRUE(base::fails_with([&] { rows.use(); }, {"row 1 of a batch"}));
  nodes = {5, 6};
  expect_rows(table, nodes, fetch(rows, table, nodes));
  EXPECT_EQ(rows.use()[kHostTier].rows, 2);
}

// --- planes ----------------------------------------------------------------------------------------------------------

// Plane A from slabs of this GPU and of peers, from the host and from the pool, where rows of one kind are never found
// as those of the other.
TEST(GpuFeatureFetch, PlaneAIsTheSameFromEveryTierAndIsNeverFoundAsExact) {
  Table table("float32", 3000, 100, 4);
  table.encode("planes");
  Table coarse = table;
  coarse.rows.encoded = nullptr;
  std::vector<int64_t> all(3000);
  std::iota(all.begin(), all.end(), 0);
  table.rows.encoded->fetch(all, coarse.bytes.data(), true);
  ASSERT_NE(coarse.bytes, table.bytes);
  const std::vector<int> gpus = {0, 0, 0};
  const SlabRows slab_rows(table.rows, true);
  const Plan plan = plan_of(table, slab_rows, 3, 40);
  FeatureFetch rows(std::make_shared<const HostFeatures>(table.rows, true), table.rows.row_bytes, {});
  rows.set_slabs(std::move(fill_row_slabs(plan, gpus, slab_rows, 3000)[1]));
  rows.use_pool(3000, true);
  const base::Stream stream;
  rows.grow_pool(3000, stream);
  const base::DeviceBytes pool(static_cast<std::size_t>(3000 * table.rows.row_bytes));
  const std::vector<bool> kinds = {true, true, false, false, true, false, true, true, true};
  std::vector<PooledBatch> batches;  // of which two are in use
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    std::vector<int64_t> nodes = random_nodes(3000, 3000);
    std::rotate(nodes.begin(), nodes.begin() + static_cast<int64_t>(i) * 200, nodes.end());
    nodes.resize(1500);
    const PooledBatch& batch = batches.emplace_back(std::move(nodes));
    const auto number = static_cast<uint32_t>(i);
    rows.fetch(batch.on_gpu.data(), 1500,
               {.rows = pool.data(),
                .row_index = batch.row_index.data(),
                .batch = {number, number == 0 ? 0 : number - 1},
                .plane_a = kinds[i]},
               stream);
    stream.synchronize();
    const TierUses uses = rows.use();
    const bool same_as_before = i > 0 && kinds[i] == kinds[i - 1];
    EXPECT_EQ(uses[static_cast<std::size_t>(Tier::kRecent)].rows > 0, same_as_before) << i;
    EXPECT_GT(uses[0].rows, 0);
    EXPECT_GT(uses[1].rows, 0);
    SCOPED_TRACE(testing::Message() << i);
    expect_rows_in_pool(kinds[i] ? coarse : table, pool, batch);
    if (i > 0) expect_rows_in_pool(kinds[i - 1] ? coarse : table, pool, batches[i - 1]);
  }
}

TEST(GpuFeatureFetch, ReadsFewerBytesForPlaneA) {
  Table table("float32", 3000, 128, 4);
  table.encode("planes");
  FeatureFetch rows(std::make_shared<const HostFeatures>(table.rows, true), table.rows.row_bytes, {});
  const std::vector<int64_t> nodes = random_nodes(3000, 1000);
  for (const bool plane_a : {true, false}) {
    fetch(rows, table, nodes, plane_a);
    EXPECT_EQ(rows.use()[kHostTier].bytes, table.rows.encoded->stored_bytes(nodes, plane_a));
  }
}

}  // namespace
}  // namespace cohort::cache
