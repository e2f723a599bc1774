#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "cache/clique_directory.h"
#include "cache/list_slab.h"
#include "sampler/draw.h"
#include "sampler/neighbor_sampler.h"
#include "tests/base/on_gpu.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::download;
using cache::Tier;

constexpr int64_t kKnownBelow = 1800;  // the directory does not know the peer's lists of nodes from here on

bool own_has(int64_t node) { return node % 4 == 0 || node % 8 == 1; }  // the latter are replicas
bool peer_has(int64_t node) { return node % 4 == 1; }

Tier tier_of(int64_t node) {
  if (own_has(node)) return Tier::kLocal;
  return peer_has(node) && node < kKnownBelow ? Tier::kPeer : Tier::kHost;
}

// A clique of two, of which the GPU is the second; memory of its own stands for the first one's. What the slabs have
// and the directory knows is wrong in `indices`: every neighbour is 0.
template <typename Index>
class CachedGraph {
 public:
  explicit CachedGraph(const TestGraph<Index>& graph) : indptr_(base::upload(graph.indptr)) {
    const std::vector<cache::RelationLists> lists = {
        {{graph.num_nodes(), std::ssize(graph.indices), graph.indptr.data(), graph.indices.data(), sizeof(Index)}}};
    cache::Slab own, peer;
    cache::CliqueRows rows;
    int64_t num_entries = 0;
    for (int64_t node = 0; node < graph.num_nodes(); ++node) {
      if (own_has(node)) add(graph, node, own);
      if (peer_has(node)) add(graph, node, peer);
      if (!own_has(node) && !peer_has(node)) continue;
      rows.nodes.push_back(static_cast<uint32_t>(node));
      rows.owners.push_back(peer_has(node) ? 0 : 1);
      num_entries += node < kKnownBelow;
    }
    own_ = cache::ListSlab(lists, own, 4096);
    peer_ = cache::ListSlab(lists, peer);
    const std::array<cache::FilledSlab, 2> slabs{cache::FilledSlab{peer.nodes, peer_.entries()},
                                                 cache::FilledSlab{own.nodes, own_.entries()}};
    directory_ = cache::Directory(
        cache::DirectoryArrays(cache::entries_seen_by(1, rows, num_entries, slabs, graph.num_nodes())));
    indices_ = base::upload(without_cached(graph));
  }
  TopologyRef topology() const {
    TopologyRef topology{indptr_.data(), indices_.data(), sizeof(Index), {directory_.ref(), {}, 1}};
    topology.cached.slabs[0] = peer_.data();
    topology.cached.slabs[1] = own_.data();
    return topology;
  }

 private:
  static int64_t degree(const TestGraph<Index>& graph, int64_t node) {
    const auto at = static_cast<std::size_t>(node);
    return graph.indptr[at + 1] - graph.indptr[at];
  }
  static void add(const TestGraph<Index>& graph, int64_t node, cache::Slab& slab) {
    slab.nodes.push_back(static_cast<uint32_t>(node));
    slab.bytes += cache::list_bytes(degree(graph, node), sizeof(Index));
  }
  static std::vector<Index> without_cached(const TestGraph<Index>& graph) {
    std::vector<Index> indices = graph.indices;
    for (int64_t node = 0; node < graph.num_nodes(); ++node) {
      const auto at = static_cast<std::size_t>(node);
      if (tier_of(node) == Tier::kHost) continue;
      std::fill(indices.begin() + graph.indptr[at], indices.begin() + graph.indptr[at + 1], Index{0});
    }
    return indices;
  }

  base::DeviceArray<int64_t> indptr_;
  base::DeviceArray<Index> indices_;
  cache::ListSlab own_, peer_;
  cache::Directory directory_;
};

// Of a graph that has any.
class UploadedWeights {
 public:
  template <typename Index>
  explicit UploadedWeights(const TestGraph<Index>& graph) {
    if (!graph.draw_weights) return;
    const DrawWeightsRef host = graph.draw_weights->ref();
    of_edges_ = base::upload(std::vector(host.of_edges, host.of_edges + graph.indices.size()));
    positive_ = base::upload(std::vector(host.positive, host.positive + graph.num_nodes()));
  }
  DrawWeightsRef ref() const { return {of_edges_.data(), positive_.data()}; }

 private:
  base::DeviceArray<uint32_t> of_edges_, positive_;
};

