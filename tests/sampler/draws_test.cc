// What is drawn: by weight, with replacement, by layers, in trees.
#include "sampler/draw_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "sampler/draw.h"
#include "sampler/trees.h"
#include "tests/base/fails.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

// One list, and what draws read of it.
struct OneList {
  explicit OneList(const std::vector<float>& weights)
      : indptr{0, std::ssize(weights)},
        made({.num_nodes = 1, .num_edges = indptr[1], .indptr = indptr.data()}, weights.data(), "a list") {}

  ListMass mass() const { return made.ref().of_list(indptr.data()); }

  std::vector<int64_t> indptr;
  DrawWeights made;
};

TEST(DrawWeights, ATinyWeightHasAUnit) {
  const OneList list({1e-30F, 1e30F, 1e-30F, 0, 1e-38F});
  const std::vector<uint32_t> expected = {1, kListMass - 3, 1, 0, 1};
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(list.mass().units(i), expected[static_cast<std::size_t>(i)]) << i;
}

TEST(DrawWeights, RefusesWeightsThatAreNone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [bad, shown] : {std::pair{-0.5F, "-0.5"}, {kInfinity, "inf"}, {std::nanf(""), "nan"}}) {
    const auto take = [bad] { OneList({1, 2, bad, 3, -7}); };
    EXPECT_TRUE(base::fails_with(take, {"a list", std::string(shown) + " of edge 2"}));
  }
}

// Each unit that is not taken, in turn, also right before, between and behind edges that are.
TEST(DrawWeights, PassesOverUnitsThatAreTaken) {
  const std::vector<uint32_t> units = {3, 0, 4, 1, 2, 0, 5, 1};
  std::vector<uint32_t> cumulative(units.size());
  std::partial_sum(units.begin(), units.end(), cumulative.begin());
  const ListMass list{cumulative.data(), std::ssize(cumulative)};
  for (unsigned edges = 0; edges < 1u << units.size(); ++edges) {
    std::vector<TakenRange> taken;
    std::vector<int64_t> left;  // the position of each unit
    for (int64_t i = 0; i < list.degree; ++i) {
      if (edges >> i & 1) {
        taken.push_back({list.begin(i), cumulative[static_cast<std::size_t>(i)]});
      } else {
        left.insert(left.end(), list.units(i), i);
      }
    }
    for (std::size_t t = 0; t < left.size(); ++t) {
      ASSERT_EQ(position_of(list, static_cast<uint32_t>(t), taken), left[t]) << "unit " << t << ", edges " << edges;
    }
  }
}

// --- with replacement -----------------------------------------------------------------------------------------------

double chi_square(const std::vector<int64_t>& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int64_t count : counts) {
    sum += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) / expected;
  }
  return sum;
}

TEST(ReplacedDraw, IsUniformAlone) {
  auto graph = weighed(mixed_graph<int32_t>(100, 3));
  graph.time_edges();
  const std::vector<int64_t> seeds = {1, 2}, times = {0, 0};
  const std::vector<int32_t> fanout = {3};
  Query query{seeds, fanout, batch_key(1, 0, 0)};
  query.spec.draw = Draw::kReplaced;
  query.spec.disjoint = true;
  query.spec.times = times;
  make_host_backend(graph.view(), {})->sample(query);
  query.spec = {.draw = Draw::kReplaced};
  graph.draw_by_weight();
  EXPECT_ANY_THROW(make_host_backend(graph.view(), {})->sample(query));
}

// --- layer sampling
// ----------------------------------------------------------------------------------------------------

// The positions of a list that are not excluded, by the numbers of its neighbours; `again` counts equal ones that stand
// side by side.
std::vector<int64_t> by_number(const TestGraph<int32_t>& graph, std::size_t node, int hop, const NodeNumbers& numbers,
                               const ExcludedRef& excluded = {}) {
  std::vector<std::pair<uint64_t, int64_t>> numbered;
  int64_t again = 0;
  for (int64_t edge = graph.indptr[node]; edge < graph.indptr[node + 1]; ++edge) {
    const int32_t* neighbour = graph.indices.data() + edge;
    const int64_t position = edge - graph.indptr[node];
    again = position > 0 && neighbour[0] == neighbour[-1] ? again + 1 : 0;
    if (!excluded.has(position)) numbered.emplace_back(numbers.of(*neighbour, hop, again), position);
  }
  std::ranges::sort(numbered);
  std::vector<int64_t> positions;
  for (const auto& [number, position] : numbered) positions.push_back(position);
  return positions;
}

