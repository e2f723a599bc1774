#include "base/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cohort::base {
namespace {

TEST(Process, ThisOneIsAlive) { EXPECT_TRUE(is_alive(current_process())); }

TEST(Process, HasAStartTime) {
  EXPECT_GT(current_process().start_time, 0u);
  EXPECT_EQ(process_with_pid(getppid()).pid, getppid());
  EXPECT_LE(process_with_pid(getppid()).start_time, current_process().start_time);
}

TEST(Process, AnotherStartTimeIsAnotherProcess) {
  ProcessId other = current_process();
  other.start_time += 1;
  EXPECT_FALSE(is_alive(other));
}

TEST(Process, AZombieIsDead) {
  const pid_t child = fork();
  if (child == 0) pause();
  const ProcessId id = process_with_pid(child);
  EXPECT_TRUE(is_alive(id));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);  // dead, but not yet reaped
  EXPECT_FALSE(is_alive(id));
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_alive(id));
}

TEST(DescriptorLimit, IsRaised) {
  rlimit before{}, now{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{before.rlim_max / 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  raise_descriptor_limit();
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace cohort::base
