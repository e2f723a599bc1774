// Copying memory with all of OpenMP's threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace cohort::base {

inline void parallel_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kChunk = std::size_t{1} << 22;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t first = 0; first < bytes; first += kChunk) {
    std::memcpy(static_cast<std::byte*>(to) + first, static_cast<const std::byte*>(from) + first,
                std::min(kChunk, bytes - first));
  }
}

}  // namespace cohort::base
