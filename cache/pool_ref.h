// What a pool of rows (row_pool.h) knows of its places, and the rules by which they are given away.
//
// Batches are numbered in their order. Each place has the number of the last batch that named it, and is given away
// only when neither this batch nor one before it is in use.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace cohort::cache {

// A batch on its way into the pool.
struct PoolBatch {
  uint32_t number = 0;         // modulo 2^32
  uint32_t oldest_in_use = 0;  // the number of the oldest batch whose places must stay
};

// What is known of each place and node. Threads may find any nodes at once; then they may give different places to
// different nodes at once.
struct PoolRef {
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr uint32_t kPending = kNone - 1;  // the batch is bringing the node's row
  static constexpr int kPieceOfPlaces = 256;       // that are looked at together

  uint32_t* place_of = nullptr;  // uint32 [num_nodes], kNone, or kPending
  uint32_t* node_of = nullptr;   // uint32 [num_places], or kNone
  uint32_t* used_by = nullptr;   // uint32 [num_places], the number of the last batch that named the place
  uint32_t num_places = 0;
  bool reuse = true;  // rows of batches before are found again
  PoolBatch batch{};

  // The node's place, which the batch names from now on. kNone, once for each node of the batch: its row is missing and
  // to be given a place; kPending: the same node was found missing before.
  COHORT_HOST_DEVICE uint32_t find(int64_t node) const {
    const uint32_t place = place_of[node];
    if (place == kPending) return kPending;
    if (place == kNone || !reuse) return claim(place_of + node, place) ? kNone : kPending;
    used_by[place] = batch.number;
    return place;
  }
  // Numbers are compared by their difference, so that they may wrap around.
  COHORT_HOST_DEVICE bool is_free(uint32_t place) const {
    return static_cast<int32_t>(used_by[place] - batch.oldest_in_use) < 0;
  }
  COHORT_HOST_DEVICE void give(uint32_t place, int64_t node) const {
    used_by[place] = batch.number;
    const uint32_t before = node_of[place];
    if (before != kNone && place_of[before] == place) place_of[before] = kNone;
    node_of[place] = static_cast<uint32_t>(node);
    place_of[node] = place;
  }

 private:
  // True for one of the threads that see `expected` there.
  COHORT_HOST_DEVICE static bool claim(uint32_t* place, uint32_t expected) {
#ifdef __CUDA_ARCH__
    return atomicCAS(place, expected, kPending) == expected;
#else
    const bool is_first = *place == expected;
    if (is_first) *place = kPending;
    return is_first;
#endif
  }
};

}  // namespace cohort::cache
