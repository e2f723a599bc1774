#include "base/random.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random_many.h"

namespace cohort::base {
namespace {

// Known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  const PhiloxCounter zero = philox({{0, 0, 0, 0}}, {{0, 0}});
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  constexpr uint32_t kOnes = 0xffffffffu;
  const PhiloxCounter ones = philox({{kOnes, kOnes, kOnes, kOnes}}, {{kOnes, kOnes}});
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[1], 0x41c83b0eu);
  EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
}

TEST(MultiplyHigh, AgreesWithWideArithmetic) {
  const uint64_t values[] = {0, 1, 0xFFFFFFFFull, 0x100000000ull, 0x123456789ABCDEFull, ~0ull};
  for (uint64_t a : values) {
    for (uint64_t b : values) {
      EXPECT_EQ(multiply_high_64(a, b), static_cast<uint64_t>((static_cast<__uint128_t>(a) * b) >> 64));
    }
  }
}

TEST(RandomMany, IsTheSameOneByOne) {
  constexpr std::size_t kCount = 5 * kRandomAtOnce;
  std::vector<uint64_t> a, b, out(kCount), expected;
  std::vector<uint32_t> words(4 * kCount), expected_words;
  const PhiloxKey key = key_of(0x123456789ABCDEFull);
  for (uint64_t i = 0; i < kCount; ++i) {
    a.push_back(random_64(key_of(1), i, 0));
    b.push_back(random_64(key_of(1), i, 1));
    expected.push_back(random_64(key, a.back(), b.back()));
    for (const uint32_t word : philox(counter_of(a.back(), b.back()), key).word) expected_words.push_back(word);
  }
  for (const RandomMany& way : ways_of_random_many()) {
    out.assign(kCount, 0), words.assign(4 * kCount, 0);
    way.numbers(key, a.data(), b.data(), kCount, out.data());
    way.words(key, a.data(), b.data(), kCount, words.data());
    EXPECT_EQ(out, expected);
    EXPECT_EQ(words, expected_words);
  }
}

}  // namespace
}  // namespace cohort::base
