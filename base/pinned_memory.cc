#include "base/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace cohort::base {

void release_pages(std::byte* data, std::size_t bytes) {
  if (bytes && madvise(data, bytes, MADV_DONTNEED) != 0) {
    fail_errno("host memory", format_bytes(static_cast<double>(bytes)) + " given back", errno);
  }
}

cudaError_t touch_and_lock(PinnedRange touch, PinnedRange lock) {
  constexpr std::size_t kPageBytes = 4096, kSliceBytes = std::size_t{2} << 20;
  const std::size_t num_slices = (touch.bytes + kSliceBytes - 1) / kSliceBytes;
  cudaError_t status = cudaSuccess;
#pragma omp parallel if (num_slices > 1)
  {
#pragma omp master
    if (lock.bytes) status = cudaHostRegister(lock.data, lock.bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
#pragma omp for schedule(dynamic)
    for (std::size_t slice = 0; slice < num_slices; ++slice) {
      const std::size_t end = std::min((slice + 1) * kSliceBytes, touch.bytes);
      for (std::size_t at = slice * kSliceBytes; at < end; at += kPageBytes) touch.data[at] = std::byte{0};
    }
  }
  return status;
}

void check_locked(cudaError_t status, std::size_t bytes) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) cuda_check(status, "pin host memory");
  throw Error({"pinning host memory", format_bytes(static_cast<double>(bytes)),
               fmt::format("CUDA error {}", cudaGetErrorName(status)),
               "raise the limit on locked memory (ulimit -l unlimited) or free host memory"});
}

}  // namespace cohort::base
