// Batches that name rows of pools, from the pipeline to a trainer that holds several of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <limits>
#include <numeric>
#include <random>

#include "channel/subscriber.h"
#include "dataset/npy.h"
#include "sampler/pipeline.h"
#include "tests/cache/host_pool.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/sampler/test_graph.h"
#include "tests/sampler/typed_graph.h"

namespace cohort::sampler {
namespace {

constexpr int64_t kPlaneA = int64_t{1} << 40;  // what a row of plane A is more than the exact one

// Samples on the host, and places the rows of each type in a pool there, late, as a GPU would.
class PooledBackend final : public Backend {
 public:
  PooledBackend(GraphView graph, int num_slots, bool reuse, double most_pool_bytes)
      : most_pool_bytes_(most_pool_bytes) {
    for (const NodeRange& type : graph.types) {
      pools_.emplace_back(type.count, reuse ? type.count : num_slots * type.count, reuse).grow(0);
      has_rows_.push_back(type.rows.row_bytes > 0);
    }
    for (NodeRange& type : graph.types) type.rows.row_bytes = 0;  // that slots have
    graph.rows_in = channel::RowsIn::kSlots;
    host_ = make_host_backend(graph, {});
  }
  BatchSizes sample(const Query& query) override {
    BatchSizes sizes = host_->sample(query);
    num_nodes_.clear();
    for (const std::vector<int64_t>& nodes : sizes.nodes_of_type) {
      num_nodes_.push_back(std::accumulate(nodes.begin(), nodes.end(), int64_t{0}));
    }
    return sizes;
  }
  std::size_t most_fetches() const override { return 2; }
  void before_fetch(const std::function<void(base::GpuStream)>&) override {}
  void fill(std::byte* data, std::size_t bytes, int value) override { host_->fill(data, bytes, value); }
  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    host_->fetch(slot, input_id);
    const cache::PoolBatch batch{static_cast<uint32_t>(slot.number), static_cast<uint32_t>(slot.oldest_in_use)};
    if (std::exchange(plane_a_, slot.plane_a) != slot.plane_a) {
      for (cache::HostPool& pool : pools_) pool.forget();
    }
    int64_t first = 0;
    for (std::size_t type = 0; type < pools_.size(); ++type) {
      const std::vector<int64_t> nodes(slot.n_id + first, slot.n_id + first + num_nodes_[type]);
      if (has_rows_[type]) {
        std::ranges::copy(pools_[type].assign(nodes, batch, plane_a_ ? kPlaneA : 0), slot.row_index + first);
      }
      first += num_nodes_[type];
    }
    due_.push_back(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
  }
  bool finished() override { return due_.front() <= std::chrono::steady_clock::now(); }
  FetchUse fetched() override {
    due_.pop_front();
    return host_->fetched();
  }
  int64_t pool_rows(std::size_t type) const override { return pools_[type].num_rows(); }
  double most_pool_bytes() override { return most_pool_bytes_; }
  const base::SharedGpuBytes* grow_pool(std::size_t type, int64_t, int64_t preferred) override {
    EXPECT_TRUE(due_.empty()) << "a batch is under way";
    EXPECT_TRUE(has_rows_[type]);
    pools_[type].grow(preferred);
    ++num_grown;
    return nullptr;
  }
  const cache::HostPool& pool(std::size_t type) const { return pools_[type]; }
  const std::vector<bool>& has_rows() const { return has_rows_; }

  int num_grown = 0;

