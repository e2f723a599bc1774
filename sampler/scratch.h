// GPU memory that grows to the largest batch seen and stays.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/check.h"
#include "base/owners.h"

namespace cohort::sampler {

template <typename T>
class Scratch {
 public:
  T* data() const noexcept { return array_.data(); }

  // Room for `size` elements; contents are lost when it grows.
  T* reserve(std::size_t size) {
    if (size > array_.size()) {
      array_ = base::DeviceArray<T>();
      array_ = base::DeviceArray<T>(size + size / 4, "allocate sampler scratch");
    }
    return array_.data();
  }

  // Room for `size` elements, the first `keep` of which survive. (cudaFree waits for work that uses the old memory.)
  T* extend(std::size_t size, std::size_t keep, cudaStream_t stream) {
    if (size > array_.size()) {
      base::DeviceArray<T> larger(size + size / 4, "allocate sampler scratch");
      if (keep > 0) {
        base::cuda_check(
            cudaMemcpyAsync(larger.data(), array_.data(), keep * sizeof(T), cudaMemcpyDeviceToDevice, stream),
            "grow sampler scratch");
      }
      array_ = std::move(larger);
    }
    return array_.data();
  }

 private:
  base::DeviceArray<T> array_;
};

}  // namespace cohort::sampler
