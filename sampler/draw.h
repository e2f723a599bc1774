// The meaning of "draw neighbours", for the host body and the CUDA body alike.
//
// Of a node with d in-neighbours and fanout k: all d when k < 0 or d <= k, else k different positions of [0, d),
// uniform over the subsets, by Floyd's method (Bentley, Floyd: "A sample of brilliance", CACM 1987): for j = 0 .. k-1
// draw t in [0, d-k+j]; take t, or d-k+j when t is taken already. Positions come out ascending. The number behind pick
// j is Philox(batch key, node, hop, relation, j), so no result depends on threads, order or device.
//
// Where positions of a list are not to be drawn, d is the number of the others, and position i of those d is meant: the
// draw is uniform over the subsets of what may be drawn.
#pragma once

#include <cstdint>

#include "base/random.h"

namespace cohort::sampler {

// How many in-neighbours of a node of this degree are drawn.
COHORT_HOST_DEVICE constexpr int64_t num_picks(int64_t degree, int64_t fanout) {
  return fanout < 0 || degree <= fanout ? degree : fanout;
}

// The candidate position of pick j out of `picks` for a node of `degree` (Floyd's t).
COHORT_HOST_DEVICE constexpr int64_t draw_candidate(base::PhiloxKey batch_key, int64_t node, int hop, int64_t j,
                                                    int64_t picks, int64_t degree, int relation = 0) {
  const uint64_t which =
      (static_cast<uint64_t>(hop) << 48) | (static_cast<uint64_t>(relation) << 40) | static_cast<uint64_t>(j);
  return static_cast<int64_t>(
      base::random_below(static_cast<uint64_t>(degree - picks + j + 1), batch_key, static_cast<uint64_t>(node), which));
}

// An endpoint of a drawn pair of nodes: number `number` of its batch; end 0 is its source, 1 its target.
constexpr int64_t draw_endpoint(base::PhiloxKey batch_key, int64_t number, int end, uint32_t attempt,
                                int64_t num_nodes) {
  constexpr uint64_t kStream = uint64_t{1} << 63;  // apart from the draws of neighbours
  const uint64_t which = kStream | (static_cast<uint64_t>(attempt) << 1) | static_cast<uint64_t>(end);
  return static_cast<int64_t>(
      base::random_below(static_cast<uint64_t>(num_nodes), batch_key, static_cast<uint64_t>(number), which));
}

// The key of all draws of one batch.
constexpr base::PhiloxKey batch_key(uint64_t seed, uint64_t epoch, uint64_t step) {
  return base::derive_key(base::key_of(seed), epoch, step);
}

}  // namespace cohort::sampler
