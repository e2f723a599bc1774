#include "cache/pack_rows.h"

#include <gtest/gtest.h>

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace cohort::cache {
namespace {

// Rows of random lengths, multiples of 4, and bytes.
struct Stored {
  explicit Stored(std::size_t count, uint32_t most_words = 30) {
    std::mt19937 random(5);
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < count; ++i) {
      const auto length = static_cast<uint32_t>(4 * (random() % (most_words + 1)));
      begins.push_back(bytes.size());
      for (uint32_t j = 0; j < length; ++j) bytes.push_back(static_cast<std::byte>(random()));
      rows.push_back({nullptr, length, random() % 3 == 0, true});
    }
    for (std::size_t i = 0; i < count; ++i) rows[i].begin = bytes.data() + begins[i];
  }
  std::vector<std::byte> bytes;
  std::vector<ibp::RowSpan> rows;
};

constexpr uint64_t kNone = ~uint64_t{0};

// By one thread, row after row.
struct Expected {
  Expected(const std::vector<ibp::RowSpan>& rows, int64_t align, int64_t room, int64_t offset) {
    entries.assign(rows.size(), kNone);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const int64_t taken = (rows[i].bytes + align - 1) / align * align;
      if (packed.bytes + taken > room) break;
      entries[i] = ibp::make_entry(static_cast<uint64_t>(offset + packed.bytes), rows[i].bytes, rows[i].raw);
      packed.bytes += taken;
      packed.count += 1;
    }
  }
  PackedRows packed;
  std::vector<uint64_t> entries;
};

TEST(PackRows, PutsThemOneAfterTheOther) {
  for (const std::size_t count : {0u, 1u, 7u, 1000u}) {
    const Stored stored(count);
    const auto whole = static_cast<int64_t>(stored.bytes.size() + 16 * count);
    for (const int threads : {1, 3, 8}) {
      omp_set_num_threads(threads);
      for (const int64_t align : {4, 16}) {
        for (const int64_t room : {int64_t{0}, whole / 3, whole}) {
          SCOPED_TRACE(testing::Message() << count << " rows, " << threads << " threads, " << align << ", " << room);
          const Expected expected(stored.rows, align, room, 4096);
          std::vector<std::byte> to(static_cast<std::size_t>(room) + 64, std::byte{0xAA});
          std::vector<uint64_t> entries(count, kNone);
          const PackedRows packed = pack_rows(stored.rows, align, room, 4096, to.data(), entries.data());
          EXPECT_EQ(packed.count, expected.packed.count);
          EXPECT_EQ(packed.bytes, expected.packed.bytes);
          ASSERT_EQ(entries, expected.entries);
          for (int64_t i = 0; i < packed.count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const uint64_t begin = ibp::entry_offset_bytes(entries[at]) - 4096;
            ASSERT_EQ(begin % packed.step_bytes, 0u);
            ASSERT_EQ(std::memcmp(to.data() + begin, stored.rows[at].begin, stored.rows[at].bytes), 0) << i;
          }
          EXPECT_TRUE(
              std::all_of(to.begin() + packed.bytes, to.end(), [](std::byte b) { return b == std::byte{0xAA}; }));
        }
      }
    }
  }
}

TEST(PackRows, RowsOfOneLengthBeginAtItsMultiples) {
  Stored stored(50);
  for (ibp::RowSpan& row : stored.rows) row = {stored.bytes.data(), 48, true, true};
  std::vector<std::byte> to(50 * 48);
  std::vector<uint64_t> entries(50);
  EXPECT_EQ(pack_rows(stored.rows, 16, 50 * 48, 0, to.data(), entries.data()).step_bytes, 16u);
  for (ibp::RowSpan& row : stored.rows) row.bytes = 32;
  EXPECT_EQ(pack_rows(stored.rows, 4, 50 * 48, 0, to.data(), entries.data()).step_bytes, 32u);
}

}  // namespace
}  // namespace cohort::cache
