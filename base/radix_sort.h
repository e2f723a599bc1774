// A pass of a radix sort, by all threads.
#pragma once

#include <omp.h>

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace cohort::base {

// Orders keys by the kDigitBits bits from `shift` on, equal ones in the order in which they come. Threads have a piece
// of the keys each; `out` has as many elements, and is the same for any number of threads.
template <int kDigitBits, typename Key>
void sort_by_digit(std::span<const Key> in, std::span<Key> out, int shift) {
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  using Counts = std::array<std::size_t, kDigits>;
  const auto digit_of = [shift](Key key) { return static_cast<std::size_t>(key >> shift) & (kDigits - 1); };
  std::vector<Counts> begins(static_cast<std::size_t>(omp_get_max_threads()));
  const auto piece = [&](std::size_t i) {
    const std::size_t first = in.size() * i / begins.size(), last = in.size() * (i + 1) / begins.size();
    return in.subspan(first, last - first);
  };
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < begins.size(); ++i) {
    Counts counts{};
    for (const Key key : piece(i)) ++counts[digit_of(key)];
    begins[i] = counts;
  }
  std::size_t begin = 0;
  for (std::size_t digit = 0; digit < kDigits; ++digit) {
    for (Counts& counts : begins) begin += std::exchange(counts[digit], begin);
  }
#pragma omp parallel for schedule(static)
  for (std::size_t i = 0; i < begins.size(); ++i) {
    Counts next = begins[i];
    for (const Key key : piece(i)) out[next[digit_of(key)]++] = key;
  }
}

}  // namespace cohort::base
