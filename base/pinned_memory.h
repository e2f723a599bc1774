// Touching and page-locking host memory: what PinnedBytes and PinnedReservation are made of. Internal to
// base/.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace cohort::base {

// Gives the pages of a mapped range back; the addresses stay.
void release_pages(std::byte* data, std::size_t bytes);

struct PinnedRange {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

// Makes the pages of `touch` exist, with all OpenMP threads, while the calling one page-locks `lock` for every GPU;
// either may be empty. What the locking returned.
cudaError_t touch_and_lock(PinnedRange touch, PinnedRange lock);

// Throws Error when locking `bytes` failed.
void check_locked(cudaError_t status, std::size_t bytes);

}  // namespace cohort::base
