// GPU memory that grows to the largest need seen and stays.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "base/cuda_check.h"
#include "base/owners.h"

namespace cohort::base {

template <typename T>
class Scratch {
 public:
  T* data() const noexcept { return array_.data(); }
  std::size_t size() const noexcept { return array_.size(); }  // what there is room for

  // Room for `size` elements; contents are lost when it grows.
  T* reserve(std::size_t size) {
    if (size > array_.size()) {
      array_ = DeviceArray<T>();
      array_ = DeviceArray<T>(size + size / 4, "allocate scratch memory");
    }
    return array_.data();
  }

  // Room for `size` elements, the first `keep` of which survive. (cudaFree waits for work that uses the old memory.)
  T* extend(std::size_t size, std::size_t keep, cudaStream_t stream) {
    if (size > array_.size()) {
      DeviceArray<T> larger(size + size / 4, "allocate scratch memory");
      if (keep > 0) {
        cuda_check(cudaMemcpyAsync(larger.data(), array_.data(), keep * sizeof(T), cudaMemcpyDeviceToDevice, stream),
                   "grow scratch memory");
      }
      array_ = std::move(larger);
    }
    return array_.data();
  }

 private:
  DeviceArray<T> array_;
};

}  // namespace cohort::base
