#include "dataset/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cohort::dataset {
namespace {

// The value of a finite float16, from its definition.
float value_of_float16(uint32_t bits) {
  const auto exponent = static_cast<int>((bits >> 10) & 0x1Fu), significand = static_cast<int>(bits & 0x3FFu);
  const int scaled = exponent == 0 ? significand : 1024 + significand;
  const float magnitude = std::ldexp(static_cast<float>(scaled), (exponent == 0 ? 1 : exponent) - 25);
  return (bits & 0x8000u) != 0 ? -magnitude : magnitude;
}

TEST(DType, NamesAndDescrsLeadBack) {
  for (const DType dtype :
       {DType::uint8, DType::float16, DType::bfloat16, DType::float32, DType::int32, DType::int64}) {
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
    EXPECT_EQ(dtype_of_descr(descr_of(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_named("float64"));
  EXPECT_FALSE(dtype_of_descr(">f4"));
  EXPECT_EQ(size_of(DType::bfloat16), 2u);
}

TEST(Float16, EveryFiniteValueIsItself) {
  for (uint32_t bits = 0; bits <= 0xFFFFu; ++bits) {
    if ((bits & 0x7C00u) == 0x7C00u) continue;
    ASSERT_EQ(float16_bits(value_of_float16(bits)), bits);
  }
}

TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7BFFu; ++bits) {
    const float middle = 0.5f * (value_of_float16(bits) + value_of_float16(bits + 1));
    ASSERT_EQ(float16_bits(middle), bits + (bits & 1u));
    ASSERT_EQ(float16_bits(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(float16_bits(std::nextafter(middle, 1e9f)), bits + 1);
  }
}

TEST(Float16, EndsOfTheRange) {
  EXPECT_EQ(float16_bits(65519.0f), 0x7BFFu);
  EXPECT_EQ(float16_bits(65520.0f), 0x7C00u);
  EXPECT_EQ(float16_bits(-std::numeric_limits<float>::infinity()), 0xFC00u);
  EXPECT_GT(float16_bits(std::nanf("")) & 0x7FFFu, 0x7C00u);
  EXPECT_EQ(float16_bits(-0.0f), 0x8000u);
}

TEST(BFloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(bfloat16_bits(1.0f), 0x3F80u);
  EXPECT_EQ(bfloat16_bits(1.0f + 0x1p-8f), 0x3F80u);      // a tie: down to even
  EXPECT_EQ(bfloat16_bits(1.0f + 3 * 0x1p-8f), 0x3F82u);  // a tie: up to even
  EXPECT_EQ(bfloat16_bits(1.0f + 0x1p-8f + 0x1p-20f), 0x3F81u);
  EXPECT_EQ(bfloat16_bits(std::numeric_limits<float>::max()), 0x7F80u);
  EXPECT_GT(bfloat16_bits(std::nanf("")) & 0x7FFFu, 0x7F80u);
}

}  // namespace
}  // namespace cohort::dataset
