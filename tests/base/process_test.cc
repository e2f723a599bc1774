#include "base/process.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <string>
#include <thread>

#include "base/proc_file.h"

namespace cohort::base {
namespace {

// As /proc has it: the letter behind the name in parentheses.
char process_state(pid_t pid) {
  const std::string text = read_proc("/proc/" + std::to_string(pid) + "/stat");
  return text.at(text.rfind(')') + 2);
}

TEST(Process, HasAStartTime) {
  EXPECT_GT(current_process().start_time, 0u);
  EXPECT_EQ(process_with_pid(getppid()).pid, getppid());
  EXPECT_LE(process_with_pid(getppid()).start_time, current_process().start_time);
}

// All further calls of pidfd_open fail, as in a sandbox.
bool refuse_descriptors_of_processes(uint32_t error) {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(steps), steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// The thread sanitizer ends a process that starts threads after a fork from one with threads.
#if defined(__has_feature)
constexpr bool kMayStartThreads = !__has_feature(thread_sanitizer);
#else
constexpr bool kMayStartThreads = true;
#endif

// Exit statuses of a process that looks at itself and others.
enum : int { kAsExpected = 0, kNoFilter, kSelf, kOther, kRunning, kThread, kZombie, kReaped };

int look_at_others() {
  if (!is_alive(current_process())) return kSelf;
  ProcessId other = current_process();
  other.start_time += 1;
  if (is_alive(other)) return kOther;
  const pid_t child = fork();
  if (child == 0 && kMayStartThreads) {  // its first thread ends before another does
    std::thread([] { pause(); }).detach();
    syscall(SYS_exit, 0);
  }
  if (child == 0) pause();
  const ProcessId id = process_with_pid(child);
  if (!is_alive(id)) return kRunning;
  while (kMayStartThreads && process_state(child) != 'Z') usleep(1000);
  if (!is_alive(id)) return kThread;
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);  // dead, but not yet reaped
  if (is_alive(id)) return kZombie;
  waitpid(child, nullptr, 0);
  return is_alive(id) ? kReaped : kAsExpected;
}

TEST(Process, IsSeenAsItIsAlsoWhereASandboxRefusesDescriptorsOfProcesses) {
  for (const int error : {0, ENOSYS, EPERM}) {  // 0: nothing is refused
    const pid_t child = fork();
    if (child == 0) {
      try {
        const bool is_ready = error == 0 || refuse_descriptors_of_processes(static_cast<uint32_t>(error));
        _exit(is_ready ? look_at_others() : kNoFilter);
      } catch (const std::exception& thrown) {
        std::fprintf(stderr, "%s\n", thrown.what());
        _exit(100);
      }
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "no filter of system calls can be set here";
    EXPECT_EQ(WEXITSTATUS(status), kAsExpected) << std::strerror(error);
  }
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
