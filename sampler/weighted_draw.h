// The meaning of "draw neighbours by weight", for the host body and the CUDA body alike.
//
// The edges of a list share its mass, kListMass units, in proportion to their weights: position i has the units
// [cumulative[i - 1], cumulative[i]). A positive weight has at least one unit, and a weight of 0 has none. Draws are
// successive and without replacement, as those of torch.multinomial: for j = 0 .. picks-1 draw t in [0, units that are
// not taken); take the edge that has the t-th of these, with all its units. Excluded edges are taken from the start.
// Positions come out ascending. All is done in integers, so no result depends on threads, order or device.
//
// A fanout of k draws min(k, edges of positive weight), a negative one takes all edges whatever their weights.
//
// The top of a list, instead, is the k edges of greatest weight that are not excluded, of equal weights those that come
// first, in this order. A weight of 0 is then one like the others.
#pragma once

#include <cstdint>

#include "sampler/draw.h"

namespace cohort::sampler {

constexpr uint32_t kListMass = UINT32_MAX;

// The units of one list.
struct ListMass {
  const uint32_t* cumulative;  // uint32 [degree]
  int64_t degree;

  COHORT_HOST_DEVICE constexpr uint32_t begin(int64_t position) const {
    return position == 0 ? 0 : cumulative[position - 1];
  }
  COHORT_HOST_DEVICE constexpr uint32_t units(int64_t position) const { return cumulative[position] - begin(position); }
};

// Weights of the edges of one relation, as draws read them. By default edges have none: draws are uniform.
struct DrawWeightsRef {
  // uint32 [E]: units of each list up to and with the edge; of draws from the top, positions in the list by descending
  // weight. Null: uniform draws.
  const uint32_t* of_edges = nullptr;
  // uint32 [V], edges of the node's list that have a positive weight. Null: draws from the top, or uniform ones.
  const uint32_t* positive = nullptr;

  // ends: int64 [2], of the list, as indptr has them.
  COHORT_HOST_DEVICE constexpr ListMass of_list(const int64_t* ends) const {
    return {of_edges + ends[0], ends[1] - ends[0]};
  }
};

// How many of the excluded edges of a list have a positive weight.
COHORT_HOST_DEVICE constexpr int64_t num_weighted(const ListMass& list, const ExcludedRef& excluded) {
  int64_t count = 0;
  for (int64_t i = 0; i < excluded.count; ++i) count += list.units(excluded.positions[i]) > 0 ? 1 : 0;
  return count;
}

// How many edges of a node's list may be drawn. ends: as of_list() has them.
COHORT_HOST_DEVICE constexpr int64_t num_drawable(const DrawWeightsRef& weights, int64_t node, const int64_t* ends,
                                                  const ExcludedRef& excluded) {
  if (!weights.positive) return ends[1] - ends[0] - excluded.count;
  const int64_t positive = weights.positive[node];
  return excluded.count == 0 ? positive : positive - num_weighted(weights.of_list(ends), excluded);
}

// The position of pick j of draws from the top. by_weight: uint32 [degree], of the list.
COHORT_HOST_DEVICE constexpr int64_t draw_top(const uint32_t* by_weight, const ExcludedRef& excluded, int64_t j) {
  if (excluded.count == 0) return by_weight[j];
  int64_t rank = 0;
  for (int64_t left = j; excluded.has(by_weight[rank]) || left-- > 0;) ++rank;
  return by_weight[rank];
}

// Which of `left` units that are not taken pick j takes.
COHORT_HOST_DEVICE constexpr uint32_t draw_unit(uint64_t bits, uint32_t left) {
  return static_cast<uint32_t>(base::multiply_high_64(bits, left));
}

}  // namespace cohort::sampler
