// What a pool of rows (row_pool.h) knows of its rows, and the rules by which they are assigned.
//
// Batches are numbered in their order. Each row has the number of the last batch that named it, and is assigned
// only when neither this batch nor one before it is in use.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace cohort::cache {

// A batch on its way into the pool.
struct PoolBatch {
  uint32_t number = 0;         // modulo 2^32
  uint32_t oldest_in_use = 0;  // the number of the oldest batch whose rows must stay
};

// What is known of each row and node. Threads may find any nodes at once; then they may give different rows to
// different nodes at once.
struct PoolRef {
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kPending = kNone - 1;  // the batch is bringing the node's row
  static constexpr int kPieceOfRows = 256;         // that are looked at together

  uint32_t* row_of = nullptr;   // uint32 [num_nodes], kNone, or kPending
  uint32_t* node_of = nullptr;  // uint32 [num_rows], or kNone
  uint32_t* used_by = nullptr;  // uint32 [num_rows], the number of the last batch that named the row
  uint32_t num_rows = 0;
  bool reuse = true;  // rows of batches before are found again
  PoolBatch batch{};

  // The node's row, which the batch names from now on. kNone, once for each node of the batch: its row is missing and
  // to be given a row; kPending: the same node was found missing before.
  COHORT_HOST_DEVICE uint32_t find(int64_t node) const {
    const uint32_t row = row_of[node];
    if (row == kPending) return kPending;
    if (row == kNone || !reuse) return claim(row_of + node, row) ? kNone : kPending;
    used_by[row] = batch.number;
    return row;
  }
  // Numbers are compared by their difference, so that they may wrap around.
  COHORT_HOST_DEVICE bool is_free(uint32_t row) const {
    return static_cast<int32_t>(used_by[row] - batch.oldest_in_use) < 0;
  }
  COHORT_HOST_DEVICE void give(uint32_t row, int64_t node) const {
    used_by[row] = batch.number;
    const uint32_t before = node_of[row];
    if (before != kNone && row_of[before] == row) row_of[before] = kNone;
    node_of[row] = static_cast<uint32_t>(node);
    row_of[node] = row;
  }

 private:
  // True for one of the threads that see `expected` there.
  COHORT_HOST_DEVICE static bool claim(uint32_t* row, uint32_t expected) {
#ifdef __CUDA_ARCH__
    return atomicCAS(row, expected, kPending) == expected;
#else
    const bool is_first = *row == expected;
    if (is_first) *row = kPending;
    return is_first;
#endif
  }
};

}  // namespace cohort::cache
