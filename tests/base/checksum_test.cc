// CRC-32C: known answers, and that all ways give the same. XXH64: known answers.
#include "base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace cohort::base {
namespace {

TEST(Checksum, KnownAnswers) {
  const char* text = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text, 9))), 0xe3069283u);
  EXPECT_EQ(crc32c(std::as_bytes(std::span(text + 4, 5)), crc32c(std::as_bytes(std::span(text, 4)))), 0xe3069283u);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8a9136aau);
}

TEST(Checksum, KnownAnswersOfXxh64) {
  const auto hash = [](std::string_view text, uint64_t seed = 0) {
    return xxh64(std::as_bytes(std::span(text)), seed);
  };
  EXPECT_EQ(hash(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);  // longer than a block of 32 bytes
}

TEST(Checksum, OfLongBytesItIsThatOfTheirPieces) {
  constexpr std::size_t kPiece = 200;  // too short for CRCs side by side, and for folds
  std::vector<std::byte> bytes(100'123);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 5);
  uint32_t by_pieces = 0;
  for (std::size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    by_pieces = crc32c(std::span(bytes).subspan(begin, std::min(kPiece, bytes.size() - begin)), by_pieces);
    const std::span<const std::byte> so_far(bytes.data(), std::min(begin + kPiece, bytes.size()));
    EXPECT_EQ(crc32c(so_far), by_pieces) << so_far.size();
    EXPECT_EQ(crc32c_without_folds(so_far), by_pieces) << so_far.size();
  }
}

TEST(Checksum, ByAllThreadsItIsTheSame) {
  std::vector<std::byte> bytes((std::size_t{3} << 20) + 12345);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 7);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = crc32c(all);
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, all.size()}) {
    const std::size_t rest = all.size() - cut;
    EXPECT_EQ(crc32c_parallel(all.last(rest), crc32c(all.first(cut))), whole) << cut;
  }
  EXPECT_EQ(crc32c_parallel(all), whole);
}

}  // namespace
}  // namespace cohort::base
