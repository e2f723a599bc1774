#include "sampler/presample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

struct CountingRun {
  TestGraph<int32_t> graph = mixed_graph<int32_t>(3000, 9);
  std::vector<int64_t> seeds = std::vector<int64_t>(1000);
  cache::HotnessKey key{1, 2, {4, 3}, 64};

  cache::Hotness presample(int64_t max_batches) {
    std::iota(seeds.begin(), seeds.end(), 500);
    GraphView without_rows = graph.view();
    without_rows.row_bytes = 0;
    return sampler::presample(without_rows, seeds, key, max_batches, *make_host_backend(without_rows, {}));
  }
};

uint64_t sum(auto values) { return std::accumulate(values.begin(), values.end(), uint64_t{0}); }

TEST(Presample, StopsAtTheEpochsEndOrTheBound) {
  EXPECT_EQ(CountingRun().presample(200).num_batches(), 32) << "twice 1000 seeds in batches of 64";
  EXPECT_EQ(CountingRun().presample(5).num_batches(), 4);
  EXPECT_EQ(CountingRun().presample(1).num_batches(), 1);
}

// Two whole epochs: every seed is expanded in the first hop; no list gives more than the fanout allows.
TEST(Presample, CountsWhatTheSamplerReads) {
  CountingRun run;
  const cache::Hotness hotness = run.presample(200);
  for (int64_t seed : run.seeds) EXPECT_GE(hotness.expansions()[static_cast<std::size_t>(seed)], 2u);
  for (std::size_t node = 0; node < 3000; ++node) {
    const auto degree = static_cast<uint64_t>(run.graph.indptr[node + 1] - run.graph.indptr[node]);
    const uint64_t expansions = hotness.expansions()[node], edges = hotness.edges_read()[node];
    EXPECT_LE(expansions, hotness.node_reads()[node]);
    EXPECT_LE(edges, expansions * std::min<uint64_t>(degree, 4));
    EXPECT_GE(edges, expansions * std::min<uint64_t>(degree, 3));
  }
}

// The sums of nodes and edges, against the batches themselves.
TEST(Presample, CountsAddUpToTheBatches) {
  CountingRun run;
  const cache::Hotness hotness = run.presample(1);
  EXPECT_EQ(sum(hotness.node_reads()), static_cast<uint64_t>(hotness.max_batch_nodes()));
  EXPECT_EQ(sum(hotness.edges_read()), static_cast<uint64_t>(hotness.max_batch_edges()));
}

TEST(Presample, TheSameCountsEachTime) {
  const cache::Hotness a = CountingRun().presample(200), b = CountingRun().presample(200);
  EXPECT_TRUE(std::ranges::equal(a.node_reads(), b.node_reads()));
  EXPECT_TRUE(std::ranges::equal(a.edges_read(), b.edges_read()));
}

}  // namespace
}  // namespace cohort::sampler
