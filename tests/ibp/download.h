// Arrays of GPU memory, for tests to look at.
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"

namespace cohort::ibp {

template <typename T>
std::vector<T> download(const T* at, std::size_t count) {
  std::vector<T> host(count);
  if (count > 0) base::cuda_check(cudaMemcpy(host.data(), at, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace cohort::ibp
