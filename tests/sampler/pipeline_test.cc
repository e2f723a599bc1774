#include "sampler/pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "channel/subscriber.h"
#include "dataset/npy.h"
#include "sampler/draw.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

channel::Request request(uint32_t batch_size, std::initializer_list<int32_t> fanout) {
  channel::Request request{};
  request.batch_size = batch_size;
  request.num_hops = static_cast<int32_t>(fanout.size());
  std::copy(fanout.begin(), fanout.end(), request.fanout);
  return request;
}

// Writes batches as the host does, and says so later, as a GPU would.
class LateBackend final : public Backend {
 public:
  // `overlap`: the first fetch takes until a second one has begun, or seconds have passed.
  LateBackend(const GraphView& graph, std::chrono::milliseconds delay, bool overlap = false)
      : host_(make_host_backend(graph, {})), delay_(delay), overlap_(overlap) {}

  BatchSizes sample(const Query& query) override {
    if (query.seeds[0] == 40 && num_due > 0) ++firsts_sampled_beside;
    return host_->sample(query);
  }
  std::size_t most_fetches() const override { return 2; }
  void before_fetch(const std::function<void(base::GpuStream)>&) override {}
  void fill(std::byte* data, std::size_t bytes, int value) override { host_->fill(data, bytes, value); }
  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    host_->fetch(slot, input_id);
    due_.push_back(Clock::now() + delay_);
    ++num_due;
    most_at_once = std::max(most_at_once.load(), std::ssize(due_));
  }
  bool finished() override {
    const bool waits = overlap_ && most_at_once < 2;
    return due_.front() + (waits ? std::chrono::seconds(5) : std::chrono::seconds(0)) <= Clock::now();
  }
  FetchUse fetched() override {
    due_.pop_front();
    --num_due;
    return host_->fetched();
  }

  std::atomic<std::ptrdiff_t> most_at_once = 0;
  std::atomic<int> num_due = 0;
  std::atomic<int> firsts_sampled_beside = 0;  // batches that begin with node 40, while others came

 private:
  using Clock = std::chrono::steady_clock;
  std::unique_ptr<Backend> host_;
  std::chrono::milliseconds delay_;
  bool overlap_;
  std::deque<Clock::time_point> due_;
};

class PipelineAhead : public ::testing::Test {
 protected:
  static constexpr int64_t kLimitUs = 10'000'000;

  PipelineAhead() {
    seeds_.resize(205);
    std::iota(seeds_.begin(), seeds_.end(), 40);
  }

  // Serves while `train` reads; the channel has so many slots.
  template <typename Train>
  void serve(LateBackend& backend, int num_slots, Train train) {
    channel::ChannelOptions channel;
    channel.num_slots = num_slots;
    channel.tables = {{graph_.dim, 2 << 8 | 32, 0}};
    const dataset::TemporaryFolder folder;
    auto file = dataset::create_npy(folder / "seeds-0.npy", dataset::DType::int64, {std::ssize(seeds_)});
    std::ranges::copy(seeds_, file.as<int64_t>().begin());
    auto pairs = dataset::create_npy(folder / "pairs-1.npy", dataset::DType::int64, {pairs_.size(), 2});
    std::ranges::copy(pairs_.seeds, pairs.as<int64_t>().begin());
    channel::Publisher publisher(folder.path(), channel);
    publisher.announce();
    const GraphView graph = graph_.view();
    auto served = std::async(std::launch::async, [&] { Pipeline(options_, graph, backend, publisher).serve(); });
    {
      channel::Subscriber subscriber(folder.path());
      train(subscriber, publisher);
    }
    publisher.stop_flag().store(1);
    served.get();
  }

  // Batches of 20 seeds, in their own order.
  channel::Request of_epoch(uint64_t epoch) const {
    channel::Request asked = request(20, {-1, 3});
    asked.epoch = epoch;
    asked.step_stride = 1;
    return asked;
  }

