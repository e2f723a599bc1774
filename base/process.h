// Looking at other processes: who is alive, and since when.
#pragma once

#include <cstdint>

namespace cohort::base {

// A process named so that a reused pid is not mistaken for it.
struct ProcessId {
  int32_t pid = 0;          // 0: nobody
  uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat
};

// This process.
ProcessId current_process();

// The process that has this pid now; pid 0 when there is none.
ProcessId process_with_pid(int32_t pid);

// True while any thread of the process runs (a zombie does not run).
bool is_alive(const ProcessId& process);

// Asks the kernel to send this process `signal` when its parent dies, and ends the race with a parent that died before:
// throws Error if `parent` is not the parent any more. (Linux: the parent is the thread that started this process.)
void end_with_parent(int32_t parent, int signal);

// Lets this process have as many files and sockets open as the system permits, not only as many as is usual.
void raise_descriptor_limit();

// Monotonic clock in microseconds; the same clock in all processes of a machine.
int64_t monotonic_us();

// From when to when, as monotonic_us() has it.
struct Span {
  double begin_us = 0;
  double end_us = 0;
  double us() const { return end_us - begin_us; }
};

}  // namespace cohort::base
