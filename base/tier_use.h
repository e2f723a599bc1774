// What a batch read, by where it lay: the GPU's own memory, a peer's, host memory, the slots of batches before,
// a disk, the memory of another machine.
#pragma once

#include <array>
#include <cstdint>

namespace cohort::base {

inline constexpr int kNumTiers = 6;

// Feature rows.
struct TierUse {
  int64_t rows = 0;
  int64_t bytes = 0;  // as stored there (encoded)
  double us = 0;      // of the tier's reads; tiers may be read side by side
};
using TierUses = std::array<TierUse, kNumTiers>;

// Neighbour lists.
struct ListUse {
  int64_t lists = 0;  // that neighbours were drawn from
  int64_t bytes = 0;  // of the neighbours drawn, and of what says where the lists are
};
using ListUses = std::array<ListUse, kNumTiers>;

}  // namespace cohort::base