template <typename Index>
cache::ListUses expected_use(const HostBatch& batch, const Query& query, bool cached) {
  cache::ListUses use{};
  std::size_t next = 0;
  for (std::size_t hop = 0; hop < query.fanout.size(); ++hop) {
    for (const std::size_t end = next + static_cast<std::size_t>(batch.counts.nodes_per_hop[hop]); next < end; ++next) {
      const int64_t picks = batch.indptr[next + 1] - batch.indptr[next];
      if (picks == 0) continue;
      const Tier tier = cached ? tier_of(batch.n_id[next]) : Tier::kHost;
      cache::ListUse& of_tier = use[static_cast<std::size_t>(tier)];
      of_tier.lists += 1;
      of_tier.bytes += picks * static_cast<int64_t>(sizeof(Index)) + cache::list_head_bytes(tier);
    }
  }
  return use;
}

void expect_same_use(const cache::ListUses& found, const cache::ListUses& expected) {
  for (std::size_t tier = 0; tier < cache::kNumTiers; ++tier) {
    EXPECT_EQ(found[tier].lists, expected[tier].lists) << "tier " << tier;
    EXPECT_EQ(found[tier].bytes, expected[tier].bytes) << "tier " << tier;
  }
}

// A batch of the sampler against the host's, arrays and counts.
template <typename Index>
void expect_same_batch(CudaNeighborSampler& sampler, Backend& host, const TestGraph<Index>& graph, bool cached,
                       const Query& query) {
  const base::Stream stream;
  const HostBatch expected = run_host(host, graph.view(), query);
  const BatchSizes counts = sampler.sample(query, stream);
  ASSERT_EQ(counts.nodes_per_hop, expected.counts.nodes_per_hop);
  ASSERT_EQ(counts.edges_per_hop, expected.counts.edges_per_hop);
  const SampledRef batch = sampler.result();
  ASSERT_EQ(batch.num_nodes, expected.counts.num_nodes);
  ASSERT_EQ(batch.num_edges, expected.counts.num_edges);
  ASSERT_EQ(batch.num_local_edges, expected.counts.num_local_edges);
  ASSERT_EQ(download(batch.n_id, batch.num_nodes), expected.n_id);
  std::vector<int64_t> edge_index;
  for (const int32_t* row : {batch.source, batch.target}) {
    const std::vector<int32_t> local = download(row, batch.num_local_edges);
    edge_index.insert(edge_index.end(), local.begin(), local.end());
  }
  ASSERT_EQ(edge_index, expected.edge_index);
  if (query.last_hop_global && batch.num_local_edges < batch.num_edges) {
    ASSERT_EQ(download(batch.source_node, batch.num_edges), expected.source_node);
  }
  if (batch.num_edges > 0) {
    ASSERT_EQ(batch.e_id != nullptr, query.edge_ids);
  }
  if (query.edge_ids) {
    ASSERT_EQ(download(batch.e_id, batch.num_edges), expected.e_id);
  }
  expect_same_use(sampler.list_use(), expected_use<Index>(expected, query, cached));
}

