// Many random numbers at once, by the vector instructions that the processor has: the bits of base/random.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.h"

namespace cohort::base {

inline constexpr std::size_t kRandomAtOnce = 16;

// out[i] = random_64(key, a[i], b[i]) for i < count, a multiple of kRandomAtOnce. a, b, out: uint64 [count].
void random_many(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count, uint64_t* out);

// The counter of two 64-bit coordinates.
constexpr PhiloxCounter counter_of(uint64_t a, uint64_t b) {
  return {{static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), static_cast<uint32_t>(b),
           static_cast<uint32_t>(b >> 32)}};
}

// All four words: out[4 i + k] = philox(counter_of(a[i], b[i]), key).word[k]. out: uint32 [4 count].
void random_words(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count, uint32_t* out);

// The ways to do either that this processor has, for tests; the first is the fastest.
struct RandomMany {
  void (*numbers)(PhiloxKey, const uint64_t*, const uint64_t*, std::size_t, uint64_t*);
  void (*words)(PhiloxKey, const uint64_t*, const uint64_t*, std::size_t, uint32_t*);
};
std::span<const RandomMany> ways_of_random_many();

}  // namespace cohort::base
