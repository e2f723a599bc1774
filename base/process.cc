#include "base/process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/format.h"
#include "base/proc_file.h"

namespace cohort::base {
namespace {

struct Stat {
  char state = 0;  // 0: no such process
  uint64_t start_time = 0;
};

// Reads /proc/<pid>/stat; the name in parentheses may hold spaces, so parsing starts after the last ')'.
Stat read_stat(int32_t pid) {
  const std::string text = read_proc(base::format("/proc/{}/stat", pid));
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
  std::size_t at = name_end + 2;
  Stat stat{text[at], 0};
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at != std::string::npos) stat.start_time = std::strtoull(text.c_str() + at, nullptr, 10);
  return stat;
}

}  // namespace

ProcessId process_with_pid(int32_t pid) {
  const Stat stat = read_stat(pid);
  return stat.state == 0 ? ProcessId{} : ProcessId{pid, stat.start_time};
}

ProcessId current_process() { return process_with_pid(getpid()); }

bool is_alive(const ProcessId& process) {
  if (process.pid == 0) return false;
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0));
  if (descriptor < 0 && errno == ESRCH) return false;
  if (descriptor < 0) fail_errno(base::format("pidfd_open of process {}", process.pid), "success", errno);
  pollfd end{descriptor, POLLIN, 0};  // readable once all threads of the process have ended
  const bool ended = poll(&end, 1, 0) == 1;
  close(descriptor);
  if (ended) return false;
  const Stat stat = read_stat(process.pid);
  return stat.state == 0 || stat.start_time == process.start_time;
}

void end_with_parent(int32_t parent, int signal) {
  if (prctl(PR_SET_PDEATHSIG, signal) != 0) fail_errno("prctl(PR_SET_PDEATHSIG)", "success", errno);
  if (getppid() != parent) {
    throw Error({"start-up", base::format("parent process {}", parent), base::format("process {}", getppid()),
                 "the process that started this one has died"});
  }
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) fail_errno("the limit of open files", "a number", errno);
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) fail_errno("the limit of open files", "to raise it", errno);
}

int64_t monotonic_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace cohort::base
