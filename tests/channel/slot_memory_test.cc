#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "channel/slot_memory.h"
#include "tests/base/fails.h"

namespace cohort::channel {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr int kCannotRun = 77;

class SlotMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/dev/shm/cohort-test-XXXXXX";
    folder_ = mkdtemp(name);
    memory_ = make_host_slot_owner(folder_, 4);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::size_t grow(int slot, std::size_t needed_bytes, std::size_t preferred_bytes) {
    memory_->grow(slots_[slot], slot, needed_bytes, preferred_bytes);
    return slots_[slot].bytes;
  }

  std::filesystem::path folder_;
  std::unique_ptr<SlotOwner> memory_;
  Slot slots_[4] = {};
};

// What `act` returns in a process forked from this one; 1 when it throws.
int in_child(const std::function<int()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(act());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool mount_tmpfs(const std::filesystem::path& folder, const char* options) {
  return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", folder.c_str(), "tmpfs", 0, options) == 0;
}

TEST_F(SlotMemory, ASlotTakesNoMoreThanItNeedsWhereThereIsNoRoomForWhatItAsks) {
  EXPECT_EQ(grow(0, 4096, std::size_t{1} << 60), 4096u);
}

TEST_F(SlotMemory, SlotsThatComeFirstLeaveRoomForTheOthers) {
  const int result = in_child([&] {
    if (!mount_tmpfs(folder_, "size=64m")) return kCannotRun;
    for (int slot = 0; slot < 4; ++slot) grow(slot, 14 * kMiB, 28 * kMiB);
    return 0;
  });
  if (result == kCannotRun) GTEST_SKIP() << "a small tmpfs cannot be mounted";
  EXPECT_EQ(result, 0);
}

TEST_F(SlotMemory, SlotsTakeNoMoreThanTheHostMemoryThatIsAvailable) {
  setenv("COHORT_HOST_MEMORY_BYTES", std::to_string(64 * kMiB).c_str(), 1);
  memory_ = make_host_slot_owner(folder_, 4);
  std::size_t all_bytes = 0;
  for (int slot = 0; slot < 4; ++slot) all_bytes += grow(slot, 14 * kMiB, 28 * kMiB);
  EXPECT_EQ(all_bytes, 4 * 14 * kMiB);
  EXPECT_EQ(grow(0, 14 * kMiB, 18 * kMiB), 18 * kMiB) << "its own memory counts as free when it is replaced";
  EXPECT_TRUE(
      base::fails_with([&] { grow(1, 40 * kMiB, 40 * kMiB); }, {"host memory for a slot: expected ", "--slots"}));
  unsetenv("COHORT_HOST_MEMORY_BYTES");
}

TEST_F(SlotMemory, ASlotThatIsRefusedWhatItAsksTakesWhatItNeeds) {
  EXPECT_EQ(in_child([&] {
              signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{kMiB, kMiB};
              setrlimit(RLIMIT_FSIZE, &limit);
              return grow(0, 4096, 2 * kMiB) == 4096 ? 0 : 2;
            }),
            0);
}

// Memory that counts instead.
struct Counted {
  std::size_t bytes() const { return size; }
  std::size_t size = 0;
};

TEST(MakeMemory, LeavesWhatTheSmallerSlotsNeed) {
  const auto made = [](const std::vector<Counted>& slots, std::size_t free_bytes) {
    return make_memory(slots, free_bytes, 10, 30, [](std::size_t bytes) { return Counted{bytes}; }).size;
  };
  EXPECT_EQ(made({{0}, {0}, {5}, {10}}, 50), 30u);
  EXPECT_EQ(made({{0}, {0}, {5}, {10}}, 49), 10u);
  EXPECT_EQ(made({{30}, {0}, {10}}, 30), 30u);
  EXPECT_EQ(made({{30}, {0}, {10}}, 29), 10u);
}

}  // namespace
}  // namespace cohort::channel
