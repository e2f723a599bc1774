// Which entries of a list the host body draws.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sampler/draw.h"

namespace cohort::sampler {

// Writes the drawn positions of one list, ascending: int64 [picks].
inline void draw_positions(base::PhiloxKey key, int64_t node, int hop, int relation, int64_t picks, int64_t degree,
                           int64_t* positions) {
  if (picks == degree) {
    for (int64_t j = 0; j < degree; ++j) positions[j] = j;
    return;
  }
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t candidate = draw_candidate(key, node, hop, j, picks, degree, relation);
    const bool taken = std::find(positions, positions + j, candidate) != positions + j;
    positions[j] = taken ? degree - picks + j : candidate;
  }
  std::sort(positions, positions + picks);
}

}  // namespace cohort::sampler
