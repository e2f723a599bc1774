// Draws with replacement: how often positions are drawn, and that batches have exactly these draws.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "sampler/draw.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

double chi_square(const std::vector<int64_t>& counts) {
  const auto total = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int64_t count : counts) {
    sum += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) / expected;
  }
  return sum;
}

std::vector<int64_t> draw(int64_t node, int64_t picks, int64_t degree) {
  std::vector<int64_t> positions(static_cast<std::size_t>(picks));
  draw_positions(Draw::kReplaced, batch_key(3, 0, 0), node, 1, 2, picks, degree, positions.data());
  return positions;
}

// 10^6 draws each; p = 1e-6.
TEST(ReplacedDraw, IsUniformAndIndependent) {
  constexpr int64_t kNodes = 1000, kPicks = 1000;
  std::vector<int64_t> positions(37), pairs(11 * 11);
  for (int64_t node = 0; node < kNodes; ++node) {
    for (const int64_t position : draw(node, kPicks, 37)) ++positions.at(static_cast<std::size_t>(position));
    const std::vector<int64_t> drawn = draw(node, kPicks, 11);
    for (std::size_t j = 0; j < drawn.size(); j += 2) {
      ++pairs.at(static_cast<std::size_t>(drawn[j] * 11 + drawn[j + 1]));
    }
  }
  EXPECT_LT(chi_square(positions), 91.5);  // 36 degrees of freedom
  EXPECT_LT(chi_square(pairs), 208.5);     // 120 degrees of freedom
  EXPECT_EQ(draw(5, 4, 1), (std::vector<int64_t>(4, 0)));
}

TEST(ReplacedDraw, CountsArePicks) {
  for (const int64_t degree : {0, 1, 7, 300}) {
    for (const int64_t fanout : {0, 1, 7, 40}) {
      EXPECT_EQ(picks_of(fanout, Draw::kReplaced).of(degree), degree > 0 ? fanout : 0);
    }
    EXPECT_EQ(picks_of(-1, Draw::kReplaced).of(degree), degree);
  }
}

class ReplacedFanouts : public ::testing::TestWithParam<std::vector<int32_t>> {};

// Each list of a hop in turn; exclusions from hop 0.
TEST_P(ReplacedFanouts, BatchesHaveTheDraws) {
  const auto graph = mixed_graph<int32_t>(500, 3);
  const auto backend = make_host_backend(graph.view(), {});
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<int64_t> seeds(40);
    std::iota(seeds.begin(), seeds.end(), static_cast<int64_t>(step) * 60);
    Query query{seeds, GetParam(), batch_key(1, 0, step), true};
    query.spec.draw = Draw::kReplaced;
    SomeExclusions exclusions(graph, seeds);
    if (step % 2 == 1) exclusions.apply_to(query);
    const HostBatch batch = run_host(*backend, graph.view(), query);
    std::size_t edge = 0, target = 0;
    for (std::size_t hop = 0; hop < GetParam().size(); ++hop) {
      const std::size_t end = target + static_cast<std::size_t>(batch.counts.nodes_per_hop[hop]);
      for (; target < end; ++target) {
        const int64_t node = batch.n_id[target], row = graph.indptr[static_cast<std::size_t>(node)];
        const ExclusionsRef none{}, some{exclusions.starts.data(), exclusions.positions.data()};
        const ExcludedRef excluded = (hop == 0 && step % 2 == 1 ? some : none).of_list(static_cast<int64_t>(target));
        const int64_t degree = graph.indptr[static_cast<std::size_t>(node) + 1] - row - excluded.count;
        const int64_t fanout = GetParam()[hop], picks = fanout < 0 ? degree : degree > 0 ? fanout : 0;
        ASSERT_EQ(batch.indptr[target + 1] - batch.indptr[target], picks);
        for (int64_t j = 0; j < picks; ++j, ++edge) {
          const int64_t drawn = fanout < 0 ? j : draw_replaced(query.key, node, static_cast<int>(hop), j, degree);
          ASSERT_EQ(batch.e_id[edge], row + pass_over(excluded, drawn));
          const auto source = static_cast<std::size_t>(batch.edge_index[edge]);
          ASSERT_EQ(batch.n_id[source], graph.indices[static_cast<std::size_t>(batch.e_id[edge])]);
        }
      }
    }
    ASSERT_EQ(edge, batch.e_id.size());
    ASSERT_EQ(std::set<int64_t>(batch.n_id.begin(), batch.n_id.end()).size(), batch.n_id.size());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReplacedFanouts,
                         ::testing::Values(std::vector<int32_t>{3, 2}, std::vector<int32_t>{50, 4},
                                           std::vector<int32_t>{-1, 3}, std::vector<int32_t>{0, 2},
                                           std::vector<int32_t>{1, 1, 1, 1}));

// As HostBackend.ASeedKeepsItsMeaning.
TEST(ReplacedDraw, ASeedKeepsItsMeaning) {
  const auto graph = mixed_graph<int32_t>(100, 9);
  const std::vector<int64_t> seeds = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<int32_t> fanout = {3, 2};
  Query query{seeds, fanout, batch_key(1, 0, 0), true};
  query.spec.draw = Draw::kReplaced;
  const HostBatch batch = run_host(*make_host_backend(graph.view(), {}), graph.view(), query);
  uint64_t hash = 1469598103934665603ull;  // FNV-1a over the ids of edges
  for (int64_t id : batch.e_id) hash = (hash ^ static_cast<uint64_t>(id)) * 1099511628211ull;
  EXPECT_EQ(hash, 15056752504421337275ull);
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

}  // namespace
}  // namespace cohort::sampler
