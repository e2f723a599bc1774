#include "sampler/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>

#include "base/check.h"
#include "dataset/npy.h"
#include "tests/base/fails.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::sampler {
namespace {

channel::Request request(uint32_t batch_size, bool shuffle, uint64_t epoch = 0) {
  channel::Request request{};
  request.batch_size = batch_size;
  request.shuffle = shuffle ? 1 : 0;
  request.epoch = epoch;
  return request;
}

std::vector<int64_t> all_positions(const Schedule& schedule) {
  std::vector<int64_t> all;
  for (uint64_t step = 0; step < schedule.num_steps(); ++step) {
    const auto part = schedule.positions(step);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Schedule schedule_of(const SeedSet& set, const channel::Request& request, uint64_t seed = 0) {
  return Schedule(set, request.batch_size, EpochOrders(seed).of(set, request));
}

SeedSet seed_set(int64_t size) {
  std::vector<int64_t> seeds(static_cast<std::size_t>(size));
  std::iota(seeds.begin(), seeds.end(), 1000);
  return seeds;
}

struct FolderOfSets : dataset::TemporaryFolder {
  void write(const char* name, const std::vector<int64_t>& numbers, std::vector<int64_t> shape = {}) const {
    if (shape.empty()) shape = {std::ssize(numbers)};
    auto file = dataset::create_npy(path() / name, dataset::DType::int64, std::move(shape));
    std::ranges::copy(numbers, file.as<int64_t>().begin());
  }
};

TEST(Schedule, OfPairsHasAPositionForEachPair) {
  const FolderOfSets folder;
  const std::vector<int64_t> ids{7, 7, 1, 2, 1, 2, 3, 4, 9, 0};
  folder.write("pairs-3.npy", ids, {5, 2});
  SeedSets sets(folder.path(), 10);
  const SeedSet& set = sets.get(3);
  EXPECT_TRUE(set.are_pairs);
  EXPECT_EQ(set.seeds, ids);
  EXPECT_EQ(schedule_of(set, request(2, false)).num_steps(), 3u);
  std::vector<int64_t> all = all_positions(schedule_of(set, request(2, true)));
  std::ranges::sort(all);
  EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(base::fails_with([&] { SeedSets(folder.path(), 9).get(3); }, {"pairs-3.npy[4, 0]"}));
}

TEST(Schedule, AnOrderThatNobodyWantsEndsEarly) {
  std::stop_source stop;
  stop.request_stop();
  const int64_t size = 1 << 20;
  const auto whole = shuffled(size, 1, 2), left = shuffled(size, 1, 2, 0, stop.get_token());
  EXPECT_NE(whole, left);
  std::vector<int64_t> own(left.size());
  std::iota(own.begin(), own.end(), 0);
  EXPECT_EQ(left, own);
}

// Groups of 5, 0 and 9 seeds in batches of 4: the third has 3 batches, so that there are 9 in all.
TEST(Schedule, GroupsTakeTurnsAndRunOutByThemselves) {
  SeedSet set = seed_set(14);
  set.starts = {0, 5, 5, 14};
  Schedule schedule = schedule_of(set, request(4, false));
  ASSERT_EQ(schedule.num_steps(), 9u);
  std::vector<std::vector<int64_t>> batches;
  for (uint64_t step = 0; step < 9; ++step) {
    const auto seeds = schedule.seeds(step);
    batches.emplace_back(seeds.begin(), seeds.end());
  }
  const std::vector<std::vector<int64_t>> expected = {
      {1000, 1001, 1002, 1003}, {}, {1005, 1006, 1007, 1008}, {1004}, {}, {1009, 1010, 1011, 1012}, {}, {}, {1013}};
  EXPECT_EQ(batches, expected);
  EXPECT_TRUE(schedule.positions(9).empty() && schedule.positions(11).empty());
}

TEST(Schedule, ShufflesEachGroupByItself) {
  SeedSet set = seed_set(300);
  set.starts = {0, 100, 300};
  Schedule schedule = schedule_of(set, request(32, true), 7);
  std::vector<int64_t> groups[2];
  for (uint64_t step = 0; step < schedule.num_steps(); ++step) {
    const auto part = schedule.positions(step);
    groups[step % 2].insert(groups[step % 2].end(), part.begin(), part.end());
  }
  EXPECT_FALSE(std::ranges::is_sorted(groups[0]) || std::ranges::is_sorted(groups[1]));
  EXPECT_NE(std::vector<int64_t>(groups[0].begin(), groups[0].end()), shuffled(100, 7, 1));
  EXPECT_EQ(groups[0], shuffled(100, 7, 0)) << "one group alone is ordered as ever";
  for (std::vector<int64_t>& group : groups) std::ranges::sort(group);
  for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(i < 100 ? groups[0][i] : groups[1][i - 100], i);
}

TEST(SeedSets, ReadGroupsAndRefuseStartsThatAreNone) {
  const FolderOfSets folder;
  folder.write("seeds-0.npy", {4, 2, 7});
  EXPECT_EQ(SeedSets(folder / "", 10).get(0).starts, (std::vector<int64_t>{0, 3}));
  folder.write("seeds-0-starts.npy", {0, 1, 3});
  EXPECT_EQ(SeedSets(folder / "", 10).get(0).starts, (std::vector<int64_t>{0, 1, 3}));
  for (const std::vector<int64_t>& bad : std::vector<std::vector<int64_t>>{{0, 2}, {1, 3}, {3}, {0, 3, 2, 3}}) {
    folder.write("seeds-0-starts.npy", bad);
    EXPECT_THROW(SeedSets(folder / "", 10).get(0), base::Error);
  }
}

TEST(SeedSets, ForgetSetsWhoseFilesAreRemoved) {
  const FolderOfSets folder;
  folder.write("seeds-0.npy", {4, 2});
  folder.write("pairs-1.npy", {5, 6}, {1, 2});
  SeedSets sets(folder / "", 10);
  const SeedSet& kept = sets.get(0);
  EXPECT_TRUE(sets.get(1).are_pairs);
  std::filesystem::remove(folder / "pairs-1.npy");
  EXPECT_EQ(&sets.get(0), &kept);
  EXPECT_EQ(kept.seeds, (std::vector<int64_t>{4, 2}));
  EXPECT_THROW(sets.get(1), base::Error);
  std::filesystem::remove(folder / "seeds-0.npy");
  folder.write("seeds-1.npy", {7});
  EXPECT_EQ(sets.get(1).seeds, (std::vector<int64_t>{7}));
  EXPECT_THROW(sets.get(0), base::Error);
}

TEST(SeedSets, ReadTimesOfSeedsThatMayRepeat) {
  const FolderOfSets folder;
  folder.write("seeds-0.npy", {4, 2, 4});
  EXPECT_THROW(SeedSets(folder / "", 10).get(0), base::Error);
  EXPECT_TRUE(SeedSets(folder / "", 10).get(0, true).times.empty());
  folder.write("seeds-0-times.npy", {30, 10, -20});
  SeedSets sets(folder / "", 10);
  const SeedSet& set = sets.get(0, true);
  Schedule schedule = schedule_of(set, request(2, true));
  for (uint64_t step = 0; step < 2; ++step) {
    const auto positions = schedule.positions(step), times = schedule.times(step);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      EXPECT_EQ(times[i], set.times[static_cast<std::size_t>(positions[i])]);
    }
    EXPECT_EQ(times.size(), positions.size());
  }
  folder.write("seeds-0-times.npy", {30, 10});
  EXPECT_THROW(SeedSets(folder / "", 10).get(0, true), base::Error);
}

TEST(NodeWeights, FindTheNodeThatANumberBelongsTo) {
  const NodeWeights weights({0, 3, 3, 4, int64_t{1} << 62, int64_t{1} << 62}, "weights");
  EXPECT_TRUE(NodeWeights().empty());
  EXPECT_EQ(weights.size(), 6);
  EXPECT_EQ(weights.total(), int64_t{1} << 62);
  const std::vector<int64_t> numbers = {0, 1, 2, 3, 4, weights.total() - 1};
  const std::vector<int64_t> nodes = {1, 1, 1, 3, 4, 4};
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(weights.node_of(numbers[i]), nodes[i]) << numbers[i];
}

TEST(NodeWeights, RefuseSumsThatAreNone) {
  for (const std::vector<int64_t>& bad : std::vector<std::vector<int64_t>>{{}, {0, 0}, {-1, 3}, {2, 1}}) {
    EXPECT_THROW(NodeWeights(bad, "weights"), base::Error);
  }
}

TEST(NodeTimes, CountTheNodesThatExist) {
  const NodeTimes times({2, 0, 3, 1, /* of each node */ 5, 9, -4, 5}, "times");
  EXPECT_TRUE(NodeTimes().empty());
  EXPECT_EQ(times.size(), 4);
  const std::vector<int64_t> at = {-5, -4, 4, 5, 8, 9}, counts = {0, 1, 1, 3, 3, 4};
  for (std::size_t i = 0; i < at.size(); ++i) EXPECT_EQ(times.count_until(at[i]), counts[i]) << at[i];
  EXPECT_EQ(times.node(1), 0);
  EXPECT_EQ(times.time_of(1), 9);
  for (const std::vector<int64_t>& bad : std::vector<std::vector<int64_t>>{{}, {1, 0, 2, 3}, {0, 2, 1, 1}}) {
    EXPECT_THROW(NodeTimes(bad, "times"), base::Error);
  }
}

TEST(SeedSets, ReadWeightsOfNegativesOfPairs) {
  const FolderOfSets folder;
  folder.write("pairs-0.npy", {4, 2, 4, 5}, {2, 2});
  EXPECT_TRUE(SeedSets(folder / "", 10).get(0).source_weights.empty());
  folder.write("weights-0-target.npy", {0, 7, 9});
  SeedSets sets(folder / "", 10);
  const SeedSet& set = sets.get(0);
  EXPECT_TRUE(set.source_weights.empty());
  EXPECT_EQ(set.target_weights.size(), 3);
  EXPECT_EQ(set.target_weights.node_of(8), 2);
  folder.write("weights-0-source.npy", {3, 2});
  EXPECT_THROW(SeedSets(folder / "", 10).get(0), base::Error);
}

TEST(EpochOrders, AreTheSameWhateverWasAskedForBefore) {
  const SeedSet set = seed_set(100), other = seed_set(60);
  EpochOrders orders(7);
  EXPECT_EQ(orders.of(seed_set(2'000'000), request(8, true, 2)).size(), 2'000'000u) << "a set that is gone at once";
  for (const uint64_t epoch : {3, 4, 5, 5, 9, 10, 2}) {
    EXPECT_EQ(orders.of(set, request(8, true, epoch)), shuffled(100, 7, epoch)) << epoch;
    EXPECT_TRUE(std::ranges::is_sorted(orders.of(other, request(8, false, epoch))));
  }
  EXPECT_EQ(orders.of(other, request(8, true, 3)), shuffled(60, 7, 3));
  EXPECT_EQ(orders.of(set, request(8, true, 4)), shuffled(100, 7, 4)) << "the other set was next";
}

// 1000 seeds of 20 communities, in two groups; `mix` of them come from everywhere, the others by community.
TEST(EpochOrders, ByCommunityMixTheShareThatIsAskedFor) {
  SeedSet set = seed_set(1000);
  set.starts = {0, 400, 1000};
  Communities communities{{}, 20};
  for (int64_t i = 0; i < 1000; ++i) communities.of_seed.push_back(i * i % 1009 % 20);
  set.communities = std::make_shared<const Communities>(communities);
  const auto community_of = [&](int64_t position) { return communities.of_seed[static_cast<std::size_t>(position)]; };
  for (const double mix : {0.0, 0.25, 0.9, 1.0}) {
    EpochOrders orders(7, mix);
    const std::vector<int64_t> before = orders.of(set, request(8, true, 2)),
                               order = orders.of(set, request(8, true, 3));
    EXPECT_EQ(order, EpochOrders(7, mix).of(set, request(8, true, 3))) << "whatever was asked for before";
    for (std::size_t group = 0; group < 2; ++group) {
      const auto first = static_cast<std::size_t>(set.starts[group]);
      const std::size_t size = static_cast<std::size_t>(set.starts[group + 1]) - first;
      const std::span<const int64_t> own = std::span(order).subspan(first, size);
      std::vector<int64_t> shuffle = shuffled(static_cast<int64_t>(size), 7, 3, group), from_everywhere, rest;
      for (int64_t& position : shuffle) position += static_cast<int64_t>(first);
      const auto num_mixed = static_cast<std::size_t>(std::llround(mix * static_cast<double>(size)));
      for (std::size_t i = 0; i < size; ++i) {
        const bool is_mixed = (i + 1) * num_mixed / size > i * num_mixed / size;
        (is_mixed ? from_everywhere : rest).push_back(own[i]);
      }
      EXPECT_TRUE(std::ranges::equal(from_everywhere, std::span(shuffle).first(num_mixed)));
      std::set<int64_t> seen;  // a community that ends does not come again
      for (std::size_t i = 0; i < rest.size(); ++i) {
        if (i == 0 || community_of(rest[i]) != community_of(rest[i - 1])) {
          EXPECT_TRUE(seen.insert(community_of(rest[i])).second) << mix << " " << i;
        }
      }
      std::vector<int64_t> all(own.begin(), own.end());
      std::ranges::sort(all);
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(all[i], static_cast<int64_t>(first + i));
    }
    EXPECT_TRUE(mix > 0.5 || community_of(before[0]) != community_of(order[0])) << "another turn in each epoch";
  }
}

TEST(SeedSets, FindTheCommunitiesOfNodes) {
  const FolderOfSets folder;
  folder.write("seeds-0.npy", {4, 2, 7, 3});
  folder.write("pairs-1.npy", {5, 6}, {1, 2});
  folder.write("communities.npy", {0, 0, 90, -1, 5, 0, 0, 90});
  SeedSets sets(folder / "", 8, NodeCommunities(folder / "communities.npy", 8));
  EXPECT_EQ(sets.get(0).communities->of_seed, (std::vector<int64_t>{1, 2, 2, 0}));
  EXPECT_EQ(sets.get(0).communities->count, 3);
  EXPECT_EQ(sets.get(1).communities, nullptr);
  EXPECT_EQ(SeedSets(folder / "", 8).get(0).communities, nullptr);
  EXPECT_TRUE(base::fails_with([&] { NodeCommunities(folder / "communities.npy", 9); }, {"int64 [8]", "int64 [9]"}));
  dataset::create_npy(folder / "halves.npy", dataset::DType::float32, {8});
  EXPECT_TRUE(base::fails_with([&] { NodeCommunities(folder / "halves.npy", 8); }, {"float32 [8]"}));
}

TEST(Schedule, RefusesABatchSizeOfZero) {
  const auto set = seed_set(4);
  EXPECT_THROW(schedule_of(set, request(0, false)), base::Error);
}

// Every position of a short shuffle is equally likely: chi-square over 6 permutations of 3, 5 degrees of freedom.
TEST(Schedule, ShufflesUniformly) {
  std::map<std::vector<int64_t>, int> count;
  constexpr int kDraws = 6000;
  for (uint64_t epoch = 0; epoch < kDraws; ++epoch) ++count[shuffled(3, 11, epoch)];
  ASSERT_EQ(count.size(), 6u);
  double chi_square = 0;
  for (const auto& [order, times] : count) chi_square += (times - 1000.0) * (times - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 20.5);  // p = 0.001
}

}  // namespace
}  // namespace cohort::sampler
