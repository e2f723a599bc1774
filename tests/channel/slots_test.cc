// Slots on their way from the sampler to the trainer and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "channel/slot_size.h"
#include "channel/wait.h"
#include "tests/base/fails.h"
#include "tests/channel/channel_folder.h"

namespace cohort::channel {
namespace {

TEST_F(Channel, SlotsGivenBackOutOfOrderAreUsedAgain) {
  Both both(folder_, options());
  auto& [publisher, subscriber, pass] = both;
  for (int64_t i = 0; i < 3; ++i) ASSERT_TRUE(publish(publisher, pass, 8, i));
  const HeldBatch kept = subscriber.next(pass, kLimitUs);
  for (int64_t i = 1; i < 10; ++i) {
    const HeldBatch held = subscriber.next(pass, kLimitUs);
    EXPECT_EQ(first_id(held), i);
    subscriber.release(held.slot, nullptr);
    ASSERT_TRUE(publish(publisher, pass, 8, i + 2));
    EXPECT_EQ(first_id(kept), 0) << "a held slot was overwritten";
  }
}

TEST_F(Channel, ASlotGivenBackAfterTheTrainerHasLeftIsNotFilledAgain) {
  Both both(folder_, options(2));
  auto& [publisher, subscriber, pass] = both;
  for (int64_t i = 0; i < 2; ++i) ASSERT_TRUE(publish(publisher, pass, 8, i));
  const HeldBatch held = subscriber.next(pass, kLimitUs);
  subscriber.leave();
  subscriber.release(held.slot, nullptr);
  EXPECT_FALSE(publish(publisher, pass, 8, 2));
  EXPECT_EQ(first_id(held), 0);
}

TEST_F(Channel, WhatASamplerThatHasEndedLeftReadyIsTakenToTheLast) {
  const std::function<void(Publisher&)> ends[] = {
      [](Publisher& publisher) { publisher.set_stage(Stage::kEnded); },
      [](Publisher& publisher) { publisher.leave_error("no memory"); },
  };
  for (const auto& end : ends) {
    const std::filesystem::path folder = folder_ / std::to_string(&end - ends);
    std::filesystem::create_directory(folder);
    Both both(folder, options(2));
    auto& [publisher, subscriber, pass] = both;
    for (int64_t i = 0; i < 2; ++i) ASSERT_TRUE(publish(publisher, pass, 8, i));
    end(publisher);
    for (int64_t i = 0; i < 2; ++i) {
      const HeldBatch held = subscriber.next(pass, kLimitUs);
      EXPECT_EQ(first_id(held), i);
      subscriber.release(held.slot, nullptr);
    }
    EXPECT_THROW(subscriber.next(pass, kLimitUs), PeerLost);
  }
}

TEST_F(Channel, TheSlotOfTheOldestBatchIsTakenFirst) {
  Both both(folder_, options());
  auto& [publisher, subscriber, pass] = both;
  std::vector<int> slots;
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(publish(publisher, pass, 8, i));
    slots.push_back(subscriber.next(pass, kLimitUs).slot);
  }
  for (const int place : {2, 0, 1}) subscriber.release(slots[static_cast<std::size_t>(place)], nullptr);
  for (const int slot : slots) EXPECT_EQ(publisher.acquire(pass), slot);
}

// Batches up to the oldest one that is not back, in whatever order others come back.
TEST_F(Channel, KnowsTheOldestBatchInUse) {
  Both both(folder_, options(4));
  auto& [publisher, subscriber, pass] = both;
  EXPECT_EQ(publisher.oldest_in_use(0), 0u);
  std::deque<HeldBatch> held;
  std::mt19937 random(3);
  uint64_t num_published = 0, num_taken = 0;
  for (int step = 0; step < 200; ++step) {
    if (random() % 2 == 0 && held.size() + num_published - num_taken < 4) {
      ASSERT_TRUE(publish(publisher, pass, 8, 0));
      ++num_published;
    } else if (random() % 2 == 0 && num_taken < num_published) {
      held.push_back(subscriber.next(pass, kLimitUs));
      ++num_taken;
    } else if (!held.empty()) {
      const auto which = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
      subscriber.release(which->slot, nullptr);
      held.erase(which);
    }
    const uint64_t oldest = held.empty() ? num_taken : held.front().batch->sequence;
    ASSERT_EQ(publisher.oldest_in_use(-1), oldest) << "step " << step;
    for (const HeldBatch& each : held) {
      const bool is_first = each.batch->sequence == oldest;
      const uint64_t next = held.size() > 1 ? held[1].batch->sequence : num_taken;
      EXPECT_EQ(publisher.oldest_in_use(each.slot), is_first ? next : oldest);
    }
  }
}

// Who sees the state of a slot sees what was written to the slot before, without any other word between the two. (Only
// the thread sanitizer notices where that is not so: preset tsan.)
TEST(SlotState, PublishesWhatTheSlotHolds) {
  Slot slot{};
  std::vector<int64_t> memory(64);
  const auto await = [&](SlotState state) {
    while (slot.state.load(std::memory_order_acquire) != static_cast<uint32_t>(state)) std::this_thread::yield();
  };
  constexpr int64_t kRounds = 100;
  std::jthread trainer([&] {
    for (int64_t round = 0; round < kRounds; ++round) {
      await(SlotState::kReady);
      EXPECT_EQ(slot.batch.num_nodes, round);
      EXPECT_EQ(std::ranges::count(memory, round), std::ssize(memory));
      slot.batch.num_edges = round;
      set_state(slot, SlotState::kFree);
    }
  });
  for (int64_t round = 0; round < kRounds; ++round) {
    slot.batch.num_nodes = round;
    std::ranges::fill(memory, round);
    set_state(slot, SlotState::kReady);
    await(SlotState::kFree);
    EXPECT_EQ(slot.batch.num_edges, round);
  }
}

TEST(SlotLayout, RowsOfEdgesFollowThoseOfNodes) {
  Batch batch{};
  batch.num_nodes = 5;
  batch.num_edges = batch.num_local_edges = 4;
  batch.num_hops = 1;
  batch.nodes[0].per_hop[0] = 3;
  batch.nodes[1].per_hop[1] = 2;
  batch.edges[0].per_hop[0] = batch.edges[1].per_hop[0] = 1;
  batch.edges[2].per_hop[0] = 2;
  SlotContents contents{.row_bytes = {0, 16}, .edge_row_bytes = {0, 0, 0}, .target_types = {0, 1, 1}};
  const std::size_t without = lay_out(contents, batch);
  EXPECT_EQ(batch.nodes[1].x_offset, 0u);
  EXPECT_EQ(batch.n_id_offset, 256u);
  contents.edge_row_bytes = {24, 0, 257};
  EXPECT_EQ(lay_out(contents, batch), without + 256 + 768);
  EXPECT_EQ(batch.edges[0].edge_attr_offset, without);
  EXPECT_EQ(batch.edges[2].edge_attr_offset, without + 256);
}

TEST_F(Channel, NamesTheCureWhenAllSlotsAreHeld) {
  Both both(folder_, options(2));
  auto& [publisher, subscriber, pass] = both;
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(publish(publisher, pass, 8, i));
    subscriber.next(pass, kLimitUs);
  }
  EXPECT_TRUE(base::fails_with([&] { both.subscriber.next(both.pass, kLimitUs); }, {"batch.clone()"}));
}

