#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <numeric>

#include "base/check.h"
#include "base/owners.h"
#include "sampler/draw.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

// Fetches a sampled batch into GPU memory poisoned before, then copies it to the host. `meanwhile` is called when the
// fetch has begun.
HostBatch fetch_cuda(
    Backend& backend, const GraphView& graph, const Query& query, const Counts& sampled,
    const std::function<void()>& meanwhile = [] {}) {
  HostBatch batch;
  batch.resize(sampled, query.seeds.size(), graph);
  std::vector<int64_t> input_id(query.seeds.size());
  std::iota(input_id.begin(), input_id.end(), 0);
  const auto on_gpu = [](std::size_t bytes) {
    base::DeviceBytes memory(bytes + 256);
    base::fill_gpu(memory.data(), 0xFF, bytes + 256);
    return memory;
  };
  const auto n_id = on_gpu(8 * batch.n_id.size()), y = on_gpu(batch.y.size()),
             edges = on_gpu(8 * batch.edge_index.size()), ids = on_gpu(8 * input_id.size()), x = on_gpu(batch.x.size()),
             indptr = on_gpu(8 * batch.indptr.size()), e_id = on_gpu(8 * batch.e_id.size()),
             weights = on_gpu(4 * batch.edge_weight.size()), nodes = on_gpu(8 * batch.source_node.size());
  backend.fetch({reinterpret_cast<int64_t*>(n_id.data()), y.data(), reinterpret_cast<int64_t*>(edges.data()),
                 reinterpret_cast<int64_t*>(ids.data()), x.data(), 0, reinterpret_cast<int64_t*>(indptr.data()),
                 batch.num_targets(), query.edge_ids ? reinterpret_cast<int64_t*>(e_id.data()) : nullptr,
                 batch.edge_weight.empty() ? nullptr : reinterpret_cast<float*>(weights.data()), sampled.num_nodes,
                 batch.source_node.empty() ? nullptr : reinterpret_cast<int64_t*>(nodes.data())},
                input_id);
  meanwhile();
  while (!backend.finished()) {
  }
  const auto to_host = [](void* to, const base::DeviceBytes& from, std::size_t bytes) {
    if (bytes > 0) base::cuda_check(cudaMemcpy(to, from.data(), bytes, cudaMemcpyDeviceToHost));
  };
  to_host(batch.n_id.data(), n_id, 8 * batch.n_id.size());
  to_host(batch.y.data(), y, batch.y.size());
  to_host(batch.edge_index.data(), edges, 8 * batch.edge_index.size());
  to_host(batch.input_id.data(), ids, 8 * batch.input_id.size());
  to_host(batch.x.data(), x, batch.x.size());
  to_host(batch.indptr.data(), indptr, 8 * batch.indptr.size());
  to_host(batch.source_node.data(), nodes, 8 * batch.source_node.size());
  to_host(batch.edge_weight.data(), weights, 4 * batch.edge_weight.size());
  if (query.edge_ids) to_host(batch.e_id.data(), e_id, 8 * batch.e_id.size());
  return batch;
}

HostBatch run_cuda(Backend& backend, const GraphView& graph, const Query& query) {
  return fetch_cuda(backend, graph, query, backend.sample(query));
}

void expect_equal(const HostBatch& a, const HostBatch& b) {
  ASSERT_EQ(a.counts.nodes_per_hop, b.counts.nodes_per_hop);
  ASSERT_EQ(a.counts.edges_per_hop, b.counts.edges_per_hop);
  ASSERT_EQ(a.n_id, b.n_id);
  ASSERT_EQ(a.y, b.y);
  ASSERT_EQ(a.edge_index, b.edge_index);
  ASSERT_EQ(a.input_id, b.input_id);
  ASSERT_EQ(a.x, b.x);
  ASSERT_EQ(a.indptr, b.indptr);
  ASSERT_EQ(a.e_id, b.e_id);
  ASSERT_EQ(a.source_node, b.source_node);
  ASSERT_EQ(a.edge_weight, b.edge_weight);
}

template <typename Index>
void expect_same_batches(const TestGraph<Index>& graph, TopologyPlace place, const std::vector<int32_t>& fanout) {
  const auto host = make_host_backend(graph.view(), {});
  const int gpu = 0;
  CudaSettings settings;
  settings.topology_in_gpus = topology_lies_in_gpus(graph.view(), {&gpu, 1}, place, 0);
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, settings, {}, {}).front());
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<int64_t> seeds(50 + 30 * step);
    std::iota(seeds.begin(), seeds.end(), static_cast<int64_t>(100 * step));
    const Query query{seeds, fanout, batch_key(5, 1, step), !graph.edge_weights.empty() || step % 2 == 0};
    const HostBatch a = run_host(*host, graph.view(), query), b = run_cuda(*cuda, graph.view(), query);
    expect_equal(a, b);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class GpuBackend : public ::testing::TestWithParam<std::vector<int32_t>> {};

