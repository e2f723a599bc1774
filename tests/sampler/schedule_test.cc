#include "sampler/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"

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

std::vector<int64_t> seed_set(int64_t size) {
  std::vector<int64_t> seeds(static_cast<std::size_t>(size));
  std::iota(seeds.begin(), seeds.end(), 1000);
  return seeds;
}

TEST(Schedule, KeepsThePartialLastBatch) {
  const auto set = seed_set(10);
  Schedule schedule(set, request(4, false), 0);
  ASSERT_EQ(schedule.num_steps(), 3u);
  EXPECT_EQ(schedule.seeds(2).size(), 2u);
  EXPECT_EQ(schedule.seeds(2)[1], 1009);
}

TEST(Schedule, AnExactMultipleHasNoEmptyBatch) {
  const auto set = seed_set(8);
  EXPECT_EQ(Schedule(set, request(4, false), 0).num_steps(), 2u);
}

TEST(Schedule, VisitsEverySeedOnceInEveryEpoch) {
  const auto set = seed_set(1000);
  std::set<std::vector<int64_t>> orders;
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    auto all = all_positions(Schedule(set, request(64, true, epoch), 7));
    orders.insert(all);
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(all[static_cast<std::size_t>(i)], i);
  }
  EXPECT_EQ(orders.size(), 5u) << "epochs repeat each other";
}

TEST(Schedule, TheOrderDependsOnSeedAndEpochAlone) {
  EXPECT_EQ(shuffled(100, 3, 4), shuffled(100, 3, 4));
  EXPECT_NE(shuffled(100, 3, 4), shuffled(100, 4, 4));
}

TEST(Schedule, RefusesABatchSizeOfZero) {
  const auto set = seed_set(4);
  EXPECT_THROW(Schedule(set, request(0, false), 0), base::Error);
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
