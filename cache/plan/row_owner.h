// Rows that machines share out.
#pragma once

#include <cstdint>

namespace cohort::cache {

// The machine that keeps a row: blocks of rows are dealt out by a hash, so that hot rows that stand together in the
// data set are not all one machine's.
inline constexpr int64_t kRowsOfBlock = 64;
inline int owner_of(int64_t row, int num_machines) {
  uint64_t mixed = static_cast<uint64_t>(row / kRowsOfBlock) + 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return static_cast<int>((mixed >> 32) * static_cast<uint64_t>(num_machines) >> 32);
}

}  // namespace cohort::cache
