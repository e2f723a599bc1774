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

// The ways to do it that this processor has, for tests; the first is the fastest.
using RandomMany = void (*)(PhiloxKey, const uint64_t*, const uint64_t*, std::size_t, uint64_t*);
std::span<const RandomMany> ways_of_random_many();

}  // namespace cohort::base
