// Batches of typed graphs: the same bits on the GPU as on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <numeric>

#include "base/shared_gpu_bytes.h"
#include "cache/host_rows.h"
#include "sampler/cache_plan.h"
#include "sampler/draw.h"
#include "tests/sampler/cuda_batch.h"
#include "tests/sampler/typed_graph.h"

namespace cohort::sampler {
namespace {

std::vector<std::unique_ptr<Backend>> on_gpu(const GraphView& graph, bool topology_in_gpu) {
  CudaSettings settings;
  settings.topology_in_gpus = topology_in_gpu;
  const std::vector<int> gpus = {0};
  return make_cuda_backends(graph, gpus, settings, {}, {});
}

// Different nodes, all of the labelled type or of any.
std::vector<int64_t> some_seeds(const GraphView& graph, uint64_t step) {
  const NodeRange& labelled = graph.types[static_cast<std::size_t>(graph.label_type)];
  std::vector<int64_t> seeds(static_cast<std::size_t>(step % 2 == 0 ? labelled.count : graph.num_nodes));
  std::iota(seeds.begin(), seeds.end(), step % 2 == 0 ? labelled.first : int64_t{0});
  const base::PhiloxKey key = base::key_of(step);
  for (std::size_t i = seeds.size(); i > 1; --i) std::swap(seeds[i - 1], seeds[base::random_below(i, key, i, 0)]);
  seeds.resize(std::min<std::size_t>(seeds.size(), 1 + 40 * step));
  return seeds;
}

// With encoded rows of every other type, which are also those in host memory and in slabs as far as that is asked for.
GraphView with_encoded_rows(const TypedGraph& types, bool in_host, bool in_slabs) {
  GraphView graph = types.view();
  for (std::size_t t = 0; t < graph.types.size(); t += 2) {
    NodeRange& type = graph.types[t];
    if (type.rows.row_bytes == 0) continue;
    const ibp::RowTable table{type.rows.raw, type.count, ibp::Dtype::kFloat32,
                              static_cast<uint32_t>(type.rows.shape.num_columns)};
    const ibp::Profile profile = ibp::fit(table, {.codec = "exponent"}).profile;
    type.rows.encoded = std::make_shared<cache::HostRows>(ibp::encode(table, profile));
  }
  graph.coded_host_rows = in_host;
  graph.coded_slab_rows = in_slabs;
  return graph;
}

// Rows by chance, and lists of all relations with them unless the topology is in the GPU, in a cache of so many bytes.
std::vector<std::unique_ptr<Backend>> cached_on_gpu(const GraphView& graph, int64_t cache_bytes, bool topology_in_gpu) {
  Options options;
  options.cache_policy = "random";
  options.cache_bytes = {cache_bytes};
  const std::vector<cache::SlabRows> rows = slab_rows(graph);
  std::promise<cache::Plan> plan;
  plan.set_value(*plan_cache(options, graph, {{0}}, row_sizes(graph, rows), !topology_in_gpu));
  CudaSettings settings;
  settings.topology_in_gpus = topology_in_gpu;
  const std::vector<int> gpus = {0};
  return make_cuda_backends(graph, gpus, settings, {plan.get_future().share(), rows}, {});
}

// From the lists of about half of the relations: of each seed all positions, some, or none.
struct TypedExclusions {
  std::vector<std::vector<int64_t>> arrays;  // keep their addresses
  std::vector<Exclusions> of_relations;

