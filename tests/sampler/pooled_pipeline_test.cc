// Batches that name rows of a pool, from the pipeline to a trainer that holds several of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <numeric>
#include <random>

#include "channel/subscriber.h"
#include "dataset/npy.h"
#include "sampler/pipeline.h"
#include "tests/cache/host_pool.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

// Samples on the host, and places rows in a pool there, late, as a GPU would.
class PooledBackend final : public Backend {
 public:
  // The table: that slots have no rows.
  PooledBackend(GraphView graph, int64_t most_places, bool reuse) : pool_(graph.num_nodes, most_places, reuse) {
    graph.rows_in = channel::RowsIn::kTable;
    host_ = make_host_backend(graph, {});
    pool_.grow(0);
  }
  BatchSizes sample(const Query& query) override {
    BatchSizes sizes = host_->sample(query);
    num_nodes_ = static_cast<std::size_t>(sizes.num_nodes);
    return sizes;
  }
  bool works_ahead() const override { return true; }
  void before_fetch(const std::function<void(base::GpuStream)>&) override {}
  void fill(std::byte* data, std::size_t bytes, int value) override { host_->fill(data, bytes, value); }
  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    host_->fetch(slot, input_id);
    const std::vector<int64_t> nodes(slot.n_id, slot.n_id + num_nodes_);
    const auto places =
        pool_.place(nodes, {static_cast<uint32_t>(slot.number), static_cast<uint32_t>(slot.oldest_in_use)});
    std::ranges::copy(places, slot.place);
    due_.push_back(std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
  }
  bool finished() override { return due_.front() <= std::chrono::steady_clock::now(); }
  FetchUse fetched() override {
    due_.pop_front();
    return host_->fetched();
  }
  int64_t pool_rows() const override { return pool_.num_places(); }
  const base::SharedGpuBytes* grow_pool(int64_t, int64_t preferred) override {
    EXPECT_TRUE(due_.empty()) << "a batch is under way";
    pool_.grow(preferred);
    ++num_grown;
    return nullptr;
  }
  const cache::HostPool& pool() const { return pool_; }

  int num_grown = 0;

 private:
  std::unique_ptr<Backend> host_;
  cache::HostPool pool_;
  std::size_t num_nodes_ = 0;  // of the batch that was sampled last
  std::deque<std::chrono::steady_clock::time_point> due_;
};

struct How {
  int num_slots;
  uint32_t batch_size;
  std::vector<int32_t> fanout;
  bool reuse, in_order;
};

// Takes batches and holds as many as it can; the rows that they name are there all the time.
void train(channel::Subscriber& subscriber, const PooledBackend& backend, const How& how) {
  constexpr int64_t kLimitUs = 10'000'000;
  std::mt19937 random(3);
  std::deque<channel::HeldBatch> held;
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    channel::Request asked{};
    asked.epoch = epoch;
    asked.step_stride = 1;
    asked.batch_size = how.batch_size;
    asked.num_hops = static_cast<int32_t>(how.fanout.size());
    std::ranges::copy(how.fanout, asked.fanout);
    const uint64_t pass = subscriber.request(asked);
    for (uint64_t step = 0; step < 400 / how.batch_size; ++step) {
      while (held.size() + 1 >= static_cast<std::size_t>(how.num_slots) || (!held.empty() && random() % 4 == 0)) {
        const auto which = held.begin() + (how.in_order ? 0 : static_cast<std::ptrdiff_t>(random() % held.size()));
        subscriber.release(which->slot, nullptr);
        held.erase(which);
      }
      held.push_back(subscriber.next(pass, kLimitUs));
      for (const channel::HeldBatch& each : held) {
        const auto* n_id = reinterpret_cast<const int64_t*>(each.data + each.batch->n_id_offset);
        const auto* place = reinterpret_cast<const int64_t*>(each.data + each.batch->place_offset);
        ASSERT_NE(n_id, place);
        for (int64_t i = 0; i < each.batch->num_nodes; ++i) {
          ASSERT_EQ(backend.pool().row(static_cast<uint32_t>(place[i])), n_id[i]) << "epoch " << epoch << ':' << step;
        }
      }
    }
  }
  for (const channel::HeldBatch& each : held) subscriber.release(each.slot, nullptr);
}

TEST(PooledPipeline, RowsOfBatchesThatTheTrainerHoldsStay) {
  const auto graph = mixed_graph<int32_t>(2000, 3);
  GraphView view = graph.view();
  view.rows_in = channel::RowsIn::kPool;
  std::vector<int64_t> seeds(400);
  std::iota(seeds.begin(), seeds.end(), 40);
  for (const How& how : {How{3, 20, {3, 2}, true, true}, How{4, 20, {3, 2}, false, true}, How{2, 10, {2}, true, true},
                         How{4, 100, {-1, 5}, true, false}}) {
    SCOPED_TRACE(testing::Message() << how.num_slots << ", " << how.batch_size << ", " << how.reuse);
    channel::ChannelOptions channel;
    channel.num_slots = how.num_slots;
    channel.feature_dim = graph.dim;
    channel.feature_dtype = 2 << 8 | 32;
    const dataset::TemporaryFolder folder;
    auto file = dataset::create_npy(folder / "seeds-0.npy", dataset::DType::int64, {std::ssize(seeds)});
    std::ranges::copy(seeds, file.as<int64_t>().begin());
    channel::Publisher publisher(folder.path(), channel);
    publisher.name_rows({channel::RowsIn::kPool, 8000, view.row_bytes});
    publisher.announce();
    Options options;
    options.num_slots = how.num_slots;
    options.reuse = how.reuse;
    PooledBackend backend(view, how.num_slots * 2000, how.reuse);
    auto served = std::async(std::launch::async, [&] { Pipeline(options, view, backend, publisher).serve(); });
    {
      channel::Subscriber subscriber(folder.path());
      train(subscriber, backend, how);
    }
    publisher.stop_flag().store(1);
    served.get();
    EXPECT_GT(backend.num_grown, 0);
    EXPECT_EQ(backend.pool().num_without_place, 0);
    EXPECT_EQ(backend.pool_rows() == 2000, !how.in_order)
        << "places are given away again, unless there is room for all";
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace cohort::sampler
