// Counter-based random numbers: the same bits on host and device, for any thread count.
//
// Philox4x32-10 of Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace cohort::base {

struct PhiloxCounter {
  uint32_t word[4];
};

struct PhiloxKey {
  uint32_t word[2];
};

// The high 32 bits of a 64-bit product.
COHORT_HOST_DEVICE constexpr uint32_t multiply_high_32(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}

// floor(a * b / 2^64) from 32-bit halves, so that host compilers, nvcc and constant evaluation agree.
COHORT_HOST_DEVICE constexpr uint64_t multiply_high_64(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xFFFFFFFFu, a_high = a >> 32;
  const uint64_t b_low = b & 0xFFFFFFFFu, b_high = b >> 32;
  const uint64_t low = a_low * b_low;
  const uint64_t middle1 = a_high * b_low + (low >> 32);
  const uint64_t middle2 = a_low * b_high + (middle1 & 0xFFFFFFFFu);
  return a_high * b_high + (middle1 >> 32) + (middle2 >> 32);
}

inline constexpr int kPhiloxRounds = 10;
inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;

COHORT_HOST_DEVICE constexpr PhiloxKey key_of_next_round(PhiloxKey key) {
  return {{key.word[0] + 0x9E3779B9u, key.word[1] + 0xBB67AE85u}};
}

// Philox4x32: four random words for a counter under a key.
COHORT_HOST_DEVICE constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint32_t kMultiplier0 = kPhiloxMultiplier0, kMultiplier1 = kPhiloxMultiplier1;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint32_t high0 = multiply_high_32(kMultiplier0, counter.word[0]), low0 = kMultiplier0 * counter.word[0];
    const uint32_t high1 = multiply_high_32(kMultiplier1, counter.word[2]), low1 = kMultiplier1 * counter.word[2];
    counter = {{high1 ^ counter.word[1] ^ key.word[0], low1, high0 ^ counter.word[3] ^ key.word[1], low0}};
    key = key_of_next_round(key);
  }
  return counter;
}

COHORT_HOST_DEVICE constexpr PhiloxKey key_of(uint64_t seed) {
  return {{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}};
}

// 64 random bits for (key, a, b): a and b are any two 64-bit coordinates of the number wanted.
COHORT_HOST_DEVICE constexpr uint64_t random_64(PhiloxKey key, uint64_t a, uint64_t b) {
  const PhiloxCounter out = philox({{static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
                                     static_cast<uint32_t>(b >> 32)}},
                                   key);
  return (static_cast<uint64_t>(out.word[1]) << 32) | out.word[0];
}

// A uniform integer in [0, bound); bound >= 1. The bias is below bound / 2^64.
COHORT_HOST_DEVICE constexpr uint64_t random_below(uint64_t bound, PhiloxKey key, uint64_t a, uint64_t b) {
  return multiply_high_64(random_64(key, a, b), bound);
}

// A key derived from a key and two coordinates, for streams within streams.
COHORT_HOST_DEVICE constexpr PhiloxKey derive_key(PhiloxKey key, uint64_t a, uint64_t b) {
  return key_of(random_64(key, a, b));
}

}  // namespace cohort::base
