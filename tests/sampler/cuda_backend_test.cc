#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <numeric>
#include <thread>

#include "sampler/draw.h"
#include "tests/sampler/cuda_batch.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

using namespace std::chrono_literals;

// How edges are drawn; layers: layer sampling, importance: by importance.
enum class Way { kUniform, kReplaced, kLayers, kImportance };

// excludes: from all batches but the last.
template <typename Index>
void expect_same_batches(const TestGraph<Index>& graph, TopologyMemory memory, const std::vector<int32_t>& fanout,
                         bool excludes = false, Way way = Way::kUniform) {
  GraphView view = graph.view();
  view.with_shares = way == Way::kImportance;
  const auto host = make_host_backend(view, {});
  const int gpu = 0;
  CudaSettings settings;
  settings.topology_in_gpus = topology_lies_in_gpus(view, {&gpu, 1}, memory, 0);
  const auto cuda = std::move(make_cuda_backends(view, {&gpu, 1}, settings, {}, {}).front());
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<int64_t> seeds(50 + 30 * step);
    std::iota(seeds.begin(), seeds.end(), static_cast<int64_t>(100 * step));
    const bool knows_edges = view.has_edge_weights() || graph.edge_dim > 0;
    Query query{seeds, fanout, batch_key(5, 1, step), knows_edges || step % 2 == 0};
    if (way == Way::kReplaced) query.spec.draw = Draw::kReplaced;
    if (way >= Way::kLayers) {
      query.spec.numbers = node_numbers(5, 1, step, 1 + step % 3, step > 1, way == Way::kImportance);
    }
    SomeExclusions exclusions(graph, seeds);
    if (excludes && step < 3) exclusions.apply_to(query);
    const HostBatch a = run_host(*host, view, query), b = run_cuda(*cuda, view, query);
    expect_equal(a, b);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Trees with and without times, of seeds that repeat, some drawn with replacement; then a batch without trees.
template <typename Index>
void expect_same_trees(TestGraph<Index> graph, TopologyMemory memory, const std::vector<int32_t>& fanout) {
  graph.time_edges();
  const auto host = make_host_backend(graph.view(), {});
  const int gpu = 0;
  CudaSettings settings;
  settings.topology_in_gpus = topology_lies_in_gpus(graph.view(), {&gpu, 1}, memory, 0);
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, settings, {}, {}).front());
  for (uint64_t step = 0; step < 12; ++step) {
    std::vector<int64_t> seeds(20 + 40 * step), times(seeds.size());
    for (std::size_t i = 0; i < seeds.size(); ++i) seeds[i] = static_cast<int64_t>(i * i % 301);
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = static_cast<int64_t>(i % 40) - 5;
    Query query{seeds, fanout, batch_key(5, 1, step), graph.edge_dim > 0 || step % 2 == 0};
    query.spec.disjoint = true;
    const std::vector<int64_t> window = {static_cast<int64_t>(step)};
    if (step % 4 != 3) query.spec.times = times;
    if (step % 3 > 0) query.spec.windows = window;
    query.spec.draw = step > 7 ? Draw::kReplaced : step % 4 > 1 ? Draw::kLast : Draw::kUniform;
    expect_equal(run_host(*host, graph.view(), query), run_cuda(*cuda, graph.view(), query));
    if (::testing::Test::HasFatalFailure()) return;
  }
  std::vector<int64_t> seeds(50);
  std::iota(seeds.begin(), seeds.end(), 0);
  const Query query{seeds, fanout, batch_key(5, 1, 9), graph.edge_dim > 0};
  expect_equal(run_host(*host, graph.view(), query), run_cuda(*cuda, graph.view(), query));
}

class GpuBackend : public ::testing::TestWithParam<std::vector<int32_t>> {};

TEST_P(GpuBackend, SameBitsAsTheHost) {
  for (const Way way : {Way::kUniform, Way::kReplaced, Way::kLayers, Way::kImportance}) {
    for (const bool excludes : {false, true}) {
      SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(way) << ", excludes " << excludes);
      expect_same_batches(mixed_graph<int32_t>(2000, 3), TopologyMemory::kGpu, GetParam(), excludes, way);
      expect_same_batches(mixed_graph<int64_t>(2000, 4), TopologyMemory::kHost, GetParam(), excludes, way);
    }
  }
}

TEST_P(GpuBackend, DrawsByWeight) {
  auto graph = weighed(mixed_graph<int32_t>(2000, 3));
  for (const bool top : {false, true}) {
    graph.draw_by_weight(top);
    for (const TopologyMemory memory : {TopologyMemory::kGpu, TopologyMemory::kHost}) {
      for (const bool excludes : {false, true}) expect_same_batches(graph, memory, GetParam(), excludes);
    }
  }
}

