// Tables that the host and a GPU have written.
#pragma once

#include <gtest/gtest.h>

#include "tests/ibp/rows.h"

namespace cohort::ibp {

// The same rows at the same places at home, and raw ones away from home in both.
inline void expect_same(const EncodedRows& host, const EncodedRows& gpu, uint64_t overflow_begin) {
  ASSERT_EQ(decoded(host), decoded(gpu));
  for (int64_t row = 0; row < host.ref.num_rows; ++row) {
    const uint64_t a = host.ref.entries[row], b = gpu.ref.entries[row];
    ASSERT_EQ(entry_raw(a), entry_raw(b)) << row;
    ASSERT_EQ(entry_bytes(a), entry_bytes(b)) << row;
    const bool at_home = entry_offset_bytes(a) < overflow_begin;
    ASSERT_EQ(at_home, entry_offset_bytes(b) < overflow_begin) << row;
    if (!at_home) continue;
    ASSERT_EQ(a, b) << row;
    ASSERT_EQ(std::memcmp(locate(host.ref, row).begin, locate(gpu.ref, row).begin, entry_bytes(a)), 0) << row;
  }
}

}  // namespace cohort::ibp
