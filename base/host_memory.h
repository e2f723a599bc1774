// How much host memory there is to be had.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace cohort::base {

// Bytes of host memory that can be allocated now: MemAvailable, or what the control groups of a container or job leave
// where that is less. COHORT_HOST_MEMORY_BYTES stands for both (where memory grows on use).
int64_t available_host_bytes();

// Bytes that the control groups of a process, and all above them, let it allocate: their limits less what is in use;
// pages of files count as free, as in MemAvailable, since the kernel drops them first. INT64_MAX where none has a
// limit.
//   groups: the process's /proc/PID/cgroup
//   mounted: where the hierarchies are mounted, version 1 or 2
int64_t control_group_bytes(std::string_view groups, const std::filesystem::path& mounted = "/sys/fs/cgroup");

// Has malloc() keep what is freed, for the next batch, whose arrays are as large. It would give it back to the kernel,
// which would then have to make each page zero once more: a fifth of a step's time on a CPU. Does nothing where
// malloc() is not glibc's. What the user has set (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_) wins.
void keep_freed_memory();

}  // namespace cohort::base
