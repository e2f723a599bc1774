#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "ibp/bits.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"
#include "tests/base/fails.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

// Rows out in another order, with repeats, equal the rows that went in.
void expect_round_trip(const Rows& rows, const EncodedRows& encoded) {
  const uint32_t row_bytes = rows.table.row_bytes();
  std::vector<int64_t> index;
  for (int64_t i = rows.table.num_rows - 1; i >= 0; i -= 2) index.push_back(i);
  for (int64_t i = 0; i < rows.table.num_rows; i += 3) index.push_back(i);
  std::vector<std::byte> out(index.size() * row_bytes);
  fetch(encoded, index, out.data());
  for (std::size_t i = 0; i < index.size(); ++i) {
    const std::byte* expected = rows.bytes.data() + index[i] * int64_t{row_bytes};
    ASSERT_EQ(std::memcmp(out.data() + i * row_bytes, expected, row_bytes), 0) << "row " << index[i];
  }
  std::vector<std::byte> all(rows.bytes.size(), std::byte{0xee});
  decode(encoded, all.data());
  ASSERT_EQ(all, rows.bytes);
}

void expect_every_layout(const Rows& rows, const Profile& profile) {
  for (const LayoutChoice layout : {LayoutChoice::kAuto, LayoutChoice::kPacked, LayoutChoice::kSlots}) {
    const EncodedRows encoded = encode(rows.table, profile, {.layout = layout});
    expect_round_trip(rows, encoded);
    EXPECT_LE(encoded.stored_bytes(), bound(profile, rows.table.num_rows, {.layout = layout}));
  }
  if (rows.table.row_bytes() % 4 != 0) return;
  Rows copy = rows;
  copy.table.data = copy.bytes.data();
  expect_round_trip(rows, encode_in_place(copy.table, profile));
}

TEST(RoundTripLimits, WidestRows) {
  for (const Dtype dtype : kAllDtypes) {
    for (const Content content : {Content::kMixed, Content::kConstant}) {
      const Rows rows = make_rows(content, dtype, kMaxRowBytes / element_bytes(dtype), 3);
      for (const Profile& profile : all_profiles(rows.table)) expect_every_layout(rows, profile);
    }
  }
}

TEST(RoundTripLimits, ManyBatches) {
  const Rows rows = make_rows(Content::kOnes, Dtype::kBits64, 2000, 6000);  // 96 MB: three batches
  expect_round_trip(rows, encode(rows.table, fit(rows.table, {.codec = "sparse"}).profile));
}

// The instructions that the CPU may have give the bits that plain code gives: rows that match, miss and are cut short.
TEST(Invariant, TheSameWithAndWithoutSpecialInstructions) {
  for (const uint32_t num_columns : {1u, 2u, 3u, 7u, 8u, 63u, 64u, 65u, 130u}) {
    for (const Dtype dtype : {Dtype::kUint8, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kBits64}) {
      const Rows seen = make_rows(Content::kDense, dtype, num_columns, 100);
      const Rows rows = make_rows(Content::kMixed, dtype, num_columns, 50);
      for (const uint32_t chunk_bytes : {4u, 8u}) {
        const ProfileTables tables(fit(seen.table, {.codec = "invariant", .chunk_bytes = chunk_bytes}).profile);
        std::vector<std::byte> best(encode_room(tables.ref())), portable(best.size());
        for (int64_t i = 0; i < 50; ++i) {
          const uint32_t bytes = encode_invariant(tables.ref(), rows.table.row(i), best.data());
          ASSERT_EQ(encode_invariant_portable(tables.ref(), rows.table.row(i), portable.data()), bytes);
          ASSERT_EQ(std::memcmp(best.data(), portable.data(), bytes), 0) << num_columns << " columns, row " << i;
          std::vector<std::byte> row(rows.table.row_bytes());
          for (const auto decode : {decode_invariant, decode_invariant_portable}) {
            ASSERT_EQ(decode(tables.ref(), best.data(), bytes, row.data()), bytes);
            ASSERT_EQ(std::memcmp(row.data(), rows.table.row(i), row.size()), 0);
          }
        }
      }
    }
  }
}

