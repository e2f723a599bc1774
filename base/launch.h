// How kernels cover their work: a grid of at most a few blocks per SM, each thread striding over the rest.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace cohort::base {

constexpr int kBlockThreads = 256;

// Blocks of kBlockThreads for `work` items, at most `max_blocks`; at least one, so that an empty launch is valid.
inline int grid_for(int64_t work, int max_blocks) {
  return static_cast<int>(std::clamp<int64_t>((work + kBlockThreads - 1) / kBlockThreads, 1, max_blocks));
}

#ifdef __CUDACC__
// This thread's first item and the step to its next.
__device__ inline int64_t grid_first() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_step() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }
#endif

}  // namespace cohort::base