// Four batches of one sampler.
template <typename Index>
void expect_same_batches(const TestGraph<Index>& graph, const TopologyRef& topology, bool cached,
                         const std::vector<int32_t>& fanout, bool excludes = false) {
  const auto host = make_host_backend(graph.view(), {});
  const UploadedWeights weights(graph);
  CudaNeighborSampler sampler({{0, 0, topology, weights.ref()}}, {0}, graph.num_nodes(), 3);
  for (uint64_t step = 0; step < 4; ++step) {
    std::vector<int64_t> seeds(50 + 300 * step);
    std::iota(seeds.begin(), seeds.end(), static_cast<int64_t>(300 * step));
    Query query{seeds, fanout, batch_key(5, 1, step), step % 2 == 0};
    SomeExclusions exclusions(graph, seeds);
    if (excludes && step < 3) exclusions.apply_to(query);
    expect_same_batch(sampler, *host, graph, cached, query);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

class GpuCachedLists : public ::testing::TestWithParam<std::vector<int32_t>> {
 protected:
  template <typename Index>
  void sample_from_every_tier(bool excludes = false, bool by_weight = false) {
    TestGraph<Index> graph = mixed_graph<Index>(2000, 3 + sizeof(Index));
    if (by_weight) {
      graph = weighed(std::move(graph));
      graph.draw_by_weight();
    }
    const CachedGraph<Index> cached(graph);
    expect_same_batches(graph, cached.topology(), true, GetParam(), excludes);
  }
};

TEST_P(GpuCachedLists, SameBitsAsTheHostInt32) { sample_from_every_tier<int32_t>(); }

TEST_P(GpuCachedLists, SameBitsAsTheHostInt64) { sample_from_every_tier<int64_t>(); }

TEST_P(GpuCachedLists, PassesOverWhatIsExcluded) { sample_from_every_tier<int32_t>(true); }

TEST_P(GpuCachedLists, DrawsByWeight) {
  sample_from_every_tier<int32_t>(false, true);
  sample_from_every_tier<int64_t>(true, true);
}

TEST_P(GpuCachedLists, WithoutSlabsEveryListIsTheHosts) {
  const TestGraph<int32_t> graph = mixed_graph<int32_t>(2000, 9);
  const auto indptr = base::upload(graph.indptr);
  const auto indices = base::upload(graph.indices);
  expect_same_batches(graph, {indptr.data(), indices.data(), 4, {}}, false, GetParam());
}

// The host waits for no size where there is memory for a batch; where there is not, the batch is drawn again.
void expect_bounded(const TestGraph<int32_t>& graph, const std::vector<int32_t>& fanout, bool excludes,
                    bool is_global) {
  const auto indptr = base::upload(graph.indptr);
  const auto indices = base::upload(graph.indices);
  const UploadedWeights weights(graph);
  const auto host = make_host_backend(graph.view(), {});
  CudaNeighborSampler sampler({{0, 0, {indptr.data(), indices.data(), 4, {}}, weights.ref()}}, {0}, graph.num_nodes(),
                              3);
  int64_t bounded = 0;
  const auto draw = [&](std::size_t count) {
    std::vector<int64_t> seeds(count);
    std::iota(seeds.begin(), seeds.end(), int64_t{0});
    Query query{seeds, fanout, batch_key(5, 1, 7), !is_global, is_global};
    SomeExclusions exclusions(graph, seeds);
    if (excludes) exclusions.apply_to(query);
    expect_same_batch(sampler, *host, graph, false, query);
  };
  for (const std::size_t count : {60, 1000}) {
    draw(count);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(sampler.num_bounded(), bounded) << "the first batch of this size";
    // Nothing is tried without memory, or with less than the excluded edges alone need in a draw by weight.
    const bool is_tried = count == 1000 && !(graph.draw_weights && excludes);
    EXPECT_EQ(sampler.num_repeated(), is_tried ? 1 : 0);
    for (const std::size_t part : {1, 1, 3, 7}) {
      draw(count / part);
      if (::testing::Test::HasFatalFailure()) return;
      EXPECT_EQ(sampler.num_bounded(), ++bounded) << count << " seeds / " << part;
    }
  }
}

TEST(GpuBoundedHops, HaveTheBitsOfTheHost) {
  const TestGraph<int32_t> graph = mixed_graph<int32_t>(20'000, 9);
  TestGraph<int32_t> by_weight = weighed(graph);
  by_weight.draw_by_weight();
  for (const auto& fanout : {std::vector<int32_t>{25, 10}, {15, 10, 5}, {-1, -1}, {100, 40}, {32, 33}, {7}, {-1, 3}}) {
    for (const bool excludes : {false, true}) {
      expect_bounded(graph, fanout, excludes, false);
      expect_bounded(graph, fanout, excludes, true);
      expect_bounded(by_weight, fanout, excludes, false);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuCachedLists,
                         ::testing::Values(std::vector<int32_t>{25, 10}, std::vector<int32_t>{15, 10, 5},
                                           std::vector<int32_t>{-1, -1}, std::vector<int32_t>{100, 40},
                                           std::vector<int32_t>{0, 3}, std::vector<int32_t>{32, 33},
                                           std::vector<int32_t>{1, 2}));

// TopologyRef::list() means the same on the host.
TEST(CachedLists, AreFoundBeforeIndices) {
  const std::vector<int64_t> indptr{0, 2, 3};
  const std::vector<int32_t> indices{7, 8, 9};
  const std::vector<int32_t> slab{1, 0, 5, 0};  // int64 degree 1, neighbour 5, padding
  const cache::DirectoryArrays directory(std::vector<uint64_t>{cache::kNoEntry, 0});
  TopologyRef topology{indptr.data(), indices.data(), 4, {directory.ref(), {}, 0}};
  topology.cached.slabs[0] = reinterpret_cast<const std::byte*>(slab.data());
  const cache::ListRef host = topology.list(0), cached = topology.list(1);
  EXPECT_EQ(host.tier, Tier::kHost);
  EXPECT_EQ(host.degree, 2);
  EXPECT_EQ(static_cast<const void*>(host.neighbours), indices.data());
  EXPECT_EQ(cached.tier, Tier::kLocal);
  EXPECT_EQ(cached.degree, 1);
  EXPECT_EQ(static_cast<const void*>(cached.neighbours), slab.data() + 2);
}

}  // namespace
}  // namespace cohort::sampler
