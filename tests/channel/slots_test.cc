// Slots on their way from the sampler to the trainer and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "channel/wait.h"
#include "tests/base/fails.h"
#include "tests/channel/channel_folder.h"

namespace cohort::channel {
namespace {

TEST_F(Channel, SlotsGivenBackOutOfOrderAreUsedAgain) {
  Publisher publisher(folder_, options());
  publisher.announce();
  Subscriber subscriber(folder_);
  const uint64_t pass = subscriber.request({});
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
  Publisher publisher(folder_, options(2));
  publisher.announce();
  Subscriber subscriber(folder_);
  const uint64_t pass = subscriber.request({});
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
    Publisher publisher(folder, options(2));
    publisher.announce();
    Subscriber subscriber(folder);
    const uint64_t pass = subscriber.request({});
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
  Publisher publisher(folder_, options());
  publisher.announce();
  Subscriber subscriber(folder_);
  const uint64_t pass = subscriber.request({});
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
  Publisher publisher(folder_, options(4));
  publisher.announce();
  Subscriber subscriber(folder_);
  const uint64_t pass = subscriber.request({});
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
  Publisher publisher(folder_, options(2));
  publisher.announce();
  Subscriber subscriber(folder_);
  const uint64_t pass = subscriber.request({});
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(publish(publisher, pass, 8, i));
    subscriber.next(pass, kLimitUs);
  }
  EXPECT_TRUE(base::fails_with([&] { subscriber.next(pass, kLimitUs); }, {"batch.clone()"}));
}

}  // namespace
}  // namespace cohort::channel
