// Page-locked host memory that grows to the largest need seen and stays.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/cuda_check.h"
#include "base/owners.h"

namespace cohort::base {

// What asynchronous copies to a GPU begin from. From pageable memory the driver usually copies before the call returns,
// but not where the GPU reads that memory itself (cudaDevAttrPageableMemoryAccess: Grace Hopper, or Linux with HMM):
// there the copy may read the memory when the stream comes to it, after its owner has changed or freed it.
class PinnedScratch {
 public:
  // `size` elements; contents are lost when it grows.
  template <typename T>
  std::span<T> reserve(std::size_t size) {
    if (size * sizeof(T) > bytes_.bytes()) {
      bytes_ = PinnedBytes();
      bytes_ = PinnedBytes((size + size / 4) * sizeof(T));
    }
    return {reinterpret_cast<T*>(bytes_.data()), size};
  }

  // to[0, size), in GPU memory, = values. The values may change as soon as this returns; this object must not be used
  // again before `stream` has made the copy.
  template <typename T>
  void copy_to(T* to, std::span<const T> values, cudaStream_t stream, const char* what) {
    const std::span<T> staged = reserve<T>(values.size());
    std::ranges::copy(values, staged.begin());
    cuda_check(cudaMemcpyAsync(to, staged.data(), staged.size_bytes(), cudaMemcpyHostToDevice, stream), what);
  }

 private:
  PinnedBytes bytes_;
};

}  // namespace cohort::base
