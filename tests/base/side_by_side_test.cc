#include "base/side_by_side.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace cohort::base {
namespace {

TEST(SideBySide, AllAreUnderWayAtOnce) {
  std::latch all(3);
  std::vector<int> done(3), threads(3);
  side_by_side(3, [&](std::size_t i) {
    all.arrive_and_wait();
    done[i] = 1;
    threads[i] = omp_get_max_threads();
  });
  EXPECT_EQ(done, std::vector<int>(3, 1));
  EXPECT_EQ(threads, std::vector<int>(3, std::max(1, omp_get_max_threads() / 3)));
}

TEST(SideBySide, OneAloneNeedsNoThread) {
  const int threads = omp_get_max_threads();
  side_by_side(0, [](std::size_t) { FAIL(); });
  side_by_side(1,
               [caller = std::this_thread::get_id()](std::size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  EXPECT_EQ(omp_get_max_threads(), threads);
}

TEST(SideBySide, ThrowsWhatTheFirstThrewWhenAllHaveEnded) {
  std::atomic<int> ended = 0;
  try {
    side_by_side(4, [&](std::size_t i) {
      ++ended;
      if (i >= 2) throw std::runtime_error(std::to_string(i));
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "2");
  }
  EXPECT_EQ(ended, 4);
}

}  // namespace
}  // namespace cohort::base
