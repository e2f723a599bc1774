// Rows of a table in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataset/parallel.h"

namespace cohort::dataset {

// out[i] = rows[ids[i]], for rows of row_bytes bytes.
inline void take_rows(const std::byte* rows, std::size_t row_bytes, std::span<const int64_t> ids, std::byte* out) {
  constexpr int64_t kRowsAtOnce = 4096;
  const auto copy = [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      std::memcpy(out + i * row_bytes, rows + static_cast<std::size_t>(ids[i]) * row_bytes, row_bytes);
    }
  };
  for_chunks(static_cast<int64_t>(ids.size()), {}, copy, kRowsAtOnce);
}

}  // namespace cohort::dataset
