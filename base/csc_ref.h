// A graph as lists of in-neighbours, in anybody's memory.
#pragma once

#include <cstdint>

namespace cohort::base {

struct CscRef {
  int64_t num_nodes = 0;            // V
  int64_t num_edges = 0;            // E
  const int64_t* indptr = nullptr;  // int64 [V + 1]
  const void* indices = nullptr;    // int32 or int64 [E]
  int index_bytes = 4;              // 4 or 8

  int64_t index(int64_t position) const {
    return index_bytes == 4 ? static_cast<const int32_t*>(indices)[position]
                            : static_cast<const int64_t*>(indices)[position];
  }

  // Calls use(indices) with the type that they have.
  template <typename Use>
  auto with_indices(const Use& use) const {
    return index_bytes == 4 ? use(static_cast<const int32_t*>(indices)) : use(static_cast<const int64_t*>(indices));
  }
};

}  // namespace cohort::base
