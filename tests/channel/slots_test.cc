// Slots on their way from the sampler to the trainer and back.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

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

TEST_F(Channel, NamesTheCureWhenAllSlotsAreHeld) {
  Publisher publisher(folder_, options(2));
  publisher.announce();
  Subscriber subscriber(folder_);
  const uint64_t pass = subscriber.request({});
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(publish(publisher, pass, 8, i));
    subscriber.next(pass, kLimitUs);
  }
  try {
    subscriber.next(pass, kLimitUs);
    FAIL();
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch.clone()"), std::string::npos);
  }
}

}  // namespace
}  // namespace cohort::channel
