// Codec planes on the host: both planes are the rows, plane A alone is within its bound.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "base/random.h"
#include "ibp/bits.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

Profile planes_of(const RowTable& rows, uint32_t mantissa_bits) {
  return fit(rows, {.codec = "planes", .mantissa_bits = mantissa_bits}).profile;
}

uint32_t exponent_of(uint32_t bits) { return bits >> 23 & 0xff; }

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// What plane A alone may make of an element.
bool within_bound(uint32_t bits, uint32_t found, double bound) {
  const bool normal = exponent_of(bits) != 0 && exponent_of(bits) != 0xff;
  if (!normal) return found == bits;  // zeros, subnormals, infinities, NaNs
  if (bits >> 31 != found >> 31 || exponent_of(found) == 0xff) return false;
  const double value = float_of(bits);
  return std::abs(double{float_of(found)} - value) <= bound * std::abs(value);
}

void expect_planes(const Rows& rows, const Profile& profile) {
  const EncodedRows encoded = encode(rows.table, profile);
  ASSERT_EQ(decoded(encoded), rows.bytes);
  EXPECT_LE(encoded.stored_bytes(), bound(profile, rows.table.num_rows));
  const std::vector<std::byte> coarse = decoded(plane_a_of(encoded));
  for (std::size_t i = 0; i < rows.bytes.size(); i += 4) {
    const auto bits = load_as<uint32_t>(rows.bytes.data() + i), found = load_as<uint32_t>(coarse.data() + i);
    ASSERT_TRUE(within_bound(bits, found, profile.error_bound())) << std::hex << bits << " became " << found;
  }
}

TEST(Planes, BothAreTheRowsAndAIsWithinItsBound) {
  for (const Content content : kAllContents) {
    for (const uint32_t num_columns : {1u, 3u, 32u, 67u, 128u, 301u}) {
      const Rows rows = make_rows(content, Dtype::kFloat32, num_columns, 130);
      for (const uint32_t mantissa_bits : {0u, 1u, 3u, 7u, 15u, 22u}) {
        SCOPED_TRACE(std::to_string(num_columns) + " columns, " + std::to_string(mantissa_bits) + " mantissa bits");
        expect_planes(rows, planes_of(rows.table, mantissa_bits));
      }
    }
  }
}

// Every sign and exponent, with the least, the largest, the middle and random mantissas.
TEST(Planes, EveryExponentIsWithinTheBound) {
  constexpr uint32_t kColumns = 16;
  Rows rows = make_rows(Dtype::kFloat32, kColumns, 512);
  for (uint32_t row = 0; row < 512; ++row) {
    for (uint32_t column = 0; column < kColumns; ++column) {
      const auto draw = static_cast<uint32_t>(base::random_64(base::key_of(2), row, column));
      const uint32_t mantissas[] = {0, 1, 0x7fffff, 0x400000, 0x3fffff, 0x400001, 0x0fffff, 0x100000};
      const uint32_t mantissa = column < 8 ? mantissas[column] : draw & 0x7fffff;
      store_as(rows.bytes.data() + (row * kColumns + column) * 4, row << 23 | mantissa);
    }
  }
  const Rows bells = make_rows(Content::kDense, Dtype::kFloat32, kColumns, 300);
  for (uint32_t mantissa_bits = 0; mantissa_bits <= 22; ++mantissa_bits) {
    Profile profile = planes_of(bells.table, mantissa_bits);
    for (const uint32_t base : {0u, 1u, 100u, 256u - (1u << profile.code_bits) + 1}) {
      for (uint8_t& of_column : profile.base) of_column = static_cast<uint8_t>(base);
      profile.slot_bytes = 64;
      expect_planes(rows, profile);
    }
  }
}

TEST(Planes, ABoundIsTold) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 8, 100);
  EXPECT_EQ(planes_of(rows.table, 3).error_bound(), 1.0 / 16);
  EXPECT_EQ(planes_of(rows.table, 0).error_bound(), 0.5);
  EXPECT_EQ(fit(rows.table, {.codec = "exponent"}).profile.error_bound(), 0);
}

TEST(Planes, ReadingADoesNotTouchB) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 128, 300);
  const EncodedRows encoded = encode(rows.table, planes_of(rows.table, 3));
  const std::vector<std::byte> before = decoded(plane_a_of(encoded));
  std::memset(const_cast<std::byte*>(encoded.ref.plane_b), 0x5a, static_cast<std::size_t>(encoded.ref.plane_b_bytes()));
  EXPECT_EQ(decoded(plane_a_of(encoded)), before);
  EXPECT_NE(decoded(encoded), rows.bytes);
}

// Slots of one line for A of 128 columns, and no more memory than codec exponent takes but for 4 %.
TEST(Planes, TakeHardlyMoreMemoryThanCodecExponent) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 128, 4000);
  const EncodedRows planes = encode(rows.table, planes_of(rows.table, 3));
  const EncodedRows exponent = encode(rows.table, fit(rows.table, {.codec = "exponent"}).profile);
  EXPECT_EQ(planes.ref.stride_bytes, kLineBytes);
  EXPECT_LE(static_cast<double>(planes.stored_bytes()), 1.04 * static_cast<double>(exponent.stored_bytes()));
}

TEST(Planes, OtherUsesAreErrors) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 8, 100);
  const Profile planes = planes_of(rows.table, 3);
  EXPECT_THROW(encode(rows.table, planes, {.layout = LayoutChoice::kPacked}), base::Error);
  EXPECT_THROW(encode(rows.table, planes, {.slot_bytes = 32}), base::Error);
  EXPECT_THROW(plane_a_of(encode(rows.table, fit(rows.table, {.codec = "exponent"}).profile)), base::Error);
  EXPECT_THROW(fit(rows.table, {.codec = "planes", .mantissa_bits = 23}), base::Error);
  Rows copy = rows;
  copy.table.data = copy.bytes.data();
  EXPECT_THROW(encode_in_place(copy.table, planes), base::Error);
  const Rows halves = make_rows(Content::kDense, Dtype::kFloat16, 8, 100);
  EXPECT_THROW(fit(halves.table, {.codec = "planes"}), base::Error);
  const std::string path = testing::TempDir() + "plane_a.ibp";
  EXPECT_THROW(save(plane_a_of(encode(rows.table, planes)), path), base::Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Planes, ImpossibleProfilesAreErrors) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 8, 100);
  const Profile good = planes_of(rows.table, 3);
  EXPECT_EQ(profile_from(to_bytes(good), "bytes"), good);
  for (const auto& change :
       {+[](Profile& profile) { profile.slot_bytes = 0; }, +[](Profile& profile) { profile.mantissa_bits = 23; },
        +[](Profile& profile) { profile.base[3] = 255; }, +[](Profile& profile) { profile.dtype = Dtype::kBits32; },
        +[](Profile& profile) { profile.codec = Codec::kExponent; }}) {
    Profile bad = good;
    change(bad);
    EXPECT_THROW(validate(bad), base::Error);
  }
}

}  // namespace
}  // namespace cohort::ibp
