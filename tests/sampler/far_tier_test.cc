#include "sampler/far_tier.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cache/plan/hotness.h"
#include "cache/plan/row_owner.h"
#include "cache/staged_reader.h"
#include "sampler/draw.h"
#include "tests/base/fails.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/ibp/rows.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

constexpr uint32_t kNumColumns = 64;

// A graph whose rows are in a file, at 200 bytes and more each.
class FarTier : public testing::Test {
 protected:
  void SetUp() override {
    const ibp::Rows rows = ibp::make_rows(ibp::Content::kDense, ibp::Dtype::kFloat32, kNumColumns, num_nodes_);
    ibp::save(ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "exponent"}).profile), file_);
    const cache::RowShape shape{num_nodes_, kNumColumns, "float32"};
    view_ = graph_.view();
    view_.types[0].rows.raw = nullptr;
    view_.types[0].rows.row_bytes = kNumColumns * 4;
    view_.types[0].rows.shape = shape;
    view_.types[0].rows.encoded = std::make_shared<const cache::HostRows>(cache::HostRows::open(file_, shape, false));
    view_.coded_host_rows = true;
    options_.host_bytes = 300'000;
    options_.dataset = "DIR";
  }
  int64_t stored_bytes() const { return view_.types[0].rows.encoded->encoded().stored_bytes(); }

  TestGraph<int32_t> graph_ = mixed_graph<int32_t>(2000, 1);
  int64_t num_nodes_ = graph_.view().num_nodes;
  dataset::TemporaryFolder folder_;
  std::string file_ = (folder_ / "features.ibp").string();
  GraphView view_;
  Options options_;
};

TEST_F(FarTier, IsForRowsThatDoNotFit) {
  ASSERT_GT(stored_bytes(), options_.host_bytes);
  EXPECT_TRUE(has_far_tier(options_, view_));
  options_.host_bytes = stored_bytes();
  EXPECT_FALSE(has_far_tier(options_, view_));
  options_.host_bytes = -1;
  EXPECT_FALSE(has_far_tier(options_, view_));
  options_.host_bytes = 0;
  EXPECT_TRUE(has_far_tier(options_, view_));
  view_.rows_in = channel::RowsIn::kTable;
  EXPECT_FALSE(has_far_tier(options_, view_));
}

TEST_F(FarTier, IsNotForGraphsWithoutRows) {
  options_.row_owners.hosts = {"a", "b"};
  view_.types[0].rows.encoded = nullptr;
  view_.types[0].rows.row_bytes = 0;
  view_.coded_host_rows = false;
  EXPECT_FALSE(has_far_tier(options_, view_));
  view_.types[0].rows.row_bytes = kNumColumns * 4;
  view_.rows_in = channel::RowsIn::kTable;  // raw ones
  EXPECT_THROW(has_far_tier(options_, view_), base::Error);
}

TEST_F(FarTier, RefusesRawRowsAndTooLittleMemory) {
  view_.coded_host_rows = false;
  EXPECT_TRUE(base::fails_with([&] { has_far_tier(options_, view_); }, {"cohort dataset prepare DIR"}));
  view_.coded_host_rows = true;
  options_.host_bytes = 1000;
  EXPECT_THROW(far_tables(options_, view_, nullptr, nullptr), base::Error);
  options_.host_bytes = int64_t{1} << 60;
  EXPECT_THROW(far_tables(options_, view_, nullptr, nullptr), base::Error);
}

TEST_F(FarTier, KeepsTheRowsThatWereCountedMost) {
  cache::Hotness counted({}, num_nodes_, num_nodes_, 0);
  std::vector<int64_t> hot;
  for (int64_t node = num_nodes_ - 50; node < num_nodes_; ++node) hot.push_back(node);
  counted.add({hot, {}, {}});
  options_.hotness = folder_ / "hotness.bin";
  counted.save(options_.hotness);
  const std::vector<FarTable> tables = far_tables(options_, view_, nullptr, nullptr);
  EXPECT_TRUE(tables[0].in_memory.has(num_nodes_ - 50));
  EXPECT_TRUE(tables[0].in_memory.has(num_nodes_ - 1));
  EXPECT_TRUE(tables[0].in_memory.has(0));
  EXPECT_FALSE(tables[0].in_memory.has(num_nodes_ - 51));
}

TEST_F(FarTier, LeavesOutWhatEveryCliqueHolds) {
  cache::Plan plan;
  plan.gpus.resize(3);
  plan.cliques = {{{0, 1}, {}}, {{2}, {}}};
  plan.cliques[0].rows[0].nodes = {4, 3, 2, 1};
  plan.cliques[1].rows[0].nodes = {1, 2, 3, 5};
  plan.gpus[0].slabs[0].num_entries = 4;
  plan.gpus[1].slabs[0].num_entries = 3;  // does not find row 1
  plan.gpus[2].slabs[0].num_entries = 4;
  const std::vector<FarTable> tables = far_tables(options_, view_, &plan, nullptr);
  for (const int64_t row : {0, 1, 4, 5}) EXPECT_TRUE(tables[0].in_memory.has(row)) << row;
  for (const int64_t row : {2, 3}) EXPECT_FALSE(tables[0].in_memory.has(row)) << row;
}

