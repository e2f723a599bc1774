#include "dataset/sorting/radix_sort.h"

#include <omp.h>

#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "base/check.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int kDigitBits = 8;
constexpr std::size_t kBuckets = std::size_t{1} << kDigitBits;

using Counts = std::array<std::size_t, kBuckets>;

// One digit of all keys; threads have a piece of the keys each, in their order, so that equal digits stay in order.
template <typename Key>
class DigitPass {
 public:
  DigitPass(std::span<const Key> in, int shift)
      : in_(in), shift_(shift), starts_(static_cast<std::size_t>(omp_get_max_threads())) {}

  void move_to(std::span<Key> out) {
    const auto pieces = static_cast<int64_t>(starts_.size());
#pragma omp parallel for schedule(static)
    for (int64_t piece = 0; piece < pieces; ++piece) count(static_cast<std::size_t>(piece));
    std::size_t start = 0;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      for (Counts& counts : starts_) start += std::exchange(counts[bucket], start);
    }
#pragma omp parallel for schedule(static)
    for (int64_t piece = 0; piece < pieces; ++piece) scatter(static_cast<std::size_t>(piece), out);
  }

 private:
  std::span<const Key> piece_of(std::size_t piece) const {
    const std::size_t first = in_.size() * piece / starts_.size(), last = in_.size() * (piece + 1) / starts_.size();
    return in_.subspan(first, last - first);
  }
  std::size_t digit(Key key) const { return static_cast<std::size_t>(key >> shift_) & (kBuckets - 1); }
  void count(std::size_t piece) {
    Counts counts{};
    for (const Key key : piece_of(piece)) ++counts[digit(key)];
    starts_[piece] = counts;
  }
  void scatter(std::size_t piece, std::span<Key> out) {
    Counts next = starts_[piece];
    for (const Key key : piece_of(piece)) out[next[digit(key)]++] = key;
  }

  std::span<const Key> in_;
  int shift_;
  std::vector<Counts> starts_;  // of each piece: keys of each digit, then where they go
};

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
    DigitPass<Key>(keys, shift).move_to(scratch);
    std::swap(keys, scratch);
    bits &= ~((static_cast<Key>(kBuckets) - 1) << shift);
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
