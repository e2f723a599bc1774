#include "cache/pool_ref.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

#include "tests/cache/host_pool.h"

namespace cohort::cache {
namespace {

struct Held {
  uint32_t number;
  std::vector<int64_t> nodes;
  std::vector<uint32_t> row_index;
};

struct Sizes {
  int64_t num_nodes, most_in_batch;
  std::size_t slots;
  bool reuse = true, repeats = false, forgets = false;
};

// Batches of random sizes, some of which are in use; their numbers are `stride` apart. They are given back in any order
// where the pool has room for all rows, else the oldest first.
void expect_rows_of_batches_in_use(const Sizes& sizes, uint32_t stride, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t of_slots = static_cast<int64_t>(sizes.slots) * sizes.most_in_batch;
  const bool has_all = sizes.reuse && !sizes.forgets;
  const int64_t num_rows = has_all ? std::min(of_slots, sizes.num_nodes) : of_slots;
  const bool in_order = !has_all || num_rows < sizes.num_nodes;
  HostPool pool(sizes.num_nodes, num_rows, sizes.reuse);
  std::deque<Held> held;
  std::vector<int64_t> nodes(static_cast<std::size_t>(sizes.num_nodes));
  std::iota(nodes.begin(), nodes.end(), 0);
  for (uint32_t step = 0; step < 1200; ++step) {
    while (held.size() == sizes.slots || (!held.empty() && random() % 3 == 0)) {
      held.erase(held.begin() + (in_order ? 0 : static_cast<std::ptrdiff_t>(random() % held.size())));
    }
    std::shuffle(nodes.begin(), nodes.end(), random);
    Held batch{step * stride, nodes, {}};
    batch.nodes.resize(static_cast<std::size_t>(random() % static_cast<uint64_t>(sizes.most_in_batch + 1)));
    for (std::size_t i = 1; sizes.repeats && i < batch.nodes.size(); ++i) {  // as in trees
      if (random() % 2 == 0) batch.nodes[i] = batch.nodes[random() % i];
    }
    if (sizes.forgets && random() % 4 == 0) pool.forget();
    uint32_t oldest = batch.number;
    for (const Held& other : held) {
      if (static_cast<int32_t>(other.number - oldest) < 0) oldest = other.number;
    }
    batch.row_index = pool.assign(batch.nodes, {batch.number, oldest});
    ASSERT_EQ(pool.num_without_row, 0) << "step " << step;
    held.push_back(std::move(batch));
    for (const Held& each : held) {
      for (std::size_t i = 0; i < each.nodes.size(); ++i) {
        ASSERT_EQ(pool.row(each.row_index[i]), each.nodes[i]) << "batch " << each.number << " at step " << step;
      }
    }
  }
}

TEST(Pool, KeepsTheRowsThatBatchesInUseName) {
  for (const uint32_t stride : {1u, 1u << 22}) {  // of 1200 batches: numbers wrap around
    for (const Sizes& sizes : {Sizes{500, 100, 4},
                               {100, 100, 4},
                               {30, 20, 2},
                               {2000, 40, 8},
                               {1, 1, 2},
                               Sizes{500, 100, 4, false},
                               Sizes{100, 60, 3, true, true},
                               {100, 200, 3, true, true},
                               {100, 60, 3, false, true},
                               {100, 60, 3, true, false, true},
                               {100, 60, 3, true, true, true}}) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        SCOPED_TRACE(testing::Message() << "stride " << stride << ", nodes " << sizes.num_nodes << ", seed " << seed);
        expect_rows_of_batches_in_use(sizes, stride, seed);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Pool, WithRoomForAllNodesFetchesEachOnce) {
  HostPool pool(100, 100, true);
  std::mt19937_64 random(1);
  std::vector<int64_t> nodes(100);
  std::iota(nodes.begin(), nodes.end(), 0);
  for (uint32_t number = 0; number < 50; ++number) {
    std::shuffle(nodes.begin(), nodes.end(), random);
    pool.assign({nodes.begin(), nodes.begin() + 60}, {number, number});
  }
  EXPECT_EQ(pool.num_missing, 100);
}

TEST(Pool, WithoutReuseFetchesAllRowsOfEachBatch) {
  HostPool pool(10, 20, false);
  for (uint32_t number = 0; number < 5; ++number) pool.assign({3, 4, 5, 3}, {number, number});
  EXPECT_EQ(pool.num_missing, 15);
}

TEST(Pool, GivesOneRowToANodeThatABatchHasSeveralTimes) {
  for (const bool reuse : {false, true}) {
    HostPool pool(10, 6, reuse);
    for (uint32_t number = 0; number < 3; ++number) {
      const std::vector<uint32_t> row_index = pool.assign({7, 2, 7, 7, 2, 9}, {number, number});
      EXPECT_EQ(row_index[0], row_index[2]);
      EXPECT_EQ(row_index[0], row_index[3]);
      EXPECT_EQ(row_index[1], row_index[4]);
      EXPECT_EQ(pool.num_missing, reuse ? 3 : 3 * (number + 1));
    }
  }
}

TEST(Pool, FindsNothingOfWhatItForgot) {
  HostPool pool(10, 9, true);
  const std::vector<uint32_t> before = pool.assign({1, 2, 3}, {0, 0});
  pool.forget();
  const std::vector<uint32_t> row_index = pool.assign({1, 2, 3}, {1, 0}, 100);
  EXPECT_EQ(pool.num_missing, 6);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pool.row(before[i]), static_cast<int64_t>(i) + 1);
    EXPECT_EQ(pool.row(row_index[i]), static_cast<int64_t>(i) + 101);
  }
}

}  // namespace
}  // namespace cohort::cache
