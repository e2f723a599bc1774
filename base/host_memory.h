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

}  // namespace cohort::base
