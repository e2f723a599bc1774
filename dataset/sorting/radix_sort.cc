#include "dataset/sorting/radix_sort.h"

#include <bit>
#include <utility>

#include "base/check.h"
#include "base/radix_sort.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int kDigitBits = 8;

// The bits in which keys differ.
template <typename Key>
Key differing_bits(std::span<const Key> keys) {
  Key bits = 0;
  const Key first = keys.front();
  const auto count = static_cast<int64_t>(keys.size());
#pragma omp parallel
  {
    Key own = 0;
#pragma omp for nowait
    for (int64_t i = 0; i < count; ++i) own |= keys[static_cast<std::size_t>(i)] ^ first;
#pragma omp critical
    bits |= own;
  }
  return bits;
}

int lowest_bit(uint64_t bits) { return std::countr_zero(bits); }
int lowest_bit(WideKey bits) {
  const auto low = static_cast<uint64_t>(bits);
  return low != 0 ? lowest_bit(low) : 64 + lowest_bit(static_cast<uint64_t>(bits >> 64));
}

template <typename Key>
std::span<Key> sort(std::span<Key> keys, std::span<Key> scratch, const std::stop_token& stop) {
  base::require(scratch.size() == keys.size(), "scratch of as many elements as there are keys");
  if (keys.empty()) return keys;
  for (Key bits = differing_bits<Key>(keys); bits != 0;) {
    if (stop.stop_requested()) throw Interrupted();
    const int shift = lowest_bit(bits);
    base::sort_by_digit<kDigitBits, Key>(keys, scratch, shift);
    std::swap(keys, scratch);
    bits &= ~(((Key{1} << kDigitBits) - 1) << shift);
  }
  return keys;
}

}  // namespace

std::span<uint64_t> sort_keys(std::span<uint64_t> keys, std::span<uint64_t> scratch, const std::stop_token& stop) {
  return sort(keys, scratch, stop);
}

std::span<WideKey> sort_keys(std::span<WideKey> keys, std::span<WideKey> scratch, const std::stop_token& stop) {
  return sort(keys, scratch, stop);
}

}  // namespace cohort::dataset
