// What profilers show beside kernels: ranges by NVTX, for example in Nsight Systems.
#pragma once

#include <cstdint>

namespace cohort::base {

// A range of the domain "cohort" from its construction to its end; the payload is the number of a batch. Next to
// nothing when no profiler listens, nothing in a build that found no NVTX headers.
class ProfilerRange {
 public:
  ProfilerRange(const char* name, uint64_t batch);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  uint64_t id_ = 0;
};

}  // namespace cohort::base