  void expect_batch(const channel::HeldBatch& held, const channel::Request& asked, uint64_t step) const {
    ASSERT_EQ(held.batch->step, step);
    const auto first = static_cast<std::ptrdiff_t>(20 * step);
    const std::vector<int64_t> seeds(seeds_.begin() + first,
                                     seeds_.begin() + std::min<std::ptrdiff_t>(first + 20, 205));
    const auto host = make_host_backend(graph_.view(), {});
    const HostBatch expected =
        run_host(*host, graph_.view(), {seeds, std::span(asked.fanout).first(2), batch_key(0, asked.epoch, step)});
    expect_nodes(held, expected);
  }

  void expect_batch_of_pairs(const channel::HeldBatch& held, const channel::Request& asked, uint64_t step) const {
    ASSERT_EQ(held.batch->step, step);
    std::vector<int64_t> positions(static_cast<std::size_t>(std::min<int64_t>(20, pairs_.size() - 20 * step)));
    std::iota(positions.begin(), positions.end(), static_cast<int64_t>(20 * step));
    const GraphView graph = graph_.view();
    PairSeeds pairs(graph);
    const base::PhiloxKey key = batch_key(0, asked.epoch, step);
    pairs.make(pairs_, positions, asked, key);
    ASSERT_EQ(pairs.exclusions().size(), 1u);
    ASSERT_FALSE(pairs.exclusions()[0].positions.empty());
    Query query{pairs.seeds(), std::span(asked.fanout).first(2), key};
    query.spec.exclusions = pairs.exclusions();
    const auto host = make_host_backend(graph, {});
    expect_nodes(held, run_host(*host, graph, query));
    const auto* input_id = reinterpret_cast<const int64_t*>(held.data + held.batch->input_id_offset);
    ASSERT_TRUE(std::ranges::equal(std::span(input_id, pairs.input_id().size()), pairs.input_id()));
  }

  static void expect_nodes(const channel::HeldBatch& held, const HostBatch& expected) {
    const auto* n_id = reinterpret_cast<const int64_t*>(held.data + held.batch->n_id_offset);
    ASSERT_EQ(std::vector<int64_t>(n_id, n_id + held.batch->num_nodes), expected.n_id);
    ASSERT_EQ(std::memcmp(held.data + held.batch->nodes[0].x_offset, expected.x[0].data(), expected.x[0].size()), 0);
  }

  TestGraph<int32_t> graph_ = mixed_graph<int32_t>(2000, 3);
  std::vector<int64_t> seeds_;
  SeedSet pairs_ = SeedSet::of_pairs({});
  Options options_;
};

TEST_F(PipelineAhead, WritesABatchWhileTheLastComesAndPublishesThemInTurn) {
  for (const int num_slots : {2, 3, 5}) {
    LateBackend backend(graph_.view(), std::chrono::milliseconds(10), true);
    serve(backend, num_slots, [&](channel::Subscriber& subscriber, auto&) {
      for (uint64_t epoch = 0; epoch < 2; ++epoch) {
        const channel::Request asked = of_epoch(epoch);
        const uint64_t pass = subscriber.request(asked);
        for (uint64_t step = 0; step < 11; ++step) {
          const channel::HeldBatch held = subscriber.next(pass, kLimitUs);
          expect_batch(held, asked, step);
          if (HasFatalFailure()) return;
          subscriber.release(held.slot, nullptr);
        }
      }
    });
    EXPECT_EQ(backend.most_at_once, 2);
  }
}

TEST_F(PipelineAhead, SamplesTheNextPassWhileTheLastBatchesOfThisOneCome) {
  LateBackend backend(graph_.view(), std::chrono::milliseconds(50));
  serve(backend, 3, [&](channel::Subscriber& subscriber, auto&) {
    constexpr uint64_t kPasses = 4;
    for (uint64_t epoch = 0; epoch < kPasses; ++epoch) subscriber.request(of_epoch(epoch));
    for (uint64_t pass = 1; pass <= kPasses; ++pass) {
      for (uint64_t step = 0; step < 11; ++step) {
        const channel::HeldBatch held = subscriber.next(pass, kLimitUs);
        expect_batch(held, of_epoch(pass - 1), step);
        if (HasFatalFailure()) return;
        subscriber.release(held.slot, nullptr);
      }
    }
  });
  EXPECT_EQ(backend.firsts_sampled_beside, 3);
}

