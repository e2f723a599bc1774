#include "sampler/cache_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "cache/plan/row_owner.h"
#include "sampler/presample.h"
#include "tests/base/fails.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/sampler/test_graph.h"
#include "tests/sampler/typed_graph.h"

namespace cohort::sampler {
namespace {

using nlohmann::json;

constexpr int64_t kNumNodes = 3000;
const std::vector<std::vector<int>> kPair = {{0, 1}};
const SizesOfRows kSizes = {{{32, {}}}, {{20, {}}}};

class CachePlan : public testing::Test {
 protected:
  CachePlan() {
    options_.num_ranks = 2;
    options_.cache_bytes = {20'000, 30'000};
    options_.plan_file = folder_ / "plan.json";
  }
  // Counts of ten batches in the file that the options name.
  void count() {
    options_.hotness = folder_ / "counts.bin";
    std::vector<int64_t> seeds(640);
    std::iota(seeds.begin(), seeds.end(), 0);
    const cache::HotnessKey key{1, 2, {4, 3}, 64};
    GraphView without_rows = graph_.view();
    without_rows.types[0].rows.row_bytes = 0;
    presample(without_rows, seeds, key, key.fanout, 10).save(options_.hotness);
  }
  std::optional<cache::Plan> plan(bool topology_in_plan = true) {
    return plan_cache(options_, graph_.view(), kPair, kSizes, topology_in_plan);
  }
  json written() const { return json::parse(dataset::read_bytes(options_.plan_file)); }