TEST(LayerDraw, TakesTheSmallestNumbersOfEachList) {
  auto graph = mixed_graph<int32_t>(500, 3);
  for (const int64_t times : {1, 3, 700}) {  // that each neighbour stands there
    std::vector<int64_t> neighbours(700);
    for (std::size_t i = 0; i < neighbours.size(); ++i) neighbours[i] = static_cast<int64_t>(i) / times % 500;
    graph.add_node(neighbours);
  }
  const auto backend = make_host_backend(graph.view(), {});
  std::vector<int64_t> seeds(303);
  std::iota(seeds.begin(), seeds.end(), int64_t{200});
  for (const int32_t fanout : {0, 1, 5, 40, -1}) {
    for (const bool excludes : {false, true}) {
      const std::vector<int32_t> hops = {fanout};
      Query query{seeds, hops, batch_key(1, 0, 4), true};
      query.spec.numbers = node_numbers(1, 0, 4, 3);
      SomeExclusions own(graph, seeds);
      if (excludes) own.apply_to(query);
      const HostBatch batch = run_host(*backend, graph.view(), query);
      std::size_t edge = 0;
      for (std::size_t i = 0; i < seeds.size(); ++i) {
        const auto seed = static_cast<std::size_t>(seeds[i]);
        ExcludedRef excluded;
        if (excludes)
          excluded = ExclusionsRef{own.starts.data(), own.positions.data()}.of_list(static_cast<int64_t>(i));
        std::vector<int64_t> expected = by_number(graph, seed, 0, query.spec.numbers, excluded);
        if (fanout >= 0) expected.resize(std::min<std::size_t>(expected.size(), static_cast<std::size_t>(fanout)));
        std::ranges::sort(expected);
        for (const int64_t position : expected) ASSERT_EQ(batch.e_id[edge++], graph.indptr[seed] + position) << seed;
        ASSERT_EQ(batch.indptr[i + 1], static_cast<int64_t>(edge));
      }
      ASSERT_EQ(edge, batch.e_id.size());
    }
  }
}

// 10^6 draws of 4 out of 11, in which one node stands twice; p = 1e-6. Numbers of some batches in a row, and of hops,
// may depend on each other: each list of each batch by itself must be uniform.
TEST(LayerDraw, IsUniformInEachBatch) {
  TestGraph<int32_t> graph;
  for (int i = 0; i < 10; ++i) graph.add_node({});
  graph.add_node({0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9});
  for (const uint64_t dependency : {1, 7}) {
    std::vector<int64_t> positions(11), pairs(11 * 11);
    for (uint64_t batch = 0; batch < 250'000; ++batch) {
      const uint64_t step = dependency == 1 ? batch : batch % 13;
      const NodeNumbers numbers = node_numbers(batch, 2, step, dependency, dependency > 1);
      std::vector<int64_t> drawn = by_number(graph, 10, 1, numbers);
      drawn.resize(4);
      std::ranges::sort(drawn);
      for (const int64_t position : drawn) ++positions.at(static_cast<std::size_t>(position));
      ++pairs.at(static_cast<std::size_t>(drawn[0] * 11 + drawn[3]));
    }
    // The picks of a draw repel each other, so this is below a chi square of 10 degrees of freedom.
    EXPECT_LT(chi_square(positions), 51.6);
    for (std::size_t first = 0; first < 11; ++first) {
      for (std::size_t last = 0; last < 11; ++last) {
        const auto between = static_cast<double>(last) - static_cast<double>(first) - 1;  // choose 2 of these
        const double expected = between < 2 ? 0 : 250'000 * between * (between - 1) / 2 / 330;
        const auto count = static_cast<double>(pairs[first * 11 + last]);
        EXPECT_LE(std::abs(count - expected), 5.6 * std::sqrt(expected)) << first << " " << last;
      }
    }
  }
}