// --- sizes -----------------------------------------------------------------------------------------------------------

// Nodes, edges and targets of batches of 10 seeds.
TEST(WorstCase, MultipliesFanoutsUpToTheGraphOrToATreeForEachSeed) {
  using Sizes = std::array<int64_t, 3>;
  const auto sizes = [](const std::vector<int32_t>& fanout, int64_t num_nodes, bool trees = false) {
    const WorstCase bound = worst_case(10, fanout, num_nodes, trees);
    return Sizes{bound.num_nodes, bound.num_edges, bound.num_targets};
  };
  EXPECT_EQ(sizes({5, 3}, 1'000'000), (Sizes{10 + 50 + 150, 50 + 150, 10 + 50}));
  EXPECT_EQ(sizes({5, 3}, 40), (Sizes{40, 50 + 30 * 3, 40}));
  EXPECT_EQ(sizes({5, 3}, 8, true), (Sizes{10 * 8, 10 * (5 + 5 * 3), 10 * 6}));
  EXPECT_EQ(sizes({5, -1}, 40)[0], 40);
  for (const bool trees : {false, true}) EXPECT_EQ(sizes({5, -1}, 40, trees)[1], -1) << "no bound";
  EXPECT_EQ(worst_case(1 << 20, std::vector{1 << 30, 1 << 30}, int64_t{1} << 31, true).num_edges, -1);
}

