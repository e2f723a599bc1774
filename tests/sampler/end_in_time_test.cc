#include "sampler/end_in_time.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

namespace cohort::sampler {
namespace {

using namespace std::chrono_literals;

constexpr int kLeft = 7;

void wait_long() {
  std::this_thread::sleep_for(60s);
  std::_Exit(1);
}

TEST(EndInTimeDeathTest, LeavesAProcessThatHangsOnceTheRunIsOver) {
  EXPECT_EXIT(
      {
        EndInTime end(50ms, [] { std::_Exit(kLeft); });
        const auto asking = end.ask([] { return true; });
        wait_long();
      },
      ::testing::ExitedWithCode(kLeft), "");
}

TEST(EndInTimeDeathTest, LeavesAProcessThatHangsInItsDestructors) {
  EXPECT_EXIT(
      {
        EndInTime end(50ms, [] { std::_Exit(kLeft); });
        {
          const auto asking = end.ask([] { return true; });
        }
        wait_long();
      },
      ::testing::ExitedWithCode(kLeft), "");
}

TEST(EndInTimeDeathTest, LeavesNoProcessWhoseRunGoesOn) {
  EXPECT_EXIT(
      {
        std::atomic<int> asked = 0;
        {
          EndInTime end(0ms, [] { std::_Exit(kLeft); });
          const auto asking = end.ask([&] { return ++asked < 0; });
          while (asked < 3) std::this_thread::sleep_for(1ms);
        }
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(EndInTime, AsksNobodyWhoHasGone) {
  std::atomic<int> asked = 0;
  EndInTime end(1h, [] {});
  {
    const auto asking = end.ask([&] { return ++asked < 0; });
  }
  const int before = asked;
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(asked, before);
}

TEST(EndInTime, LetsAProcessEndBeforeTheLimit) {
  EndInTime end(1h, [] { std::_Exit(kLeft); });
  const auto asking = end.ask([] { return true; });
}

}  // namespace
}  // namespace cohort::sampler