// Each of three machines keeps its own rows, and of others as many as its memory holds.
TEST_F(FarTier, KeepsThePartOfEachMachine) {
  options_.row_owners.hosts = {"a", "b", "c"};
  const std::string key(cache::kKeyBytes, 'k');
  std::vector<int> num_owners(static_cast<std::size_t>(num_nodes_));
  for (int machine = 0; machine < 3; ++machine) {
    const auto peers = std::make_shared<cache::RowPeers>(std::vector<cache::MachineAddress>(3),
                                                         cache::RunIdentity{key, machine, 0}, std::chrono::seconds(1));
    options_.host_bytes = -1;
    EXPECT_TRUE(has_far_tier(options_, view_));
    const std::vector<FarTable> own = far_tables(options_, view_, nullptr, peers);
    EXPECT_FALSE(own[0].disk);
    for (int64_t row = 0; row < num_nodes_; ++row) {
      EXPECT_EQ(own[0].in_memory.has(row), cache::owner_of(row, 3) == machine) << row;
      num_owners[static_cast<std::size_t>(row)] += own[0].in_memory.has(row);
    }
    options_.host_bytes = 10'000;
    EXPECT_THROW(far_tables(options_, view_, nullptr, peers), base::Error);
    options_.host_bytes = 900'000;
    const std::vector<FarTable> more = far_tables(options_, view_, nullptr, peers);
    EXPECT_GT(more[0].in_memory.num_chosen(), own[0].in_memory.num_chosen());
    EXPECT_LT(more[0].in_memory.num_chosen(), num_nodes_);
    for (int64_t row = 0; row < num_nodes_; ++row) {
      EXPECT_TRUE(more[0].in_memory.has(row) || !own[0].in_memory.has(row)) << row;
    }
    options_.host_bytes = 100'000'000;
    EXPECT_EQ(far_tables(options_, view_, nullptr, peers)[0].in_memory.num_chosen(), num_nodes_);
  }
  for (const int count : num_owners) EXPECT_EQ(count, 1);
  view_.coded_host_rows = false;
  EXPECT_THROW(has_far_tier(options_, view_), base::Error);
}

TEST_F(FarTier, StagesRowsInAShareOfTheMemory) {
  options_.host_bytes = -1;
  const int64_t of_disks = staging_bytes(options_, view_);
  options_.row_owners.hosts = {"a", "b"};
  EXPECT_EQ(staging_bytes(options_, view_), 4 * of_disks);
  options_.host_bytes = 320 << 20;
  EXPECT_EQ(staging_bytes(options_, view_), 20 << 20);
  options_.num_ranks = 4;
  EXPECT_EQ(staging_bytes(options_, view_), 5 << 20);
  options_.host_bytes = 0;
  EXPECT_EQ(staging_bytes(options_, view_), cache::least_staging_bytes(view_.types[0].rows.encoded->encoded().ref));
}

// Beyond the memory for rows a machine's own ones stay on its disk, and none of others are in memory.
TEST_F(FarTier, LeavesOwnRowsOnTheDisk) {
  options_.row_owners.hosts = {"a", "b"};
  options_.host_bytes = 700'000;
  const cache::RunIdentity identity{std::string(cache::kKeyBytes, 'k'), 1, 0};
  const auto peers =
      std::make_shared<cache::RowPeers>(std::vector<cache::MachineAddress>(2), identity, std::chrono::seconds(1));
  cache::Plan plan;  // a row in the slab of each GPU here is asked for by the other machine, too
  plan.gpus.resize(1);
  plan.cliques = {{{0}, {}}};
  int64_t first = 0;
  while (cache::owner_of(first, 2) != 1) ++first;
  plan.cliques[0].rows[0].nodes = {static_cast<uint32_t>(first)};
  plan.gpus[0].slabs[0].num_entries = 1;
  const std::vector<FarTable> tables = far_tables(options_, view_, &plan, peers);
  EXPECT_TRUE(tables[0].disk);
  EXPECT_TRUE(tables[0].in_memory.has(first));
  EXPECT_GT(tables[0].in_memory.num_chosen(), 50);
  EXPECT_LT(tables[0].in_memory.num_chosen(), num_nodes_ / 3);
  for (int64_t row = 0; row < num_nodes_; ++row) {
    EXPECT_TRUE(cache::owner_of(row, 2) == 1 || !tables[0].in_memory.has(row)) << row;
  }
  tell(StartLog(folder_ / "."), tables);
  std::ifstream file(folder_ / "start.jsonl");
  const auto part = nlohmann::json::parse(file)["part"].get<std::string>();
  EXPECT_TRUE(part.starts_with("leaving rows to other machines and on the disk")) << part;
}

}  // namespace
}  // namespace cohort::sampler