  TypedExclusions(const TypedGraph& types, const GraphView& graph, const std::vector<int64_t>& seeds, uint64_t seed) {
    const base::PhiloxKey key = base::key_of(seed + 77);
    arrays.reserve(2 * graph.relations.size());
    for (std::size_t relation = 0; relation < graph.relations.size(); ++relation) {
      if (base::random_below(2, key, relation, 0) == 0) continue;
      const NodeRange& targets = graph.types[static_cast<std::size_t>(graph.relations[relation].target_type)];
      std::vector<int64_t>&starts = arrays.emplace_back(1, 0), &positions = arrays.emplace_back();
      for (const int64_t node : seeds) {
        if (node < targets.first || node >= targets.first + targets.count) continue;
        const auto list = static_cast<std::size_t>(node - targets.first);
        const std::vector<int64_t>& indptr = types.relations[relation].indptr;
        const uint64_t kind = base::random_below(3, key, relation, 1 + list);
        for (int64_t position = 0; position < indptr[list + 1] - indptr[list]; ++position) {
          if (kind == 0 || (kind == 1 && position % 3 != 1)) positions.push_back(position);
        }
        starts.push_back(std::ssize(positions));
      }
      of_relations.push_back({static_cast<int>(relation), starts, positions});
    }
  }
};

void expect_same_bits(const TypedGraph& types, uint64_t seed) {
  GraphView graph = types.view();
  graph.with_shares = true;
  const auto host = make_host_backend(graph, {});
  const auto gpu = on_gpu(graph, seed % 2 == 0);
  const base::PhiloxKey key = base::key_of(seed + 1000);
  for (uint64_t step = 0; step < 6; ++step) {
    const std::vector<int64_t> seeds = some_seeds(graph, step);
    std::vector<int32_t> fanout(graph.relations.size() * (1 + step % 3));
    constexpr int32_t kFanouts[] = {0, 1, 3, 10, 40, -1};
    for (std::size_t i = 0; i < fanout.size(); ++i) fanout[i] = kFanouts[base::random_below(6, key, step, i)];
    Query query{seeds, fanout, batch_key(seed, 0, step), step != 4};
    const TypedExclusions exclusions(types, graph, seeds, seed + step);
    if (step % 3 != 0) query.spec.exclusions = exclusions.of_relations;
    if (step % 2 == 1 && !graph.has_draw_weights()) query.spec.draw = Draw::kReplaced;
    if (step % 2 == 0 && !graph.has_draw_weights()) {
      query.spec.numbers = node_numbers(seed, 0, step, step, step == 4, step > 0 && seed % 2 == 1);
    }
    expect_equal(run_host(*host, graph, query), run_cuda(*gpu[0], graph, query));
    if (::testing::Test::HasFatalFailure()) FAIL() << "graph " << seed << ", step " << step;
  }
}

class GpuTypes : public ::testing::TestWithParam<int> {};

TEST_P(GpuTypes, SameBitsAsTheHost) {
  const auto seed = static_cast<uint64_t>(GetParam());
  expect_same_bits(random_types(seed), seed);
}

TEST_P(GpuTypes, SameBitsByWeight) {
  const auto seed = static_cast<uint64_t>(GetParam());
  TypedGraph types = random_types(seed);
  types.weigh_edges();
  expect_same_bits(types, seed);
}

// Seeds of all types, which repeat; edges of any time, up to the times of seeds, and the latest.
TEST_P(GpuTypes, SameBitsInTrees) {
  const auto seed = static_cast<uint64_t>(GetParam());
  TypedGraph types = random_types(seed);
  types.time_edges();
  const GraphView graph = types.view();
  const auto host = make_host_backend(graph, {});
  const auto gpu = on_gpu(graph, seed % 2 == 0);
  for (uint64_t step = 0; step < 6; ++step) {
    std::vector<int64_t> seeds = some_seeds(graph, step), times;
    seeds.insert(seeds.end(), seeds.begin(), seeds.begin() + std::ssize(seeds) / 2);
    for (uint64_t i = 0; i < seeds.size(); ++i) {
      times.push_back(static_cast<int64_t>(base::random_below(20, base::key_of(seed), step, i)) - 2);
    }
    constexpr int32_t kFanouts[] = {0, 2, 5, 40};
    std::vector<int32_t> fanout(graph.relations.size() * (1 + step % 2));
    for (std::size_t i = 0; i < fanout.size(); ++i) {
      fanout[i] = kFanouts[base::random_below(4, base::key_of(seed + 9), step, i)];
    }
    const bool timed = graph.has_edge_times() && step % 3 > 0;
    std::vector<int64_t> windows(graph.relations.size());
    for (std::size_t i = 0; i < windows.size(); ++i) windows[i] = static_cast<int64_t>((i + step) % 9) - 1;
    const DrawSpec spec{.draw = step % 3 == 2   ? Draw::kLast
                                : step % 2 == 1 ? Draw::kReplaced
                                                : Draw::kUniform,
                        .disjoint = true,
                        .times = timed ? times : std::span<const int64_t>(),
                        .windows = step > 2 ? windows : std::span<const int64_t>()};
    const Query query{seeds, fanout, batch_key(seed, 0, step), step != 4, false, spec};
    expect_equal(run_host(*host, graph, query), run_cuda(*gpu[0], graph, query));
    if (HasFatalFailure()) FAIL() << "graph " << seed << ", step " << step;
  }
}

// No cache, one for a part of all rows and lists, and one for all; rows raw or encoded, in host memory and in slabs.
TEST_P(GpuTypes, SameBitsWhateverIsCached) {
  const auto seed = static_cast<uint64_t>(GetParam());
  TypedGraph types = random_types(seed);
  if (seed % 5 < 2) types.weigh_edges();
  const GraphView raw = types.view(), graph = with_encoded_rows(types, seed % 3 == 1, seed % 2 == 1);
  int64_t all_bytes = graph.num_edges * 8 + 40 * graph.num_nodes * static_cast<int64_t>(graph.relations.size());
  for (const NodeRange& type : graph.types) all_bytes += cache::bytes_of_all_raw_rows(type.count, type.rows.row_bytes);
  const bool has_rows = std::ranges::any_of(graph.types, [](const NodeRange& type) { return type.rows.row_bytes > 0; });
  if (!has_rows) GTEST_SKIP() << "no type of graph " << seed << " has features";
  const auto host = make_host_backend(raw, {});
  for (const int64_t percent : {0, 20, 200}) {
    const auto gpu = cached_on_gpu(graph, all_bytes * percent / 100, seed % 4 == 0);
    for (uint64_t step = 1; step < 4; ++step) {
      const std::vector<int64_t> seeds = some_seeds(graph, step);
      const std::vector<int32_t> fanout(graph.relations.size() * 2, step == 3 ? -1 : 5);
      const Query query{seeds, fanout, batch_key(seed, 0, step), true};
      cache::TierUses rows;
      const HostBatch batch = run_cuda(*gpu[0], graph, query, &rows);
      expect_equal(run_host(*host, raw, query), batch);
      if (HasFatalFailure()) FAIL() << "graph " << seed << ", " << percent << " %, step " << step;
      if (percent == 0) {
        EXPECT_EQ(rows[cache::kLocalTier].rows, 0);
      } else if (percent == 200 && !graph.coded_slab_rows) {  // else some may be longer than planned
        EXPECT_EQ(rows[cache::kHostTier].rows, 0);
        EXPECT_EQ(batch.counts.lists[cache::kHostTier].lists, 0);
      }
    }
  }
}

// What a trainer has of a batch whose rows are in pools.
struct PooledTypes {
  HostBatch batch;
  std::vector<int64_t> row_index;  // int64 [num_nodes]

