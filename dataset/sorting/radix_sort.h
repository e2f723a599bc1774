// Sorting keys of 64 or 128 bits by all threads: a radix sort, least significant digit first.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>

namespace cohort::dataset {

using WideKey = unsigned __int128;

// Sorts `keys` in ascending order, the same for any number of threads. `scratch` has as many elements; which of the two
// holds the result is returned, the other is left with anything. Throws Interrupted when a stop was asked for.
std::span<uint64_t> sort_keys(std::span<uint64_t> keys, std::span<uint64_t> scratch, const std::stop_token& stop);
std::span<WideKey> sort_keys(std::span<WideKey> keys, std::span<WideKey> scratch, const std::stop_token& stop);

}  // namespace cohort::dataset
