#include "base/random_many.h"

#include <algorithm>

#ifdef __x86_64__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 12's own header
#include <immintrin.h>
#endif

namespace cohort::base {
namespace {

constexpr std::size_t kWords = 4;  // of a counter

}  // namespace

#ifdef __x86_64__
namespace {

// Words of Philox are in the low halves of lanes of 64 bits; the high halves hold anything. Two vectors take turns, as
// a product takes several cycles.
template <typename Out>  // uint64_t: words 0 and 1 of each; uint32_t: all four
__attribute__((target("avx2"))) void by_avx2(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count,
                                             Out* out) {
  constexpr std::size_t kLanes = 4, kVectors = 2;
  const __m256i multiplier0 = _mm256_set1_epi64x(kPhiloxMultiplier0);
  const __m256i multiplier1 = _mm256_set1_epi64x(kPhiloxMultiplier1);
  for (std::size_t first = 0; first < count; first += kVectors * kLanes) {
    __m256i word0[kVectors], word1[kVectors], word2[kVectors], word3[kVectors];
    for (std::size_t i = 0; i < kVectors; ++i) {
      word0[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + first + i * kLanes));
      word1[i] = _mm256_srli_epi64(word0[i], 32);
      word2[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + first + i * kLanes));
      word3[i] = _mm256_srli_epi64(word2[i], 32);
    }
    PhiloxKey of_round = key;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m256i key0 = _mm256_set1_epi64x(of_round.word[0]), key1 = _mm256_set1_epi64x(of_round.word[1]);
      for (std::size_t i = 0; i < kVectors; ++i) {
        const __m256i product0 = _mm256_mul_epu32(word0[i], multiplier0);
        const __m256i product1 = _mm256_mul_epu32(word2[i], multiplier1);
        word0[i] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), word1[i]), key0);
        word1[i] = product1;
        word2[i] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), word3[i]), key1);
        word3[i] = product0;
      }
      of_round = key_of_next_round(of_round);
    }
    for (std::size_t i = 0; i < kVectors; ++i) {
      const __m256i number = _mm256_blend_epi32(word0[i], _mm256_slli_epi64(word1[i], 32), 0xAA);
      const std::size_t at = first + i * kLanes;
      if constexpr (sizeof(Out) == sizeof(uint64_t)) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), number);
      } else {
        const __m256i rest = _mm256_blend_epi32(word2[i], _mm256_slli_epi64(word3[i], 32), 0xAA);
        const __m256i even = _mm256_unpacklo_epi64(number, rest), odd = _mm256_unpackhi_epi64(number, rest);
        auto* to = reinterpret_cast<__m256i*>(out + kWords * at);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(even, odd, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(even, odd, 0x31));
      }
    }
  }
}

template <typename Out>
__attribute__((target("avx512f"))) void by_avx512(PhiloxKey key, const uint64_t* a, const uint64_t* b,
                                                  std::size_t count, Out* out) {
  constexpr std::size_t kLanes = 8, kVectors = 2;
  constexpr int kOddOnes = 0x96;  // exclusive or of three
  const __m512i multiplier0 = _mm512_set1_epi64(kPhiloxMultiplier0);
  const __m512i multiplier1 = _mm512_set1_epi64(kPhiloxMultiplier1);
  // lanes of two vectors in turn: 8 and more are of the second one
  const __m512i lower = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                upper = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (std::size_t first = 0; first < count; first += kVectors * kLanes) {
    __m512i word0[kVectors], word1[kVectors], word2[kVectors], word3[kVectors];
    for (std::size_t i = 0; i < kVectors; ++i) {
      word0[i] = _mm512_loadu_si512(a + first + i * kLanes);
      word1[i] = _mm512_srli_epi64(word0[i], 32);
      word2[i] = _mm512_loadu_si512(b + first + i * kLanes);
      word3[i] = _mm512_srli_epi64(word2[i], 32);
    }
    PhiloxKey of_round = key;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const __m512i key0 = _mm512_set1_epi64(of_round.word[0]), key1 = _mm512_set1_epi64(of_round.word[1]);
      for (std::size_t i = 0; i < kVectors; ++i) {
        const __m512i product0 = _mm512_mul_epu32(word0[i], multiplier0);
        const __m512i product1 = _mm512_mul_epu32(word2[i], multiplier1);
        word0[i] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), word1[i], key0, kOddOnes);
        word1[i] = product1;
        word2[i] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), word3[i], key1, kOddOnes);
        word3[i] = product0;
      }
      of_round = key_of_next_round(of_round);
    }
    for (std::size_t i = 0; i < kVectors; ++i) {
      const __m512i number = _mm512_mask_blend_epi32(0xAAAA, word0[i], _mm512_slli_epi64(word1[i], 32));
      const std::size_t at = first + i * kLanes;
      if constexpr (sizeof(Out) == sizeof(uint64_t)) {
        _mm512_storeu_si512(out + at, number);
      } else {
        const __m512i rest = _mm512_mask_blend_epi32(0xAAAA, word2[i], _mm512_slli_epi64(word3[i], 32));
        _mm512_storeu_si512(out + kWords * at, _mm512_permutex2var_epi64(number, lower, rest));
        _mm512_storeu_si512(out + kWords * (at + kLanes / 2), _mm512_permutex2var_epi64(number, upper, rest));
      }
    }
  }
}

}  // namespace
#endif

namespace {

template <typename Out>
void by_one(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count, Out* out) {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (sizeof(Out) == sizeof(uint64_t)) {
      out[i] = random_64(key, a[i], b[i]);
    } else {
      const PhiloxCounter words = philox(counter_of(a[i], b[i]), key);
      std::copy(words.word, words.word + kWords, out + kWords * i);
    }
  }
}

}  // namespace

std::span<const RandomMany> ways_of_random_many() {
#ifdef __x86_64__
  static const RandomMany ways[] = {{by_avx512, by_avx512}, {by_avx2, by_avx2}, {by_one, by_one}};
  const std::size_t first = __builtin_cpu_supports("avx512f") ? 0 : __builtin_cpu_supports("avx2") ? 1 : 2;
  return std::span(ways).subspan(first);
#else
  static const RandomMany one{by_one, by_one};
  return {&one, 1};
#endif
}

void random_many(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count, uint64_t* out) {
  static const RandomMany fastest = ways_of_random_many().front();
  fastest.numbers(key, a, b, count, out);
}

void random_words(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count, uint32_t* out) {
  static const RandomMany fastest = ways_of_random_many().front();
  fastest.words(key, a, b, count, out);
}

}  // namespace cohort::base
