#include "base/random_many.h"

#ifdef __x86_64__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 12's own header
#include <immintrin.h>
#endif

namespace cohort::base {
#ifdef __x86_64__
namespace {

// Words of Philox are in the low halves of lanes of 64 bits; the high halves hold anything. Two vectors take turns, as
// a product takes several cycles.
__attribute__((target("avx2"))) void by_avx2(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count,
                                             uint64_t* out) {
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
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + first + i * kLanes), number);
    }
  }
}

__attribute__((target("avx512f"))) void by_avx512(PhiloxKey key, const uint64_t* a, const uint64_t* b,
                                                  std::size_t count, uint64_t* out) {
  constexpr std::size_t kLanes = 8, kVectors = 2;
  constexpr int kOddOnes = 0x96;  // exclusive or of three
  const __m512i multiplier0 = _mm512_set1_epi64(kPhiloxMultiplier0);
  const __m512i multiplier1 = _mm512_set1_epi64(kPhiloxMultiplier1);
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
      _mm512_storeu_si512(out + first + i * kLanes, number);
    }
  }
}

}  // namespace
#endif

std::span<const RandomMany> ways_of_random_many() {
  static const RandomMany by_one = [](PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count,
                                      uint64_t* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = random_64(key, a[i], b[i]);
  };
#ifdef __x86_64__
  static const RandomMany ways[] = {&by_avx512, &by_avx2, by_one};
  const std::size_t first = __builtin_cpu_supports("avx512f") ? 0 : __builtin_cpu_supports("avx2") ? 1 : 2;
  return std::span(ways).subspan(first);
#else
  return {&by_one, 1};
#endif
}

void random_many(PhiloxKey key, const uint64_t* a, const uint64_t* b, std::size_t count, uint64_t* out) {
  static const RandomMany fastest = ways_of_random_many().front();
  fastest(key, a, b, count, out);
}

}  // namespace cohort::base
