// Arrays of GPU memory, for tests to look at.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cuda_check.h"
#include "base/owners.h"

namespace cohort::base {

// What lies in memory that the GPU reads.
template <typename T>
std::vector<T> download(const T* from, std::integral auto count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  if (count > 0) cuda_check(cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDefault));
  return values;
}
template <typename T>
std::vector<T> download(const DeviceArray<T>& array) {
  return download(array.data(), array.size());
}
inline std::vector<std::byte> download(const DeviceBytes& memory) { return download(memory.data(), memory.bytes()); }

// Elements in which every bit is set.
template <typename T>
DeviceArray<T> poisoned(int64_t size) {
  DeviceArray<T> array(static_cast<std::size_t>(size));
  if (size > 0) fill_gpu(array.data(), 0xFF, array.size() * sizeof(T));
  return array;
}

}  // namespace cohort::base
