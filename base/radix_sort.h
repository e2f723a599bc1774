// A pass of a radix sort, by all threads.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace cohort::base {

// Writes a line of a cache without reading it first, and past the caches: nobody reads it soon.
inline void stream_line(void* to, const void* from) noexcept {
#ifdef __x86_64__
  auto* const words = static_cast<long long*>(to);
  for (int i = 0; i < 8; ++i) {
    long long word;
    std::memcpy(&word, static_cast<const std::byte*>(from) + 8 * i, sizeof word);
    _mm_stream_si64(words + i, word);
  }
#else
  std::memcpy(to, from, 64);
#endif
}

// Before other threads read what was streamed.
inline void end_streaming() noexcept {
#ifdef __x86_64__
  _mm_sfence();
#endif
}

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
    // The last keys of each digit wait until they fill a line of `out`.
    constexpr std::size_t kLine = 64 / sizeof(Key);
    const auto lines = std::make_unique_for_overwrite<std::array<std::array<Key, kLine>, kDigits>>();
    Counts next = begins[i];
    const auto write = [&](std::size_t digit, std::size_t end) {
      const std::size_t first = std::max(begins[i][digit], (end - 1) / kLine * kLine);
      const auto& line = (*lines)[digit];
      if (end - first == kLine) return stream_line(&out[first], line.data());
      for (std::size_t k = first; k < end; ++k) out[k] = line[k % kLine];  // others have the rest of the line
    };
    for (const Key key : piece(i)) {
      const std::size_t digit = digit_of(key), at = next[digit]++;
      (*lines)[digit][at % kLine] = key;
      if ((at + 1) % kLine == 0) write(digit, at + 1);
    }
    for (std::size_t digit = 0; digit < kDigits; ++digit) {
      if (next[digit] % kLine != 0) write(digit, next[digit]);
    }
    end_streaming();
  }
}

}  // namespace cohort::base
