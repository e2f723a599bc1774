// A random renaming of [0, count), computed per element: nothing is shuffled, so any thread may ask for any part.
#pragma once

#include <bit>
#include <cstdint>

#include "base/random.h"

namespace cohort::dataset {

// A Feistel network over the least even number of bits that covers `count`; results outside are sent through again
// (cycle walking), which keeps it a bijection of [0, count).
class Permutation {
 public:
  Permutation(int64_t count, base::PhiloxKey key)
      : count_(static_cast<uint64_t>(count)),
        half_bits_((static_cast<int>(std::bit_width(count_ > 1 ? count_ - 1 : 1)) + 1) / 2),
        mask_((uint64_t{1} << half_bits_) - 1),
        key_(key) {}

  int64_t operator()(int64_t i) const {
    auto value = static_cast<uint64_t>(i);
    do value = rounds(value);
    while (value >= count_);
    return static_cast<int64_t>(value);
  }

 private:
  uint64_t rounds(uint64_t value) const {
    constexpr uint64_t kRounds = 4;
    uint64_t left = value >> half_bits_, right = value & mask_;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (base::random_64(key_, right, round) & mask_);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  uint64_t count_;
  int half_bits_;
  uint64_t mask_;
  base::PhiloxKey key_;
};

}  // namespace cohort::dataset