  dataset::TemporaryFolder folder_;
  TestGraph<int32_t> graph_ = mixed_graph<int32_t>(kNumNodes, 9);
  Options options_;
};

TEST_F(CachePlan, WithoutACacheThereIsNone) {
  options_.cache_policy = "none";
  EXPECT_FALSE(plan());
  options_.cache_policy = "plan";
  options_.cache_bytes = {};
  EXPECT_FALSE(plan());
  EXPECT_FALSE(std::filesystem::exists(options_.plan_file));
}

TEST_F(CachePlan, RowsInPlaceAreNotPlannedButTold) {
  GraphView graph = graph_.view();
  graph.types[0].rows.row_bytes = 20;
  options_.num_ranks = 2;
  describe_rows_in_place(options_, graph);
  const json all = written();
  EXPECT_TRUE(all["counts"].is_null());
  EXPECT_EQ(all["cliques"], json::parse("[[0], [1]]"));
  ASSERT_EQ(all["ranks"].size(), 2u);
  const json& rank = all["ranks"][1];
  EXPECT_EQ(rank["budget_bytes"], 30'000);
  EXPECT_EQ(rank["index_bytes"], 0);
  EXPECT_EQ(rank["features"]["rows"], kNumNodes);
  EXPECT_EQ(rank["features"]["bytes"], 32 * kNumNodes) << "rows begin at multiples of 16";
  EXPECT_EQ(rank["used_bytes"], rank["features"]["bytes"]);
  EXPECT_TRUE(rank["features"]["expected"].is_null() && rank["topology"]["expected"].is_null());
}

// Without host_bytes, memory has no row of another machine; with them, as many as find room.
TEST_F(CachePlan, RowsOfOtherMachinesCostMore) {
  count();
  const auto share_of_others = [&](int64_t host_bytes) {
    options_.host_bytes = host_bytes;
    const auto planned = plan();
    const std::vector<uint32_t>& rows = planned->cliques[0].rows[0].nodes;
    const auto of_others = std::ranges::count_if(rows, [](uint32_t row) { return cache::owner_of(row, 2) == 0; });
    return static_cast<double>(of_others) / static_cast<double>(rows.size());
  };
  const double before = share_of_others(-1);
  EXPECT_EQ(written()["ranks"][0]["features"]["expected"]["remote"]["reads"], 0);
  options_.row_owners.hosts = {"x", "y"};
  options_.row_owners.own = 1;
  EXPECT_GT(share_of_others(-1), before + 0.1);
  const json told = written()["ranks"][0]["features"]["expected"];
  EXPECT_GT(told["remote"]["reads"], 0);
  EXPECT_GT(told["host"]["reads"], 0);
  EXPECT_EQ(share_of_others(1 << 20), before);
}

// Two GPUs without peers, one with the counts of the first 640 seeds, one with those of others.
TEST_F(CachePlan, RanksMayHaveCountsOfTheirOwn) {
  count();
  const std::string first = options_.hotness, second = folder_ / "others.bin";
  std::vector<int64_t> seeds(640);
  std::iota(seeds.begin(), seeds.end(), 2000);
  GraphView without_rows = graph_.view();
  without_rows.types[0].rows.row_bytes = 0;
  presample(without_rows, seeds, {1, 3, {4, 3}, 64}, std::vector<int32_t>{4, 3}, 10).save(second);
  const auto rows = [&](const std::vector<std::string>& files, std::size_t rank) {
    options_.rank_hotness = files;
    options_.cache_bytes = {20'000, 20'000};
    return plan_cache(options_, graph_.view(), {{0}, {1}}, kSizes, true)->gpus[rank].slabs[0].nodes;
  };
  const auto shared = rows({}, 1);
  EXPECT_EQ(written()["counts"]["file"], first);
  EXPECT_EQ(rows({first, second}, 0), rows({}, 0));
  EXPECT_NE(rows({first, second}, 1), shared);
  EXPECT_EQ(rows({first, second}, 1), rows({second, first}, 0));
  rows({second, first}, 0);
  EXPECT_EQ(written()["counts"][0]["file"], second);
  EXPECT_THROW(plan_cache(options_, graph_.view(), kPair, kSizes, true), base::Error) << "the pair shares a cache";
}

TEST_F(CachePlan, IsWrittenAsItIs) {
  count();
  const auto planned = plan();
  ASSERT_TRUE(planned);
  const json file = written();
  EXPECT_EQ(file["policy"], "plan");
  EXPECT_EQ(file["cliques"], json(kPair));
  EXPECT_EQ(file["counts"]["batches"], 10);
  EXPECT_EQ(file["counts"]["file"], options_.hotness.string());
  EXPECT_TRUE(file["note"].is_null());
  ASSERT_EQ(file["ranks"].size(), 2u);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const cache::GpuPlan& gpu = planned->gpus[rank];
    const json& told = file["ranks"][rank];
    EXPECT_EQ(told["budget_bytes"], options_.cache_bytes[rank]);
    EXPECT_EQ(told["used_bytes"], gpu.used_bytes());
    EXPECT_EQ(told["index_bytes"], gpu.index_bytes);
    EXPECT_EQ(told["alpha"], gpu.alpha());
    EXPECT_GT(told["features"]["rows"], 0);
    EXPECT_EQ(told["features"]["rows"], gpu.slabs[0].nodes.size());
    EXPECT_EQ(told["features"]["bytes"], 32 * gpu.slabs[0].nodes.size());
    EXPECT_EQ(told["topology"]["lists"], gpu.slabs[1].nodes.size());
    EXPECT_EQ(told["topology"]["bytes"], gpu.slabs[1].bytes);
    EXPECT_EQ(told["features"]["expected"]["host"]["bytes"], gpu.use[0][2].bytes);
    EXPECT_EQ(told["topology"]["expected"]["peer"]["reads"], gpu.use[1][1].reads);
  }
}

TEST_F(CachePlan, StandInsExpectNothing) {
  for (const char* policy : {"degree", "random"}) {
    options_.cache_policy = policy;
    ASSERT_GT(plan(false)->gpus[0].slabs[0].nodes.size(), 0u);
    const json file = written();
    EXPECT_TRUE(file["counts"].is_null());
    EXPECT_NE(file["note"].get<std::string>().find(policy), std::string::npos);
    EXPECT_TRUE(file["ranks"][0]["features"]["expected"].is_null());
    EXPECT_TRUE(file["ranks"][1]["topology"]["expected"].is_null());
    EXPECT_GT(file["ranks"][0]["features"]["rows"], 0);
  }
}

TEST_F(CachePlan, LeavesListsOutThatAreReadElsewhere) {
  count();
  const auto planned = plan(false);
  EXPECT_EQ(planned->gpus[0].slabs[1].nodes.size(), 0u);
  const json rank = written()["ranks"][0];
  EXPECT_EQ(rank["topology"]["lists"], 0);
  EXPECT_TRUE(rank["topology"]["expected"].is_null());
  EXPECT_FALSE(rank["features"]["expected"].is_null());
}

// A budget for some of all rows and lists: each type and relation is told of, and they add up.
TEST_F(CachePlan, SaysWhatThereIsOfEachTypeAndRelation) {
  const TypedGraph types = random_types(8);
  const GraphView graph = types.view();
  options_.cache_policy = "degree";
  options_.cache_bytes = {40'000, 20'000};
  const auto planned = plan_cache(options_, graph, kPair, row_sizes(graph, slab_rows(graph)), true);
  const json file = written();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto check = [&](const json& kind, const char* parts, const char* name, const cache::Slab& slab) {
      int64_t count = 0, bytes = 0, num_with = 0;
      for (const json& part : kind[parts]) {
        count += part[name].get<int64_t>();
        bytes += part["bytes"].get<int64_t>();
        num_with += part[name] > 0;
      }
      EXPECT_EQ(count, std::ssize(slab.nodes));
      EXPECT_EQ(bytes, slab.bytes);
      EXPECT_GT(num_with, 1) << parts;
    };
    const auto& [rows, lists] = planned->gpus[rank].slabs;
    check(file["ranks"][rank]["features"], "types", "rows", rows);
    check(file["ranks"][rank]["topology"], "relations", "lists", lists);
    EXPECT_EQ(file["ranks"][rank]["features"]["types"].size(), graph.types.size());
    EXPECT_LE(planned->gpus[rank].used_bytes(), options_.cache_bytes[rank]);
  }
}

TEST_F(CachePlan, RefusesCountsOfAnotherGraph) {
  count();
  graph_.add_node({});
  EXPECT_TRUE(base::fails_with([&] { plan(); }, {"counts of 3001 nodes, found 3000"}));
}

TEST_F(CachePlan, SaysWhenItCannotBeWritten) {
  options_.cache_policy = "random";
  options_.plan_file = folder_ / "nowhere/plan.json";
  EXPECT_THROW(plan(), base::Error);
  options_.plan_file.clear();
  EXPECT_TRUE(plan()) << "nothing to write";
}

TEST_F(CachePlan, RanksOfTheCpuAreAloneUnlessNamed) {
  EXPECT_EQ(rank_cliques(options_), (std::vector<std::vector<int>>{{0}, {1}}));
  options_.cliques = "all";
  EXPECT_EQ(rank_cliques(options_), kPair);
}

}  // namespace
}  // namespace cohort::sampler