TEST_P(GpuBackend, SameTreesAsTheHost) {
  expect_same_trees(mixed_graph<int32_t>(2000, 3), TopologyMemory::kGpu, GetParam());
}

TEST_P(GpuBackend, SameTreesWithTopologyInHostMemory) {
  expect_same_trees(mixed_graph<int64_t>(2000, 4), TopologyMemory::kHost, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GpuBackend,
                         ::testing::Values(std::vector<int32_t>{25, 10}, std::vector<int32_t>{15, 10, 5},
                                           std::vector<int32_t>{-1, -1}, std::vector<int32_t>{100, 40},
                                           std::vector<int32_t>{0, 3}, std::vector<int32_t>{32, 33},
                                           std::vector<int32_t>{1, 2}));

TEST(GpuBackendRows, AnyRowSize) {
  for (int64_t dim : {1, 3, 4, 32, 100, 257}) {
    expect_same_batches(mixed_graph<int32_t>(1000, 6, dim), TopologyMemory::kAuto, {5, 5});
  }
}

TEST(GpuBackendGlobal, SourcesOfTheLastHopAreNodesOfTheGraph) {
  const auto graph = mixed_graph<int32_t>(1500, 9);
  const auto host = make_host_backend(graph.view(), {});
  const int gpu = 0;
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, {}, {}, {}).front());
  std::vector<int64_t> seeds(80);
  std::iota(seeds.begin(), seeds.end(), int64_t{100});
  SomeExclusions exclusions(graph, seeds);
  for (const auto& fanout : {std::vector<int32_t>{25, 10}, {15, 10, 5}, {7}, {-1, -1}, {5, 0}}) {
    for (const auto& [is_global, excludes] : {std::pair{true, false}, {false, false}, {true, true}}) {
      Query query{seeds, fanout, batch_key(5, 1, 0), false, is_global};
      if (excludes) exclusions.apply_to(query);
      for (const bool replace : {false, true}) {
        query.spec.draw = replace ? Draw::kReplaced : Draw::kUniform;
        expect_equal(run_host(*host, graph.view(), query), run_cuda(*cuda, graph.view(), query));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Lists that blocks look at, and of which a few, many, or nearly all are drawn.
TEST(GpuBackendHubs, SameBitsAsTheHost) {
  auto graph = mixed_graph<int32_t>(3000, 12);
  const base::PhiloxKey key = base::key_of(13);
  for (uint64_t hub = 0; hub < 20; ++hub) {
    std::vector<int64_t> neighbours(400 * (hub + 1));
    for (uint64_t j = 0; j < neighbours.size(); ++j) {
      const uint64_t bound = hub % 4 == 0 ? 60 : 3000;
      neighbours[j] = static_cast<int64_t>(base::random_below(bound, key, hub, j));
    }
    if (hub % 2 == 0) std::ranges::sort(neighbours);
    graph.add_node(neighbours);
  }
  std::vector<int64_t> seeds(graph.indptr.size() - 1);
  std::iota(seeds.begin(), seeds.end(), 0);
  GraphView view = graph.view();
  view.with_shares = true;
  const auto host = make_host_backend(view, {});
  const int gpu = 0;
  const auto cuda = std::move(make_cuda_backends(view, {&gpu, 1}, {}, {}, {}).front());
  SomeExclusions exclusions(graph, seeds);
  for (const auto& fanout : {std::vector<int32_t>{25, 10}, {70, 3}, {200, 100}, {700, 2}, {2000, 1}, {-1, 5}}) {
    for (const auto& [importance, excludes] : {std::pair{true, false}, {false, false}, {true, true}, {false, true}}) {
      SCOPED_TRACE(testing::Message() << fanout[0] << ", importance " << importance << ", excludes " << excludes);
      Query query{seeds, fanout, batch_key(5, 1, 0), true};
      query.spec.numbers = node_numbers(5, 1, 0, 1, false, importance);
      if (excludes) exclusions.apply_to(query);
      for (int again = 0; again < 2; ++again) {  // the second within bounds
        expect_equal(run_host(*host, view, query), run_cuda(*cuda, view, query));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows narrower and wider than what a warp reads at once.
TEST(GpuBackendEdgeRows, OfAnySize) {
  for (const int64_t dim : {1, 2, 3, 8, 32, 100}) {
    auto graph = mixed_graph<int32_t>(1500, 8);
    graph.describe_edges(dim);
    for (const auto& fanout : {std::vector<int32_t>{25, 10}, {-1, 3}, {0}}) {
      for (const Way way : {Way::kUniform, Way::kReplaced, Way::kLayers, Way::kImportance}) {
        expect_same_batches(graph, TopologyMemory::kAuto, fanout, false, way);
      }
    }
    expect_same_trees(graph, TopologyMemory::kHost, {5, 3});
  }
}

// Labels of one byte, of odd and even widths, of words and of two words.
TEST(GpuBackendLabels, OfAnyWidth) {
  for (const int64_t label_bytes : {1, 4, 7, 12, 16, 121}) {
    auto graph = mixed_graph<int32_t>(500, 8);
    graph.wide_labels = labels_of_bytes(graph.num_nodes(), label_bytes);
    expect_same_batches(graph, TopologyMemory::kAuto, {5, 5});
  }
}

// Of more ids than the driver copies aside (64 KB) before a call returns.
TEST(GpuBackendInputIds, MayChangeWhileTheStreamIsBusy) {
  const auto graph = mixed_graph<int32_t>(20'000, 3);
  const int gpu = 0;
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, {}, {}, {}).front());
  std::vector<int64_t> seeds(20'000);
  std::iota(seeds.begin(), seeds.end(), 0);
  const std::vector<int32_t> fanout = {1};
  const Query query{seeds, fanout, batch_key(5, 1, 0)};
  for (int i = 0; i < 2; ++i) run_cuda(*cuda, graph.view(), query);  // from here on nothing is allocated
  CudaBatch batch(graph.view(), query, cuda->sample(query));
  std::atomic<bool> may_go = false;
  const auto wait = [](void* go) {
    while (!static_cast<std::atomic<bool>*>(go)->load()) std::this_thread::sleep_for(1ms);
  };
  cuda->before_fetch(
      [&](base::GpuStream stream) { base::cuda_check(cudaLaunchHostFunc(stream, wait, &may_go), "wait"); });
  std::jthread patience([&] {
    for (int i = 0; i < 10'000 && !may_go; ++i) std::this_thread::sleep_for(1ms);
    may_go = true;
  });
  batch.start(*cuda);
  EXPECT_FALSE(may_go) << "a call that waits for the stream";
  batch.change_input_ids();
  may_go = true;
  EXPECT_EQ(batch.finish(*cuda).input_id, seeds);
}

// As the pipeline does it: another thread samples the next batch while the rows of this one come, and it is fetched
// before they are all there. All on other SMs from time to time.
TEST(GpuBackendAhead, SamplesAndFetchesTheNextBatchOnAnyPartOfTheSms) {
  auto graph = mixed_graph<int32_t>(3000, 7, 64);
  graph.describe_edges(6);
  const auto host = make_host_backend(graph.view(), {});
  const int gpu = 0;
  Faults faults;
  faults.slow_fetch_us = 2000;
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, {}, {}, faults).front());
  ASSERT_EQ(cuda->most_fetches(), 2u);
  const std::vector<int32_t> fanout = {7, 5};
  std::deque<CudaBatch> batches;
  for (const int sms : {0, 8, 24, 8, 0}) {
    cuda->use_sms(sms);
    std::vector<std::vector<int64_t>> seeds(6, std::vector<int64_t>(200));
    std::vector<Query> queries;
    for (uint64_t step = 0; step < seeds.size(); ++step) {
      std::iota(seeds[step].begin(), seeds[step].end(), static_cast<int64_t>(300 * step));
      queries.push_back({seeds[step], fanout, batch_key(5, 1, step), true});
    }
    std::vector<CudaBatch*> asked;
    const auto finish = [&](std::size_t step) {
      expect_equal(run_host(*host, graph.view(), queries[step]), asked[step]->finish(*cuda));
    };
    std::future<BatchSizes> ahead;
    for (std::size_t step = 0; step < seeds.size(); ++step) {
      const BatchSizes sampled = step > 0 ? ahead.get() : cuda->sample(queries[step]);
      EXPECT_LE(sampled.time.begin_us, sampled.time.end_us);
      asked.push_back(&batches.emplace_back(graph.view(), queries[step], sampled));
      asked.back()->start(*cuda);
      if (step + 1 < seeds.size()) {
        ahead = std::async(std::launch::async, [&, next = queries[step + 1]] {
          cuda->enter_thread();
          return cuda->sample(next);
        });
      }
      if (step > 0) finish(step - 1);
      if (HasFatalFailure()) return;
    }
    finish(seeds.size() - 1);
  }
}

}  // namespace
}  // namespace cohort::sampler
