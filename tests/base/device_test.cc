#include "base/device.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace cohort::base {
namespace {

using Cliques = std::vector<std::vector<int>>;

Cliques cliques(std::vector<int> gpus, const std::set<std::pair<int, int>>& reads) {
  return cliques_of(gpus, 8, [&](int reader, int owner) { return reads.contains({reader, owner}); });
}

TEST(Cliques, AreGroupsWhereAllReadEachOther) {
  EXPECT_EQ(cliques({0, 1, 2}, {}), (Cliques{{0}, {1}, {2}}));
  EXPECT_EQ(cliques({0, 1}, {{0, 1}, {1, 0}}), (Cliques{{0, 1}}));
  EXPECT_EQ(cliques({0, 1}, {{0, 1}}), (Cliques{{0}, {1}})) << "one direction is not enough";
  const std::set<std::pair<int, int>> chain = {{0, 1}, {1, 0}, {1, 2}, {2, 1}};
  EXPECT_EQ(cliques({0, 1, 2}, chain), (Cliques{{0, 1}, {2}})) << "2 does not reach 0";
  EXPECT_EQ(cliques({2, 1, 0}, chain), (Cliques{{2, 1}, {0}})) << "in the order given";
  EXPECT_EQ(cliques({}, {}), Cliques{});
  const auto all = [](int, int) { return true; };
  EXPECT_EQ(cliques_of(std::vector{0, 1, 2, 3, 4}, 2, all), (Cliques{{0, 1}, {2, 3}, {4}}));
}

TEST(GpuCliques, HoldEveryGpuOnceAndAnswerAsTheRuntime) {
  std::vector<int> gpus(visible_gpus().size());
  if (gpus.empty()) GTEST_SKIP() << "no GPU";
  std::iota(gpus.begin(), gpus.end(), 0);
  std::multiset<int> found;
  for (const auto& clique : peer_cliques(gpus)) {
    found.insert(clique.begin(), clique.end());
    for (int gpu : clique) {
      for (int other : clique) EXPECT_TRUE(gpu == other || can_read_peer(gpu, other));
    }
  }
  EXPECT_EQ(found, std::multiset<int>(gpus.begin(), gpus.end()));
}

}  // namespace
}  // namespace cohort::base
