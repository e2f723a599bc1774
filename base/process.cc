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
#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/format.h"
#include "base/proc_file.h"

namespace cohort::base {
namespace {

struct Stat {
  char state = 0;  // 0: no such process
  uint64_t start_time = 0;
};

// Reads the `stat` of a process or thread; the name in parentheses may hold spaces, so parsing starts after the last
// ')'.
Stat read_stat(const std::filesystem::path& folder) {
  const std::string text = read_proc(folder / "stat");
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
  std::size_t at = name_end + 2;
  Stat stat{text[at], 0};
  for (int field = 3; field < 22 && at != std::string::npos; ++field) at = text.find(' ', at + 1);
  if (at != std::string::npos) stat.start_time = std::strtoull(text.c_str() + at, nullptr, 10);
  return stat;
}

std::filesystem::path folder_of(int32_t pid) { return base::format("/proc/{}", pid); }

// Of the process's first thread, which has its state and start: an emulator (qemu-user) makes up a process's own `stat`
// for this process, and others see another start.
Stat stat_of(int32_t pid) { return read_stat(base::format("/proc/{0}/task/{0}", pid)); }

bool is_over(const Stat& stat) { return stat.state == 'Z' || stat.state == 'X'; }

// Whether all threads of a process have ended. The kernel wakes who waits for that by a descriptor of the process; a
// sandbox (gVisor, a filter of system calls, Linux before 5.3) may refuse such descriptors: then the process table
// tells.
bool has_ended(int32_t pid) {
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (descriptor >= 0) {
    pollfd end{descriptor, POLLIN, 0};  // readable once all threads of the process have ended
    const bool ended = poll(&end, 1, 0) == 1;
    close(descriptor);
    return ended;
  }
  if (errno == ESRCH) return true;
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {  // which hide the process table, too
    fail_errno(base::format("pidfd_open of process {}", pid), "success", errno);
  }
  if (kill(pid, 0) != 0 && errno == ESRCH) return true;
  if (!is_over(stat_of(pid))) return false;
  std::error_code failed;  // the first thread has ended, others may run
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator thread(folder_of(pid) / "task", failed); !failed && thread != end;
       thread.increment(failed)) {
    const Stat stat = read_stat(thread->path());
    if (stat.state != 0 && !is_over(stat)) return false;
  }
  return true;
}

}  // namespace

ProcessId process_with_pid(int32_t pid) {
  const Stat stat = stat_of(pid);
  return stat.state == 0 ? ProcessId{} : ProcessId{pid, stat.start_time};
}

ProcessId current_process() { return process_with_pid(getpid()); }

bool is_alive(const ProcessId& process) {
  if (process.pid == 0 || has_ended(process.pid)) return false;
  const Stat stat = stat_of(process.pid);
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
