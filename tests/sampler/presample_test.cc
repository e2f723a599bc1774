#include "sampler/presample.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "tests/sampler/test_graph.h"
#include "tests/sampler/typed_graph.h"

namespace cohort::sampler {
namespace {

struct CountingRun {
  TestGraph<int32_t> graph = mixed_graph<int32_t>(3000, 9);
  std::vector<int64_t> seeds = std::vector<int64_t>(1000);
  cache::HotnessKey key{1, 2, {4, 3}, 64};

  cache::Hotness presample(int64_t max_batches) {
    std::iota(seeds.begin(), seeds.end(), 500);
    GraphView without_rows = graph.view();
    without_rows.types[0].rows.row_bytes = 0;
    return sampler::presample(without_rows, seeds, key, key.fanout, max_batches);
  }
};

uint64_t sum(auto values) { return std::accumulate(values.begin(), values.end(), uint64_t{0}); }

// However many batches are sampled side by side.
TEST(Presample, CountsTheSameWithAnyNumberOfThreads) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const cache::Hotness alone = CountingRun().presample(200);
  omp_set_num_threads(7);
  const cache::Hotness together = CountingRun().presample(200);
  omp_set_num_threads(threads);
  EXPECT_TRUE(std::ranges::equal(alone.node_reads(), together.node_reads()));
  EXPECT_TRUE(std::ranges::equal(alone.expansions(), together.expansions()));
  EXPECT_TRUE(std::ranges::equal(alone.edges_read(), together.edges_read()));
  EXPECT_EQ(alone.max_batch_nodes(), together.max_batch_nodes());
}

// Trees of one batch, against the batch that the backend draws for the same query.
TEST(Presample, CountsTheTreesOfARunInTime) {
  CountingRun run;
  run.graph.time_edges();
  run.presample(1);
  GraphView graph = run.graph.view();
  graph.types[0].rows.row_bytes = 0;
  CountedDraws how{.draw = channel::Draw::kLast, .disjoint = true, .times = {}, .time_window = {7}};
  for (std::size_t i = 0; i < run.seeds.size(); ++i) {
    run.seeds[i] = static_cast<int64_t>(i % 90);  // they repeat
    how.times.push_back(static_cast<int64_t>(i % 40) - 5);
  }
  const cache::HotnessKey key{1, 2, {4, 3}, 1000};
  const auto edges_of = [&](const CountedDraws& draws) {
    const cache::Hotness counts = presample(graph, run.seeds, key, key.fanout, 1, draws);
    EXPECT_EQ(sum(counts.node_reads()), static_cast<uint64_t>(counts.max_batch_nodes()));
    EXPECT_EQ(sum(counts.edges_read()), static_cast<uint64_t>(counts.max_batch_edges()));
    return counts.max_batch_edges();
  };
  Query query{run.seeds, key.fanout, batch_key(5, 0, 0)};
  query.spec = {.draw = how.draw, .disjoint = true, .times = how.times, .windows = how.time_window};
  const int64_t expected = make_host_backend(graph, {})->sample(query).num_edges;
  EXPECT_EQ(edges_of(how), expected) << "the latest edges do not depend on the key, nor on the order of seeds";
  how.time_window = {};
  const int64_t of_any_age = edges_of(how);
  how.times = {};
  EXPECT_LT(expected, of_any_age);
  EXPECT_LT(of_any_age, edges_of(how));
}

// One batch of all nodes of a type: rows and lists against the edges of the batch, which a relation without picks and
// lists of other types have not.
TEST(Presample, CountsTheListsOfEachRelation) {
  const TypedGraph types = random_types(8);
  GraphView graph = types.view();
  for (NodeRange& type : graph.types) type.rows.row_bytes = 0;
  const std::vector<cache::RelationLists> lists = numbered_lists(graph);
  ASSERT_GT(lists.size(), 2u);
  std::vector<int32_t> fanout;
  for (std::size_t relation = 0; relation < lists.size(); ++relation) {
    fanout.insert(fanout.end(), {relation == 1 ? 0 : 3, 2});
  }
  const NodeRange& labelled = graph.types[static_cast<std::size_t>(graph.label_type)];
  std::vector<int64_t> seeds(static_cast<std::size_t>(labelled.count));
  std::iota(seeds.begin(), seeds.end(), labelled.first);
  const cache::HotnessKey key{1, 2, {3, 2}, static_cast<uint32_t>(labelled.count)};
  const cache::Hotness counts = presample(graph, seeds, key, fanout, 1);
  ASSERT_EQ(counts.num_lists(), cache::end_of(lists));
  EXPECT_EQ(sum(counts.node_reads()), static_cast<uint64_t>(counts.max_batch_nodes()));
  EXPECT_EQ(sum(counts.edges_read()), static_cast<uint64_t>(counts.max_batch_edges()));
  for (std::size_t relation = 0; relation < lists.size(); ++relation) {
    const base::CscRef& own = lists[relation].lists;
    for (int64_t i = 0; i < own.num_nodes; ++i) {
      const auto list = static_cast<std::size_t>(lists[relation].first + i);
      const int64_t node = lists[relation].first_target + i;
      const bool is_seed = node >= labelled.first && node < labelled.first + labelled.count;
      const uint64_t degree = static_cast<uint64_t>(own.indptr[i + 1] - own.indptr[i]);
      const uint64_t most = is_seed ? (relation == 1 ? 0 : 3) : 2;
      ASSERT_EQ(counts.edges_read()[list], counts.expansions()[list] * std::min(degree, most)) << relation << " " << i;
      if (is_seed) {
        ASSERT_EQ(counts.expansions()[list], relation == 1 ? 0u : 1u);
      } else {
        ASSERT_LE(counts.expansions()[list], counts.node_reads()[static_cast<std::size_t>(node)]);
      }
    }
  }
}

TEST(Presample, ANumberOfTheFanoutIsOfARelationAndAHop) {
  const TypedGraph types = random_types(8);
  const GraphView graph = types.view();
  PresampleOptions options;
  for (std::size_t i = 0; i < graph.relations.size(); ++i) options.fanout.insert(options.fanout.end(), {4, 3});
  const std::vector<int64_t> seeds = {1, 2};
  const cache::HotnessKey key = hotness_key(graph, seeds, options);
  EXPECT_EQ(key.fanout, (std::vector<int32_t>{4, 3}));
  options.fanout.back() = 2;
  EXPECT_NE(hotness_key(graph, seeds, options).digest(), key.digest()) << "that of the last relation differs";
  options.fanout.pop_back();
  EXPECT_THROW(hotness_key(graph, seeds, options), base::Error);
}

}  // namespace
}  // namespace cohort::sampler
