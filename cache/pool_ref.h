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

// What is known of each place and node. Different threads may use different places and nodes at once; a node that is
// given several places is found at one of them.
struct PoolRef {
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr int kPieceOfPlaces = 256;  // that are looked at together

  uint32_t* place_of = nullptr;  // uint32 [num_nodes], or kNone; null: no row is found again
  uint32_t* node_of = nullptr;   // uint32 [num_places], or kNone
  uint32_t* used_by = nullptr;   // uint32 [num_places], the number of the last batch that named the place
  uint32_t num_places = 0;
  PoolBatch batch;

  // The node's place, which the batch names from now on; or kNone.
  COHORT_HOST_DEVICE uint32_t find(int64_t node) const {
    const uint32_t place = place_of ? place_of[node] : kNone;
    if (place != kNone) used_by[place] = batch.number;
    return place;
  }
  // Numbers are compared by their difference, so that they may wrap around.
  COHORT_HOST_DEVICE bool is_free(uint32_t place) const {
    return static_cast<int32_t>(used_by[place] - batch.oldest_in_use) < 0;
  }
  COHORT_HOST_DEVICE void give(uint32_t place, int64_t node) const {
    used_by[place] = batch.number;
    if (!place_of) return;
    const uint32_t before = node_of[place];
    if (before != kNone && place_of[before] == place) place_of[before] = kNone;
    node_of[place] = static_cast<uint32_t>(node);
    place_of[node] = place;
  }
};

}  // namespace cohort::cache