// From batch to batch, one in `dependency` nodes gets another number, each node once in so many batches.
TEST(LayerDraw, NumbersChangeInTurn) {
  constexpr int64_t kNodes = 20'000;
  for (const uint64_t dependency : {1, 2, 5, 64}) {
    std::vector<int64_t> changes(kNodes);
    for (uint64_t step = 0; step < dependency; ++step) {
      int64_t changed = 0;
      for (int64_t node = 0; node < kNodes; ++node) {
        const NodeNumbers before = node_numbers(1, 0, step, dependency),
                          after = node_numbers(1, 0, step + 1, dependency);
        const bool has_changed = before.of(node, 0, 0) != after.of(node, 0, 0);
        changes[static_cast<std::size_t>(node)] += has_changed ? 1 : 0;
        changed += has_changed ? 1 : 0;
      }
      const double expected = static_cast<double>(kNodes) / static_cast<double>(dependency);
      EXPECT_NEAR(static_cast<double>(changed), expected, 6 * std::sqrt(expected)) << dependency;
    }
    EXPECT_EQ(std::ranges::count(changes, 1), kNodes) << dependency;
  }
  const NodeNumbers numbers = node_numbers(1, 0, 0, 1);
  EXPECT_NE(numbers.of(7, 0, 0), numbers.of(7, 1, 0)) << "hops have numbers of their own";
  EXPECT_NE(numbers.of(7, 0, 0), node_numbers(1, 1, 0, 1).of(7, 0, 0)) << "and epochs";
  EXPECT_NE(numbers.of(7, 0, 0), numbers.of(7, 0, 1)) << "and parallel edges";
  const NodeNumbers of_all_hops = node_numbers(1, 0, 0, 1, true);
  EXPECT_EQ(of_all_hops.of(7, 0, 3), numbers.of(7, 0, 3));
  EXPECT_EQ(of_all_hops.of(7, 2, 3), numbers.of(7, 0, 3));
}

TEST(LayerDraw, IsUniformOfSharedNodesAlone) {
  auto graph = weighed(mixed_graph<int32_t>(100, 3));
  const std::vector<int64_t> seeds = {1, 2};
  const std::vector<int32_t> fanout = {3};
  Query query{seeds, fanout, batch_key(1, 0, 0)};
  const NodeNumbers numbers = node_numbers(1, 0, 0, 1);
  for (const DrawSpec& spec :
       {DrawSpec{.draw = Draw::kReplaced, .numbers = numbers}, DrawSpec{.numbers = numbers, .disjoint = true}}) {
    query.spec = spec;
    EXPECT_ANY_THROW(make_host_backend(graph.view(), {})->sample(query));
  }
  graph.draw_by_weight();
  query.spec = {.numbers = numbers};
  EXPECT_ANY_THROW(make_host_backend(graph.view(), {})->sample(query));
}

// --- trees -----------------------------------------------------------------------------------------------------------

TEST(TimeSpan, EndsAtTheSeed) {
  const auto expect = [](int64_t time, int64_t window, int64_t first) {
    const TimeSpan span = span_until(time, window);
    EXPECT_EQ(span.first, first) << time << " " << window;
    EXPECT_EQ(span.last, time);
  };
  expect(5, -1, INT64_MIN);
  expect(5, 0, 5);
  expect(5, 7, -2);
  expect(-5, INT64_MAX, INT64_MIN);
  expect(INT64_MIN + 3, 3, INT64_MIN);
  expect(INT64_MIN + 3, 4, INT64_MIN);
  expect(INT64_MAX, INT64_MAX, 0);
}

// All edges in the span, less those that are excluded; of draws of the latest, the last of these.
TEST(Candidates, AreInTheSpanAndPassOverWhatIsExcluded) {
  const std::vector<int64_t> times = {9, -4, -4, 0, 0, 0, 7, 8};  // the list: all but the first and the last
  for (unsigned subset = 0; subset < 64; ++subset) {
    std::vector<int64_t> out;  // positions in the list, edges 1 to 6
    for (int64_t position = 0; position < 6; ++position) {
      if (subset >> position & 1) out.push_back(position);
    }
    const ExcludedRef excluded{out.data(), std::ssize(out)};
    for (const int64_t time : {-6, -5, -4, 0, 3, 7, 9}) {
      for (const int64_t window : {-1, 0, 4, 5, 40}) {
        const TimeSpan span = span_until(time, window);
        std::vector<int64_t> allowed;
        for (int64_t edge = 1; edge < 7; ++edge) {
          const int64_t at = times[static_cast<std::size_t>(edge)];
          if (at <= time && (window < 0 || at >= time - window) && !(subset >> (edge - 1) & 1)) allowed.push_back(edge);
        }
        for (const int64_t fanout : {-1, 0, 1, 3, 40}) {
          for (const bool latest : {false, true}) {
            const Draw draw = latest ? Draw::kLast : Draw::kUniform;
            const auto [first, count] = candidates_in(times.data(), 1, 7, span, draw, picks_of(fanout), excluded);
            const int64_t left = latest ? picks_of(fanout).of(std::ssize(allowed)) : std::ssize(allowed);
            std::vector<int64_t> found;
            for (int64_t i = 0; i < count; ++i) found.push_back(first + pass_over(excluded.from(first - 1), i));
            EXPECT_EQ(found, std::vector<int64_t>(allowed.end() - left, allowed.end())) << subset << " at " << time;
          }
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