TEST_P(GpuBackend, SameBitsAsTheHost) {
  expect_same_batches(mixed_graph<int32_t>(2000, 3), TopologyPlace::kGpu, GetParam());
}

TEST_P(GpuBackend, SameBitsWithTopologyInHostMemory) {
  expect_same_batches(mixed_graph<int64_t>(2000, 4), TopologyPlace::kHost, GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GpuBackend,
                         ::testing::Values(std::vector<int32_t>{25, 10}, std::vector<int32_t>{15, 10, 5},
                                           std::vector<int32_t>{-1, -1}, std::vector<int32_t>{100, 40},
                                           std::vector<int32_t>{0, 3}, std::vector<int32_t>{32, 33}));

TEST(GpuBackendRows, AnyRowSize) {
  for (int64_t dim : {1, 3, 4, 32, 100, 257}) {
    expect_same_batches(mixed_graph<int32_t>(1000, 6, dim), TopologyPlace::kAuto, {5, 5});
  }
}

TEST(GpuBackendGlobal, SourcesOfTheLastHopAreNodesOfTheGraph) {
  const auto graph = mixed_graph<int32_t>(1500, 9);
  const auto host = make_host_backend(graph.view(), {});
  const int gpu = 0;
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, {}, {}, {}).front());
  std::vector<int64_t> seeds(80);
  std::iota(seeds.begin(), seeds.end(), int64_t{100});
  for (const auto& fanout : {std::vector<int32_t>{25, 10}, {15, 10, 5}, {7}, {-1, -1}, {5, 0}}) {
    for (const bool is_global : {true, false, true}) {
      const Query query{seeds, fanout, batch_key(5, 1, 0), false, is_global};
      expect_equal(run_host(*host, graph.view(), query), run_cuda(*cuda, graph.view(), query));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(GpuBackendWeights, OfEachEdge) {
  for (const TopologyPlace place : {TopologyPlace::kGpu, TopologyPlace::kHost}) {
    auto graph = mixed_graph<int32_t>(1500, 8);
    graph.weigh_edges();
    for (const auto& fanout : {std::vector<int32_t>{25, 10}, {-1, 3}, {100, 40}}) {
      expect_same_batches(graph, place, fanout);
    }
  }
}

// Labels of one byte, of odd and even widths, of words and of two words.
TEST(GpuBackendLabels, OfAnyWidth) {
  for (const int64_t label_bytes : {1, 4, 7, 12, 16, 121}) {
    auto graph = mixed_graph<int32_t>(500, 8);
    graph.wide_labels = labels_of_bytes(graph.num_nodes(), label_bytes);
    expect_same_batches(graph, TopologyPlace::kAuto, {5, 5});
  }
}

// As the pipeline does it: another thread samples the next batch while the rows of this one come. All on other SMs
// from time to time.
TEST(GpuBackendAhead, SamplesTheNextBatchOnAnyPartOfTheSms) {
  const auto graph = mixed_graph<int32_t>(3000, 7, 64);
  const auto host = make_host_backend(graph.view(), {});
  const int gpu = 0;
  Faults faults;
  faults.slow_fetch_us = 2000;
  CudaSettings settings;
  settings.reuse_rows = true;
  const auto cuda = std::move(make_cuda_backends(graph.view(), {&gpu, 1}, settings, {}, faults).front());
  ASSERT_TRUE(cuda->samples_ahead());
  const std::vector<int32_t> fanout = {7, 5};
  const auto query = [&](const std::vector<int64_t>& seeds, uint64_t step) {
    return Query{seeds, fanout, batch_key(5, 1, step), true};
  };
  for (const int sms : {0, 8, 24, 8, 0}) {
    cuda->use_sms(sms);
    std::vector<std::vector<int64_t>> seeds(6, std::vector<int64_t>(200));
    for (std::size_t step = 0; step < seeds.size(); ++step) {
      std::iota(seeds[step].begin(), seeds[step].end(), static_cast<int64_t>(300 * step));
    }
    std::future<Counts> ahead;
    for (std::size_t step = 0; step < seeds.size(); ++step) {
      const Query now = query(seeds[step], step);
      const Counts sampled = step > 0 ? ahead.get() : cuda->sample(now);
      EXPECT_LE(sampled.time.begin_us, sampled.time.end_us);
      const HostBatch b = fetch_cuda(*cuda, graph.view(), now, sampled, [&] {
        if (step + 1 == seeds.size()) return;
        ahead = std::async(std::launch::async, [&, next = query(seeds[step + 1], step + 1)] {
          cuda->enter_thread();
          return cuda->sample(next);
        });
      });
      expect_equal(run_host(*host, graph.view(), now), b);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace cohort::sampler
