#include "dataset/watched_work.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace cohort::dataset {
namespace {

using namespace std::chrono_literals;

struct Nothing {};

// Until it is told to stop, or for so long that it seems to be for ever.
bool work_until_stopped(const std::stop_token& stop) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (!stop.stop_requested() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return stop.stop_requested();
}

TEST(WatchedWork, ReturnsWhatTheWorkDoes) {
  EXPECT_EQ(run_watched<Nothing>([](const std::stop_token&) { return 7; }, [] {}), 7);
}

TEST(WatchedWork, ThrowsWhatTheWorkDoes) {
  const auto work = [](const std::stop_token&) -> int { throw std::length_error("of the work"); };
  EXPECT_THROW(run_watched<Nothing>(work, [] {}), std::length_error);
}

TEST(WatchedWork, WhatTheLookThrowsStopsTheWorkFirst) {
  bool was_stopped = false;
  const auto work = [&](const std::stop_token& stop) { was_stopped = work_until_stopped(stop); };
  EXPECT_THROW(run_watched<Nothing>(work, [] { throw std::domain_error("of the look"); }), std::domain_error);
  EXPECT_TRUE(was_stopped);
}

TEST(WatchedWork, LooksAgainAndAgain) {
  int looks = 0;
  const auto look = [&] {
    if (++looks == 3) throw std::domain_error("enough");
  };
  EXPECT_THROW(run_watched<Nothing>(work_until_stopped, look), std::domain_error);
  EXPECT_EQ(looks, 3);
}

TEST(WatchedWork, IsWaitedForByAWaiting) {
  static int waiting;
  waiting = 0;
  struct Waiting {
    Waiting() { ++waiting; }
    ~Waiting() { --waiting; }
  };
  const auto look = [] {
    EXPECT_EQ(waiting, 0);
    throw std::domain_error("enough");
  };
  EXPECT_THROW(run_watched<Waiting>(work_until_stopped, look), std::domain_error);
  EXPECT_EQ(waiting, 0);
}

}  // namespace
}  // namespace cohort::dataset
