#include "sampler/trees.h"

#include <gtest/gtest.h>

#include <map>

#include "base/check.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

TEST(Candidates, AreNoLaterThanTheTime) {
  const std::vector<int64_t> times = {9, -4, -4, 0, 0, 0, 7, 8};  // the list: all but the first and the last
  for (int64_t time = -6; time < 10; ++time) {
    int64_t allowed = 0;
    for (std::size_t i = 1; i < 7; ++i) allowed += times[i] <= time ? 1 : 0;
    for (const int64_t fanout : {-1, 0, 1, 3, 40}) {
      const auto any = candidates_until(times.data(), 1, 7, time, Draw::kUniform, picks_of(fanout), {});
      EXPECT_EQ(any.first, 1);
      EXPECT_EQ(any.count, allowed);
      const auto latest = candidates_until(times.data(), 1, 7, time, Draw::kLast, picks_of(fanout), {});
      EXPECT_EQ(latest.count, picks_of(fanout).of(allowed));
      EXPECT_EQ(latest.first + latest.count, 1 + allowed);
    }
  }
}

TEST(Candidates, PassOverWhatIsExcluded) {
  const std::vector<int64_t> times = {9, -4, -4, 0, 0, 0, 7, 8};
  for (unsigned subset = 0; subset < 64; ++subset) {
    std::vector<int64_t> out;  // positions in the list, edges 1 to 6
    for (int64_t position = 0; position < 6; ++position) {
      if (subset >> position & 1) out.push_back(position);
    }
    const ExcludedRef excluded{out.data(), std::ssize(out)};
    for (const int64_t time : {-5, -4, 0, 7}) {
      std::vector<int64_t> allowed;
      for (int64_t edge = 1; edge < 7; ++edge) {
        if (times[static_cast<std::size_t>(edge)] <= time && !(subset >> (edge - 1) & 1)) allowed.push_back(edge);
      }
      for (const int64_t fanout : {-1, 0, 1, 3, 40}) {
        for (const bool latest : {false, true}) {
          const Draw draw = latest ? Draw::kLast : Draw::kUniform;
          const auto [first, count] = candidates_until(times.data(), 1, 7, time, draw, picks_of(fanout), excluded);
          const int64_t left = latest ? picks_of(fanout).of(std::ssize(allowed)) : std::ssize(allowed);
          std::vector<int64_t> found;
          for (int64_t i = 0; i < count; ++i) found.push_back(first + pass_over(excluded.from(first - 1), i));
          EXPECT_EQ(found, std::vector<int64_t>(allowed.end() - left, allowed.end())) << subset << " at " << time;
        }
      }
    }
  }
}

TEST(TreeIds, AreThoseOfAMap) {
  TreeIds ids;
  for (int round = 0; round < 3; ++round) {
    std::map<int64_t, int32_t> expected;
    for (uint64_t i = 0; i < 20000; ++i) {
      const auto tree = static_cast<int64_t>(base::random_below(50, base::key_of(1), i, 0));
      const auto node = static_cast<int64_t>(base::random_below(300, base::key_of(1), i, 1)) << (round * 10);
      const auto next = static_cast<int32_t>(expected.size());
      const int64_t key = node_in_tree(tree, node);
      ASSERT_EQ(ids.find_or_add(static_cast<uint64_t>(key), next), expected.try_emplace(key, next).first->second);
    }
    EXPECT_GT(expected.size(), 10000u);
    ids.clear();
  }
}

TEST(Trees, ArePartOfNoOtherQuery) {
  auto graph = mixed_graph<int32_t>(100, 3);
  const auto backend = make_host_backend(graph.view(), {});
  const std::vector<int64_t> seeds = {1, 2}, times = {0, 0};
  const std::vector<int32_t> fanout = {3};
  Query query{seeds, fanout, batch_key(1, 0, 0)};
  query.spec.disjoint = true;
  backend->sample(query);
  query.spec.times = times;
  EXPECT_ANY_THROW(backend->sample(query)) << "edges have no times";
  query.spec.times = {};
  query.last_hop_global = true;
  EXPECT_ANY_THROW(backend->sample(query));
}

TEST(Trees, HaveBounds) {
  demand_trees(kMaxTrees);
  EXPECT_THROW(demand_trees(kMaxTrees + 1), base::Error);
  demand_tree_nodes(kMaxTreeNodes);
  EXPECT_THROW(demand_tree_nodes(kMaxTreeNodes + 1), base::Error);
}

}  // namespace
}  // namespace cohort::sampler
