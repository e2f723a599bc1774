#include <algorithm>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/copy_arrays.h"

namespace cohort::trainer {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;

constexpr std::size_t kCopiesALaunch = 20;  // edges, nodes, labels, and the offsets of as many hops as there can be
constexpr int kMaxCopyBlocks = 1024;        // of each array

struct Copies {
  ArrayCopy copy[kCopiesALaunch];
};

// One row of blocks for each array.
__global__ void copy_arrays_kernel(const __grid_constant__ Copies copies) {
  const ArrayCopy& copy = copies.copy[blockIdx.y];
  for (int64_t i = grid_first(); i < copy.room; i += grid_step()) {
    copy.to[i] = i < copy.count ? copy.from[i] : copy.fill;
  }
}

}  // namespace

void run_on_gpu(const ArrayCopies& copies, cudaStream_t stream) {
  for (std::size_t first = 0; first < copies.size(); first += kCopiesALaunch) {
    const std::size_t count = std::min(kCopiesALaunch, copies.size() - first);
    Copies some{};
    std::copy_n(copies.begin() + static_cast<std::ptrdiff_t>(first), count, some.copy);
    int64_t most = 0;
    for (const ArrayCopy& copy : some.copy) most = std::max(most, copy.room);
    const dim3 grid(static_cast<unsigned>(base::grid_for(most, kMaxCopyBlocks)), static_cast<unsigned>(count));
    copy_arrays_kernel<<<grid, base::kBlockThreads, 0, stream>>>(some);
    cuda_check(cudaGetLastError(), "launch the copying of arrays");
  }
}

}  // namespace cohort::trainer