TEST_F(PipelineAhead, APassThatIsCancelledLeavesNothingToTheNext) {
  LateBackend backend(graph_.view(), std::chrono::milliseconds(10));
  serve(backend, 3, [&](channel::Subscriber& subscriber, auto&) {
    for (uint64_t epoch = 0; epoch < 6; ++epoch) {
      const channel::Request asked = of_epoch(epoch);
      const uint64_t pass = subscriber.request(asked);
      for (uint64_t step = 0; step <= epoch; ++step) {
        const channel::HeldBatch held = subscriber.next(pass, kLimitUs);
        expect_batch(held, asked, step);
        if (HasFatalFailure()) return;
        subscriber.release(held.slot, nullptr);
      }
      subscriber.cancel_below(pass + 1);
    }
  });
}

TEST_F(PipelineAhead, BatchesOfPairsAreThoseOfTheHost) {
  std::vector<int64_t> ids;  // edges of the graph
  for (std::size_t target = 0; target < 900; ++target) {
    if (graph_.indptr[target] == graph_.indptr[target + 1]) continue;
    ids.push_back(graph_.indices[static_cast<std::size_t>(graph_.indptr[target])]);
    ids.push_back(static_cast<int64_t>(target));
  }
  pairs_ = SeedSet::of_pairs(ids);
  channel::Request asked = of_epoch(1);
  asked.seed_set = 1;
  asked.negative_mode = channel::NegativeMode::kBinary;
  asked.negatives = 1.5;
  asked.redraws = 3;
  asked.exclude = channel::Exclude::kReverse;
  LateBackend backend(graph_.view(), std::chrono::milliseconds(10), true);
  serve(backend, 3, [&](channel::Subscriber& subscriber, auto&) {
    const uint64_t pass = subscriber.request(asked);
    for (uint64_t step = 0; step < static_cast<uint64_t>(pairs_.size() + 19) / 20; ++step) {
      const channel::HeldBatch held = subscriber.next(pass, kLimitUs);
      expect_batch_of_pairs(held, asked, step);
      if (HasFatalFailure()) return;
      subscriber.release(held.slot, nullptr);
    }
  });
  EXPECT_EQ(backend.most_at_once, 2);
}

TEST_F(PipelineAhead, PassesOverACancelledPassWhoseSeedsAreRemoved) {
  LateBackend backend(graph_.view(), std::chrono::milliseconds(1));
  channel::Request removed = of_epoch(0);
  removed.seed_set = 7;
  serve(backend, 3, [&](channel::Subscriber& subscriber, auto&) {
    subscriber.cancel_below(2);
    EXPECT_EQ(subscriber.request(removed), 1u);
    const channel::Request asked = of_epoch(3);
    const channel::HeldBatch held = subscriber.next(subscriber.request(asked), kLimitUs);
    expect_batch(held, asked, 0);
    subscriber.release(held.slot, nullptr);
  });
}

TEST_F(PipelineAhead, EndsWhenItIsStoppedThoughABatchNeverComes) {
  LateBackend backend(graph_.view(), std::chrono::hours(1));
  serve(backend, 3, [&](channel::Subscriber& subscriber, channel::Publisher& publisher) {
    subscriber.request(of_epoch(0));
    while (backend.most_at_once < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    publisher.stop_flag().store(1);
  });
}

TEST_F(PipelineAhead, EndsWithATrainerThatHasEndedThoughABatchNeverComes) {
  LateBackend backend(graph_.view(), std::chrono::hours(1));
  serve(backend, 3, [&](channel::Subscriber& subscriber, auto&) {
    subscriber.request(of_epoch(0));
    while (backend.most_at_once < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

}  // namespace
}  // namespace cohort::sampler
