#include "sampler/pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

constexpr int64_t kNodes = 900, kPairs = 3000;  // so many pairs that several threads look for their edges

// Lists of up to 40 neighbours, with parallel edges; ascending ones or not.
TestGraph<int32_t> graph_of_lists(bool ascending) {
  TestGraph<int32_t> graph;
  for (int64_t node = 0; node < kNodes; ++node) {
    const auto at = static_cast<uint64_t>(node);
    std::vector<int64_t> list(base::random_below(41, base::key_of(1), at, 0));
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i] = static_cast<int64_t>(base::random_below(kNodes, base::key_of(2), at, i) / 3 * 3 % kNodes);
    }
    if (ascending) std::ranges::sort(list);
    graph.add_node(list);
  }
  return graph;
}

class ManyPairs : public testing::TestWithParam<std::tuple<bool, channel::Exclude>> {};

TEST_P(ManyPairs, ExcludeTheirEdgesAlone) {
  const auto [ascending, exclude] = GetParam();
  const TestGraph<int32_t> graph = graph_of_lists(ascending);
  std::vector<int64_t> ids;
  std::set<std::pair<int64_t, int64_t>> excluded;  // source, target
  for (uint64_t pair = 0; pair < kPairs; ++pair) {
    const auto target = static_cast<int64_t>(base::random_below(kNodes, base::key_of(3), pair, 0));
    const auto begin = graph.indptr[static_cast<std::size_t>(target)],
               count = graph.indptr[static_cast<std::size_t>(target) + 1] - begin;
    int64_t source = target;  // mostly of no edge
    if (count > 0) {
      const uint64_t which = base::random_below(static_cast<uint64_t>(count), base::key_of(4), pair, 0);
      source = graph.indices[static_cast<std::size_t>(begin) + which];
    }
    ids.insert(ids.end(), {source, target});
    excluded.emplace(source, target);
    if (exclude == channel::Exclude::kReverse) excluded.emplace(target, source);
  }
  const SeedSet set = SeedSet::of_pairs(ids);
  std::vector<int64_t> positions(kPairs);
  std::iota(positions.begin(), positions.end(), 0);
  channel::Request request{};
  request.batch_size = kPairs;
  request.exclude = exclude;
  const GraphView view = graph.view();
  PairSeeds pairs(view);
  pairs.make(set, positions, request, base::key_of(5));

  ASSERT_EQ(pairs.exclusions().size(), 1U);
  const Exclusions& found = pairs.exclusions()[0];
  ASSERT_EQ(found.starts.size(), pairs.seeds().size() + 1);
  std::size_t num_excluded = 0;
  for (std::size_t seed = 0; seed < pairs.seeds().size(); ++seed) {
    const auto target = static_cast<std::size_t>(pairs.seeds()[seed]);
    std::vector<int64_t> expected;
    for (int64_t edge = graph.indptr[target]; edge < graph.indptr[target + 1]; ++edge) {
      const std::pair<int64_t, int64_t> ends{graph.indices[static_cast<std::size_t>(edge)], target};
      if (excluded.contains(ends)) expected.push_back(edge - graph.indptr[target]);
    }
    const auto begin = static_cast<std::size_t>(found.starts[seed]);
    const auto count = static_cast<std::size_t>(found.starts[seed + 1]) - begin;
    ASSERT_TRUE(std::ranges::equal(found.positions.subspan(begin, count), expected)) << "seed " << seed;
    num_excluded += count;
  }
  EXPECT_GT(num_excluded, std::size_t{2000});
}

TEST(Pairs, RefuseWeightsOfOtherNodesThanThoseOfTheType) {
  const TestGraph<int32_t> graph = graph_of_lists(true);
  SeedSet set = SeedSet::of_pairs({1, 2});
  set.target_weights = NodeWeights(std::vector<int64_t>(kNodes - 1, 1), "weights");
  channel::Request request{};
  request.batch_size = 1;
  request.negative_mode = channel::NegativeMode::kTriplet;
  request.negatives = 1;
  PairSeeds pairs(graph.view());
  EXPECT_THROW(pairs.make(set, std::vector<int64_t>{0}, request, base::key_of(5)), base::Error);
}

INSTANTIATE_TEST_SUITE_P(Lists, ManyPairs,
                         testing::Combine(testing::Bool(),
                                          testing::Values(channel::Exclude::kSelf, channel::Exclude::kReverse)));

}  // namespace
}  // namespace cohort::sampler
