// What loops over rows on the host have in common.
#pragma once

#include <cstdint>

namespace cohort::trainer {

inline constexpr int kRowsAtOnce = 64;         // that a thread takes
inline constexpr int64_t kFewElements = 4096;  // not worth waking threads for
inline constexpr int64_t kEdgesAhead = 6;      // whose rows come from memory while those before are added

// Asks for a row of `dim` elements that is needed soon.
template <typename T>
void fetch_row(const T* row, int64_t dim) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t c = 0; c < dim; c += kLine) __builtin_prefetch(row + c);
}

}  // namespace cohort::trainer