  // Gathers the rows that the batch names.
  void gather(const GraphView& graph, const std::vector<const std::byte*>& pools) {
    int64_t first = 0;
    for (std::size_t type = 0; type < graph.types.size(); ++type) {
      const int64_t row_bytes = graph.types[type].rows.row_bytes;
      const auto& nodes = batch.counts.nodes_of_type[type];
      const int64_t count = std::accumulate(nodes.begin(), nodes.end(), int64_t{0});
      for (int64_t i = 0; row_bytes > 0 && i < count; ++i) {
        const int64_t row = row_index[static_cast<std::size_t>(first + i)];
        base::cuda_check(cudaMemcpy(batch.x[type].data() + i * row_bytes, pools[type] + row * row_bytes,
                                    static_cast<std::size_t>(row_bytes), cudaMemcpyDeviceToHost));
      }
      first += count;
    }
  }
};

// Batches of which two are in use, through pools that have room for no more; rows are poisoned before they come.
class TypedPools {
 public:
  TypedPools(const GraphView& graph, bool reuse) : graph_(graph), reuse_(reuse), pools_(graph.types.size(), nullptr) {
    CudaSettings settings;
    settings.reuse_rows = reuse;
    const std::vector<int> gpus = {0};
    backend_ = std::move(make_cuda_backends(graph, gpus, settings, {}, {}).front());
  }