TEST(SlotBytes, AreOfTheWorstCaseUpToTwoGibibytes) {
  Batch worst{};
  worst.num_hops = 2;
  worst.num_nodes = worst.num_labels = 10 + 20 + 60;
  worst.num_edges = worst.num_local_edges = 20 + 60;
  worst.num_seeds = worst.nodes[0].per_hop[0] = 10;
  worst.nodes[0].per_hop[1] = worst.edges[0].per_hop[0] = 20;
  worst.nodes[0].per_hop[2] = worst.edges[0].per_hop[1] = 60;
  const std::vector<int32_t> fanout = {2, 3}, all = {-1};
  const BatchBounds bounds{.num_nodes = 1000, .fanout = fanout, .num_seeds = 10};
  const std::size_t bytes = lay_out({.row_bytes = {100}, .edge_row_bytes = {8}}, worst);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100}, .edge_row_bytes = {8}}, bounds), bytes);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {int64_t{1} << 26}}, bounds), 0u);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100}}, {.num_nodes = 1000, .fanout = all, .num_seeds = 10}), 0u);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100, 100}}, bounds), 0u) << "of several types";
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100}, .target_types = {0, 0}}, bounds), 0u) << "of several relations";
  EXPECT_EQ(slot_bytes(bytes, 1000), bytes);
  EXPECT_EQ(slot_bytes(bytes, 2 * bytes), 2 * bytes);
  EXPECT_EQ(slot_bytes(0, 1000), 1250u);
}

TEST(PoolSizes, HaveRoomForTheBatchesOfAllSlotsWhereThereIsMemory) {
  using Sizes = std::pair<int64_t, int64_t>;
  constexpr double kAny = 1e9;
  const auto sizes = [](int64_t slots, int64_t nodes, double most_batches, bool reuse = true) {
    const PoolSizes found = pool_sizes(slots, nodes, 1600, reuse, most_batches);
    return Sizes(found.needed, found.preferred);
  };
  EXPECT_EQ(sizes(4, 160, kAny), Sizes(640, 800));
  EXPECT_EQ(sizes(4, 800, kAny), Sizes(1600, 1600));
  EXPECT_EQ(sizes(4, 800, kAny, false), Sizes(3200, 4000));
  EXPECT_EQ(sizes(4, 160, 4.5), Sizes(630, 720));
  EXPECT_EQ(sizes(4, 160, 3), Sizes(420, 480));
  EXPECT_EQ(sizes(4, 160, 1), Sizes(320, 340)) << "of a batch and the next";
  EXPECT_EQ(sizes(4, 1600, 0), Sizes(1600, 1600));
  EXPECT_EQ(sizes(1, 160, 0), Sizes(160, 170));
  EXPECT_EQ(sizes(4, 0, kAny), Sizes(0, 0));
}

}  // namespace
}  // namespace cohort::channel
