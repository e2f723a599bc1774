#include "cache/read_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

class Job final : public ReadJob {
 public:
  Job(std::size_t num_reads, std::function<void(std::size_t)> read) : ReadJob(num_reads), read_(std::move(read)) {}

 protected:
  void read(std::size_t i, BlockBuffer&) override { read_(i); }
  void deliver(std::size_t, BlockBuffer&) override {}

 private:
  std::function<void(std::size_t)> read_;
};

TEST(ReadThreads, BeginJobsInTurn) {
  std::latch begun(1), goes_on(1);
  std::string order;
  const auto job = [&](char name, std::size_t num_reads) {
    return std::make_shared<Job>(num_reads, [&, name](std::size_t i) {
      begun.count_down(order.empty() ? 1 : 0);
      order += name;
      order += static_cast<char>('0' + i);
      goes_on.wait();
    });
  };
  const auto a = job('a', 3), b = job('b', 1), c = job('c', 2), d = job('d', 1);
  ReadThreads threads(1);
  threads.start(a);
  begun.wait();
  threads.start(b);
  threads.start(c, Turn::kNext);
  threads.start(d, Turn::kNext);
  goes_on.count_down();
  for (const auto& each : {a, b, c, d}) each->wait({"a disk", 60s, ""});
  EXPECT_EQ(order, "a0c0c1d0a1a2b0");
}

// A job whose turn has not come waits as long as others' reads end.
TEST(ReadThreads, WaitForReadsOfEarlierJobs) {
  const auto slow = std::make_shared<Job>(60, [](std::size_t) { std::this_thread::sleep_for(20ms); });
  const auto last = std::make_shared<Job>(1, [](std::size_t) {});
  ReadThreads threads(1);
  threads.start(slow);
  threads.start(last);
  last->wait({"a disk", 400ms, ""});
  EXPECT_TRUE(slow->done());
}

TEST(ReadThreads, DoNotWaitForeverForAnEarlierJob) {
  std::latch stuck(1);
  const auto first = std::make_shared<Job>(1, [&](std::size_t) { stuck.wait(); });
  const auto last = std::make_shared<Job>(1, [](std::size_t) {});
  ReadThreads threads(1);
  threads.start(first);
  threads.start(last);
  EXPECT_THROW(last->wait({"a disk", 50ms, ""}), base::Error);
  stuck.count_down();
  first->wait({"a disk", 60s, ""});
}

int64_t pages_of_addresses() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

std::ptrdiff_t num_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// Within a process that has addresses for the stacks of some threads only.
[[noreturn]] void start_too_many() {
  const auto before = num_threads();
  const auto bytes = static_cast<rlim_t>(pages_of_addresses() * 4096 + (int64_t{64} << 20));
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
  try {
    const ReadThreads threads(1000);
    std::fprintf(stderr, "they were started\n");
  } catch (const base::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  for (int i = 0; i < 1000 && num_threads() > before; ++i) std::this_thread::sleep_for(10ms);
  std::_Exit(num_threads() > before ? 1 : 0);
}

TEST(ReadThreadsDeathTest, SayThatThereAreNoMoreThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs addresses";
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
  GTEST_SKIP() << "a sanitizer needs addresses";
#endif
#endif
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(0), "threads that read rows: expected 1000");
}

}  // namespace
}  // namespace cohort::cache
