// Weights of edges made ready for draws, and draws by them on the host.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/csc_ref.h"
#include "base/prefetch.h"
#include "base/uninitialized_vector.h"
#include "sampler/weighted_draw.h"

namespace cohort::sampler {

// What DrawWeightsRef refers to, in host memory.
class DrawWeights {
 public:
  // Memory that the lists' take.
  static int64_t bytes_of(const base::CscRef& lists);
  // weights: float32 [E], in the order of the lists; `place` is what holds them. Throws Error for a weight that is
  // negative or not finite, and when the host's memory is too small. top: for draws from the top.
  DrawWeights(const base::CscRef& lists, const float* weights, const std::string& place, bool top = false);
  // Of what was hashed before and of a part of the weights, for keys.
  uint64_t hash(uint64_t before) const;
  DrawWeightsRef ref() const { return {of_edges_.data(), positive_.empty() ? nullptr : positive_.data()}; }

 private:
  base::UninitializedVector<uint32_t> of_edges_;  // as in DrawWeightsRef
  base::UninitializedVector<uint32_t> positive_;  // none: draws are from the top
};

// What draws of this fanout read; nothing where `weights` is null.
inline DrawWeightsRef weights_for(const DrawWeights* weights, int64_t fanout) {
  return weights && fanout >= 0 ? weights->ref() : DrawWeightsRef{};
}

// Has what draws from the list of a later one of `nodes` read come into the cache meanwhile; its ends are there
// already.
inline void prefetch_units(const DrawWeightsRef& weights, const int64_t* indptr, const int64_t* nodes, std::size_t i,
                           std::size_t end) {
  constexpr std::size_t kAhead = base::kPrefetchAhead / 2;
  if (!weights.of_edges || i + kAhead >= end) return;
  const int64_t node = nodes[i + kAhead];
  if (weights.positive) __builtin_prefetch(weights.positive + node);
  __builtin_prefetch(weights.of_edges + indptr[node]);
  __builtin_prefetch(weights.of_edges + indptr[node] + 16);
}

// What is drawn from one list in one hop.
struct WeightedDraw {
  const DrawWeightsRef& weights;
  ListMass list;
  ExcludedRef excluded;
  int64_t drawable;  // as num_drawable() has it
  base::PhiloxKey key;
  int64_t node;
  int hop, relation;
};

// Units [begin, end) of a list that are taken.
struct TakenRange {
  uint32_t begin, end;
};

// The position that has the t-th unit (from 0) that is not taken. `taken` ascends.
int64_t position_of(const ListMass& list, uint32_t t, std::span<const TakenRange> taken);

// Writes the drawn positions, ascending, those from the top by weight. positions: int64 [picks]; picks <= drawable.
void draw_weighted(const WeightedDraw& draw, int64_t picks, int64_t* positions);

}  // namespace cohort::sampler
