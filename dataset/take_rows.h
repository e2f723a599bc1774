// Rows of a table in any order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataset/parallel.h"

namespace cohort::dataset {

// out[i] = rows[ids[i]], for rows of row_bytes bytes.
inline void take_rows(const std::byte* rows, std::size_t row_bytes, std::span<const int64_t> ids, std::byte* out) {
  constexpr std::size_t kBytesAtOnce = 256 << 10;  // fewer are not worth a second thread
  constexpr std::size_t kAhead = 4;                // rows whose memory is asked for before they are copied
  constexpr std::size_t kMostPrefetched = 1024;    // bytes of a row: processors see the rest coming
  const auto copy = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      if (i + kAhead < ids.size()) {
        const std::byte* next = rows + static_cast<std::size_t>(ids[i + kAhead]) * row_bytes;
        for (std::size_t byte = 0; byte < std::min(row_bytes, kMostPrefetched); byte += 64)
          __builtin_prefetch(next + byte);
      }
      std::memcpy(out + i * row_bytes, rows + static_cast<std::size_t>(ids[i]) * row_bytes, row_bytes);
    }
  };
  const std::size_t rows_at_once = std::max<std::size_t>(1, kBytesAtOnce / std::max<std::size_t>(1, row_bytes));
  for_chunks(static_cast<int64_t>(ids.size()), {}, copy, static_cast<int64_t>(rows_at_once));
}

}  // namespace cohort::dataset
