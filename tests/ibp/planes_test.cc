// Codec planes on the host; planes_test.py has what is decoded of both planes and of plane A alone.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "ibp/ibp.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

Profile planes_of(const RowTable& rows, uint32_t mantissa_bits) {
  return fit(rows, {.codec = "planes", .mantissa_bits = mantissa_bits}).profile;
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

TEST(Planes, OtherUsesAreErrors) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 8, 100);
  const Profile planes = planes_of(rows.table, 3);
  EXPECT_THROW(encode(rows.table, planes, {.slot_bytes = 32}), base::Error);
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