// One field after the other, against a stream written bit by bit.
TEST(Bits, WriterEqualsOneBitAtATime) {
  std::vector<std::byte> out(4096);
  std::vector<bool> expected;
  BitWriter writer(out.data());
  for (uint64_t i = 0; i < 400; ++i) {
    const auto count = static_cast<uint32_t>(base::random_below(65, base::key_of(1), i, 0));
    const uint64_t value = base::random_64(base::key_of(2), i, 0) & low_bits(count);
    writer.put(value, count);
    for (uint32_t bit = 0; bit < count; ++bit) expected.push_back((value >> bit) & 1);
    if (i % 50 != 0) continue;
    writer.align_to_byte();
    while (expected.size() % 8) expected.push_back(false);
  }
  const uint32_t bytes = writer.finish();
  ASSERT_EQ(bytes, round_up(expected.size(), 32) / 8);
  expected.resize(bytes * 8);
  for (std::size_t bit = 0; bit < expected.size(); ++bit) {
    ASSERT_EQ((static_cast<uint32_t>(out[bit / 8]) >> (bit % 8)) & 1, expected[bit]) << bit;
  }
}

TEST(Slots, NarrowSlotsSendRowsToTheOverflowArea) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 64, 300);
  const Profile profile = fit(rows.table, {.codec = "sparse"}).profile;
  for (const uint32_t slot_bytes : {16u, 48u, 256u}) {
    const EncodedRows encoded = encode(rows.table, profile, {.layout = LayoutChoice::kSlots, .slot_bytes = slot_bytes});
    EXPECT_EQ(encoded.ref.data_bytes, 300 * slot_bytes);
    expect_round_trip(rows, encoded);
  }
}

TEST(Packed, ShortRowsDoNotCrossALine) {
  const Rows rows = make_rows(Content::kOnes, Dtype::kFloat32, 1500, 1000);
  const EncodedRows encoded =
      encode(rows.table, fit(rows.table, {.codec = "sparse"}).profile, {.layout = LayoutChoice::kPacked});
  for (int64_t row = 0; row < 1000; ++row) {
    const uint64_t offset = entry_offset_bytes(encoded.ref.entries[row]);
    const uint32_t bytes = entry_bytes(encoded.ref.entries[row]);
    const uint64_t padding = kLineBytes - offset % kLineBytes;
    EXPECT_TRUE(bytes > kLineBytes || bytes <= padding || padding > bytes / 2) << row;
  }
}

TEST(Errors, NameWhatIsWrong) {
  const auto fails = [](const auto& call, const char* text) { EXPECT_TRUE(base::fails_with(call, {text})); };
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 6, 20),
             wider = make_rows(Content::kDense, Dtype::kFloat32, 7, 20);
  fails([&] { encode(wider.table, fit(rows.table).profile); }, "float32 x 6, found float32 x 7");
  const Rows odd = make_rows(Content::kDense, Dtype::kUint8, 6, 20);
  fails([&] { encode_in_place(odd.table, fit(odd.table).profile); }, "multiple of 4");
  const RowTable wide{rows.bytes.data(), 1, Dtype::kFloat32, 20000};
  fails([&] { fit(wide); }, "1 to 65536 bytes");
}

TEST(Errors, ADamagedRowIsNoRow) {
  const Rows rows = make_rows(Content::kConstant, Dtype::kFloat32, 400, 100);
  const EncodedRows encoded =
      encode(rows.table, fit(rows.table, {.codec = "sparse"}).profile, {.layout = LayoutChoice::kPacked});
  auto* data = const_cast<std::byte*>(encoded.ref.data);
  const uint32_t too_many = 0x00ffffffu;
  std::memcpy(data + entry_offset_bytes(encoded.ref.entries[5]), &too_many, 4);
  std::vector<std::byte> out(rows.bytes.size());
  EXPECT_THROW(decode(encoded, out.data()), base::Error);
}

}  // namespace
}  // namespace cohort::ibp
