// Rows of codec planes in GPU memory: plane A alone, or both planes, from every tier.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/cache/fetched_rows.h"

namespace cohort::cache {
namespace {

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