  PooledTypes run(const Query& query) {
    CudaBatch batch(graph_, query, backend_->sample(query));
    make_room(batch.counts());
    const base::DeviceArray<int64_t> row_index(static_cast<std::size_t>(batch.counts().num_nodes));
    batch.start(*backend_, {row_index.data(), number_, number_ == 0 ? 0 : number_ - 1});
    ++number_;
    PooledTypes pooled{batch.finish(*backend_), base::download(row_index)};
    found += batch.rows[cache::kRecentTier].rows;
    pooled.gather(graph_, pools_);
    return pooled;
  }
  const std::vector<const std::byte*>& pools() const { return pools_; }

  int64_t found = 0;  // rows, again

 private:
  void make_room(const BatchSizes& counts) {
    before_.resize(graph_.types.size(), 0);
    for (std::size_t type = 0; type < graph_.types.size(); ++type) {
      const auto& nodes = counts.nodes_of_type[type];
      const int64_t rows = std::accumulate(nodes.begin(), nodes.end(), int64_t{0}), count = graph_.types[type].count;
      const int64_t both = rows + std::exchange(before_[type], rows);
      const int64_t needed = reuse_ ? std::min(both, count) : both;
      if (graph_.types[type].rows.row_bytes == 0 || needed <= backend_->pool_rows(type)) continue;
      const base::SharedGpuBytes* piece = backend_->grow_pool(type, needed, needed);
      if (!pools_[type]) pools_[type] = piece->data();
      ASSERT_GE(backend_->pool_rows(type), needed);
    }
  }

  GraphView graph_;
  bool reuse_;
  std::unique_ptr<Backend> backend_;
  std::vector<const std::byte*> pools_;  // [num_types]
  std::vector<int64_t> before_;          // [num_types], rows of the last batch
  uint64_t number_ = 0;
};

TEST_P(GpuTypes, SameBitsThroughPools) {
  const auto seed = static_cast<uint64_t>(GetParam());
  const TypedGraph types = random_types(seed);
  const GraphView raw = types.view();
  GraphView graph = with_encoded_rows(types, seed % 3 == 1, false);
  graph.rows_in = channel::RowsIn::kPool;
  const auto host = make_host_backend(raw, {});
  for (const bool reuse : {false, true}) {
    TypedPools pools(graph, reuse);
    std::vector<PooledTypes> batches;
    for (uint64_t step = 0; step < 8; ++step) {
      const std::vector<int64_t> seeds = some_seeds(graph, step);
      const std::vector<int32_t> fanout(graph.relations.size() * 2, step == 3 ? -1 : 5);
      const Query query{seeds, fanout, batch_key(seed, 0, step), true};
      batches.push_back(pools.run(query));
      expect_equal(run_host(*host, raw, query), batches.back().batch);
      if (HasFatalFailure()) FAIL() << "graph " << seed << ", reuse " << reuse << ", step " << step;
      if (step == 0) continue;
      PooledTypes again = {batches[step - 1].batch, batches[step - 1].row_index};  // which is still in use
      again.gather(graph, pools.pools());
      EXPECT_EQ(again.batch.x, batches[step - 1].batch.x) << "the batch before step " << step;
    }
    if (!reuse) {
      EXPECT_EQ(pools.found, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Random, GpuTypes, ::testing::Range(0, 24));

}  // namespace
}  // namespace cohort::sampler