 private:
  double most_pool_bytes_;
  std::unique_ptr<Backend> host_;
  std::vector<cache::HostPool> pools_;  // [num_types]
  std::vector<bool> has_rows_;
  bool plane_a_ = false;            // of the last fetch
  std::vector<int64_t> num_nodes_;  // of each type, of the batch that was sampled last
  std::deque<std::chrono::steady_clock::time_point> due_;
};

struct How {
  int num_slots;
  uint32_t batch_size;
  std::vector<int32_t> fanout;  // of each relation
  bool reuse, in_order;
  bool disjoint = false;
  bool changes_kind = false;  // every other epoch has plane A
  int most_held = 1 << 10;    // batches that the trainer holds; one less than there are slots in any case
  double most_pool_bytes = std::numeric_limits<double>::infinity();
};

constexpr int64_t kSeeds = 400;

struct Held : channel::HeldBatch {
  int64_t more;  // of its rows
};

void expect_rows(const PooledBackend& backend, const Held& held) {
  const auto* n_id = reinterpret_cast<const int64_t*>(held.data + held.batch->n_id_offset);
  const auto* row_index = reinterpret_cast<const int64_t*>(held.data + held.batch->row_index_offset);
  ASSERT_NE(n_id, row_index);
  int64_t first = 0;
  for (std::size_t type = 0; type < backend.has_rows().size(); ++type) {
    const int64_t count = channel::nodes_of(*held.batch, type);
    for (int64_t i = first; backend.has_rows()[type] && i < first + count; ++i) {
      ASSERT_EQ(backend.pool(type).row(static_cast<uint32_t>(row_index[i])), n_id[i] + held.more) << "type " << type;
    }
    first += count;
  }
}

// Takes batches and holds as many as it can; the rows that they name are there all the time.
void train(channel::Subscriber& subscriber, const PooledBackend& backend, const How& how, std::size_t num_relations) {
  constexpr int64_t kLimitUs = 10'000'000;
  std::mt19937 random(3);
  std::deque<Held> held;
  const auto release = [&](std::deque<Held>::iterator which) {
    subscriber.release(which->slot, nullptr);
    held.erase(which);
  };
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    channel::Request asked{};
    asked.epoch = epoch;
    asked.step_stride = 1;
    asked.batch_size = how.batch_size;
    asked.num_hops = static_cast<int32_t>(how.fanout.size());
    asked.disjoint = how.disjoint;
    asked.plane_a = how.changes_kind && epoch % 2 == 0;
    for (std::size_t relation = 0; relation < num_relations; ++relation) {
      std::ranges::copy(how.fanout, asked.fanout + relation * how.fanout.size());
    }
    while (how.changes_kind && !held.empty()) release(held.begin());  // as between epochs
    const uint64_t pass = subscriber.request(asked);
    for (uint64_t step = 0; step < kSeeds / how.batch_size; ++step) {
      const int most_held = std::min(how.most_held, how.num_slots - 1);
      while (held.size() >= static_cast<std::size_t>(most_held) || (!held.empty() && random() % 4 == 0)) {
        release(held.begin() + (how.in_order ? 0 : static_cast<std::ptrdiff_t>(random() % held.size())));
      }
      held.push_back({subscriber.next(pass, kLimitUs), asked.plane_a != 0 ? kPlaneA : 0});
      for (const Held& each : held) {
        SCOPED_TRACE(testing::Message() << "epoch " << epoch << ':' << step);
        expect_rows(backend, each);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
  while (!held.empty()) release(held.begin());
}

// Serves a graph's batches of the seeds from `first_seed` on; returns whether the pools have room for all rows.
bool has_room_for_all(GraphView graph, channel::ChannelOptions channel, int64_t first_seed, const How& how) {
  graph.rows_in = channel::RowsIn::kPool;
  channel.num_slots = how.num_slots;
  std::vector<int64_t> seeds(static_cast<std::size_t>(kSeeds));
  std::iota(seeds.begin(), seeds.end(), first_seed);
  const dataset::TemporaryFolder folder;
  auto file = dataset::create_npy(folder / "seeds-0.npy", dataset::DType::int64, {kSeeds});
  std::ranges::copy(seeds, file.as<int64_t>().begin());
  channel::Publisher publisher(folder.path(), channel);
  std::vector<channel::RowsOfType> rows;
  for (const NodeRange& type : graph.types) rows.push_back({how.num_slots * type.count, type.rows.row_bytes});
  publisher.name_rows(channel::RowsIn::kPool, rows);
  publisher.announce();
  Options options;
  options.num_slots = how.num_slots;
  options.reuse = how.reuse;
  PooledBackend backend(graph, how.num_slots, how.reuse, how.most_pool_bytes);
  auto served = std::async(std::launch::async, [&] { Pipeline(options, graph, backend, publisher).serve(); });
  {
    channel::Subscriber subscriber(folder.path());
    train(subscriber, backend, how, graph.relations.size());
  }
  publisher.stop_flag().store(1);
  served.get();
  EXPECT_GT(backend.num_grown, 0);
  bool has_all = true;
  for (std::size_t type = 0; type < backend.has_rows().size(); ++type) {
    EXPECT_EQ(backend.pool(type).num_without_row, 0);
    if (backend.has_rows()[type]) has_all = has_all && backend.pool_rows(type) >= graph.types[type].count;
  }
  return has_all;
}

constexpr bool kTrees = true;

TEST(PooledPipeline, RowsOfBatchesThatTheTrainerHoldsStay) {
  const auto graph = mixed_graph<int32_t>(2000, 3);
  channel::ChannelOptions channel;
  channel.tables = {{graph.dim, 2 << 8 | 32, 0}};
  for (const How& how :
       {How{3, 20, {3, 2}, true, true}, How{4, 20, {3, 2}, false, true}, How{2, 10, {2}, true, true},
        How{4, 100, {-1, 5}, true, false}, How{3, 20, {3, 2}, true, true, kTrees},
        How{4, 20, {3, 2}, false, true, kTrees}, How{4, 100, {10, 5}, true, false, kTrees},
        How{3, 20, {3, 2}, true, true, !kTrees, true}, How{4, 100, {-1, 5}, true, true, !kTrees, true}}) {
    SCOPED_TRACE(testing::Message() << how.num_slots << ", " << how.batch_size << ", " << how.reuse << ", trees "
                                    << how.disjoint << ", kinds " << how.changes_kind);
    const bool has_all = has_room_for_all(graph.view(), channel, 40, how);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(has_all, how.batch_size == 100) << "rows are assigned again, unless there is room for all";
  }
}

// Rows for two batches, which are as large as pools may be here, make the sampler wait for the trainer.
TEST(PooledPipeline, PoolsWithLittleMemoryHaveRoomForTwoBatches) {
  const auto graph = mixed_graph<int32_t>(2000, 3);
  channel::ChannelOptions channel;
  channel.tables = {{graph.dim, 2 << 8 | 32, 0}};
  // Three held batches have no room, so that pools grow after all.
  for (const auto& [most_held, reuse] : {std::pair{1, true}, {1, false}, {3, true}}) {
    SCOPED_TRACE(testing::Message() << "held " << most_held << ", reuse " << reuse);
    How how{4, 50, {5, 3}, reuse, true};
    how.most_held = most_held;
    how.most_pool_bytes = 1;
    const bool has_all = has_room_for_all(graph.view(), channel, 40, how);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(has_all, most_held == 3);
  }
}

TEST(PooledPipeline, EachNodeTypeHasAPool) {
  TypedGraph graph;
  for (const auto& [count, dim] : {std::pair{1500, 3}, {600, 0}, {1200, 7}}) graph.add_type(count, dim);
  graph.label(0);
  std::mt19937 random(2);
  for (const auto& [source, target] : {std::pair{0, 0}, {0, 1}, {1, 0}, {2, 0}, {2, 1}}) {
    TypedGraph::Lists& lists = graph.add_relation(source, target);
    for (int64_t node = 0; node < graph.types[static_cast<std::size_t>(target)].count; ++node) {
      for (uint64_t j = random() % 8; j > 0; --j) {
        const auto sources = static_cast<uint64_t>(graph.types[static_cast<std::size_t>(source)].count);
        lists.indices.push_back(static_cast<int32_t>(random() % sources));
      }
      lists.indptr.push_back(std::ssize(lists.indices));
    }
  }
  const GraphView view = graph.view();
  channel::ChannelOptions channel{.tables = {}, .target_types = {}};
  for (const TypedGraph::Type& type : graph.types) channel.tables.push_back({type.dim, 2 << 8 | 32, 0});
  for (const Relation& relation : view.relations) channel.target_types.push_back(relation.target_type);
  for (const How& how : {How{3, 20, {3, 2}, true, true}, How{4, 20, {3, 2}, false, true}, How{2, 10, {2}, true, true},
                         How{3, 20, {3, 2}, true, true, kTrees}, How{4, 100, {-1, -1}, true, false}}) {
    SCOPED_TRACE(testing::Message() << how.num_slots << ", " << how.batch_size << ", " << how.reuse);
    const bool has_all = has_room_for_all(view, channel, 40, how);
    if (testing::Test::HasFatalFailure()) return;
    EXPECT_EQ(has_all, !how.in_order) << "rows are assigned again, unless there is room for all";
  }
}

}  // namespace
}  // namespace cohort::sampler
