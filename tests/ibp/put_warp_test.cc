// The device code of encode_gpu(), of put() and of a row's decoders, run by a warp on the CPU: the same bytes as the
// host's.
#include "tests/ibp/warp.h"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ibp/device_pairs.cuh"
#include "ibp/put_kernels.cuh"
#include "ibp/writable.h"
#include "tests/ibp/written.h"

namespace cohort::ibp {
namespace {

// Shared memory of a warp for one row, and words behind it that nothing may touch.
class Words {
 public:
  explicit Words(uint32_t row_bytes) : count_(room_words(row_bytes)), words_((count_ + 4) / 4, kUntouched) {}
  uint32_t* data() { return &words_.data()->x; }
  bool ends_untouched() const { return std::memcmp(&words_.back(), &kUntouched, sizeof(uint4)) == 0; }

 private:
  static constexpr uint4 kUntouched{0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5};
  uint32_t count_;
  std::vector<uint4> words_;
};

class PutWarp : public testing::TestWithParam<Dtype> {};

TEST_P(PutWarp, EncodesAsTheHost) {
  for (const uint32_t num_columns : {1u, 7u, 33u, 64u, 129u, 300u}) {
    const Rows mixed = make_rows(Content::kMixed, GetParam(), num_columns, 70);
    std::vector<Profile> profiles = all_profiles(mixed.table);
    for (const Content content : {Content::kFew, Content::kOnes}) {
      const Rows few = make_rows(content, GetParam(), num_columns, 70);
      profiles.push_back(fit(few.table, {.codec = "dictionary"}).profile);
    }
    for (const Profile& profile : profiles) {
      const ProfileTables tables(profile);
      std::vector<std::byte> expected(encode_room(tables.ref()));
      Words words(profile.row_bytes());
      for (const Content content : {Content::kMixed, Content::kSpecial, Content::kFew}) {
        const Rows rows = make_rows(content, GetParam(), num_columns, 7);
        for (int64_t row = 0; row < rows.table.num_rows; ++row) {
          const uint32_t bytes = encode_row(tables.ref(), rows.table.row(row), expected.data());
          uint32_t found = 1;
          with_form<kEncodeForms>(encode_form_of(tables.ref()), [&](auto form) {
            warp::run([&] {
              const RowEncoder<form.value> encoder(tables.ref());
              const uint32_t mine = encoder.encode(rows.table.row(row), words.data());
              if (lane_id() == 31) found = mine;
            });
          });
          ASSERT_EQ(found, bytes) << name_of(profile.codec) << " x " << num_columns << ", row " << row;
          ASSERT_EQ(std::memcmp(words.data(), expected.data(), bytes), 0) << name_of(profile.codec) << ", row " << row;
          ASSERT_TRUE(words.ends_untouched());
        }
      }
    }
  }
}

template <typename Decoder>
bool decode_by_warp(const ProfileTables& tables, const uint32_t* words, uint32_t bytes, std::byte* out) {
  bool found = false;
  warp::run([&] {
    const bool mine = Decoder(tables.ref()).decode(words, bytes, out);
    if (lane_id() == 17) found = mine;
  });
  return found;
}

// The decoders of rows at multiples of 16, of 8 and of 2 bytes.
template <template <uint32_t> typename Decoder>
auto decoder_for(uint32_t row_bytes) {
  if (row_bytes % 16 == 0) return decode_by_warp<Decoder<4>>;
  return row_bytes % 8 == 0 ? decode_by_warp<Decoder<2>> : decode_by_warp<Decoder<1>>;
}

// Rows, and rows that lack their last word or have a word too many, which is left alone.
void expect_decodes(const Rows& rows, const Profile& profile) {
  constexpr uint32_t kAhead = 4;  // words that a decoder may read beyond a row
  const ProfileTables tables(profile);
  const uint32_t row_bytes = profile.row_bytes();
  const auto decode_one =
      profile.codec == Codec::kLayers ? decoder_for<LayersDecoder>(row_bytes) : decoder_for<PairsDecoder>(row_bytes);
  for (int64_t row = 0; row < rows.table.num_rows; ++row) {
    SCOPED_TRACE("row " + std::to_string(row));
    std::vector<std::byte> coded(encode_room(tables.ref()));
    const uint32_t bytes = encode_row(tables.ref(), rows.table.row(row), coded.data());
    if (bytes == 0) continue;
    std::vector<uint32_t> words(bytes / 4 + kAhead + 1, 0xa5a5a5a5);
    std::memcpy(words.data(), coded.data(), bytes);
    std::vector<uint4> out(room_words(row_bytes) / 4 + 1, uint4{0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5, 0xa5a5a5a5});
    auto* to = reinterpret_cast<std::byte*>(out.data());
    for (const uint32_t given : {bytes, bytes + 4}) {
      ASSERT_TRUE(decode_one(tables, words.data(), given, to));
      ASSERT_EQ(std::memcmp(to, rows.table.row(row), row_bytes), 0);
    }
    for (std::size_t i = row_bytes; i < out.size() * 16; ++i) ASSERT_EQ(to[i], std::byte{0xa5});
    if (bytes - 4 < tables.ref().escape_offset_bytes()) continue;
    ASSERT_FALSE(decode_one(tables, words.data(), bytes - 4, to));
  }
}

TEST(DecodeWarp, DecodesAsTheHost) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    for (const uint32_t num_columns : {1u, 2u, 7u, 8u, 33u, 64u, 100u, 256u, 258u, 301u, 520u, 776u}) {
      const Rows rows = make_rows(Content::kMixed, dtype, num_columns, 28);
      for (const char* codec : {"exponent", "layers"}) {
        SCOPED_TRACE(name_of(dtype) + " x " + std::to_string(num_columns) + ", " + codec);
        expect_decodes(rows, fit(rows.table, {.codec = codec}).profile);
      }
    }
  }
}

TEST(DecodeWarp, Dictionary) {
  for (const Dtype dtype : kAllDtypes) {
    for (const uint32_t num_columns : {1u, 7u, 33u, 64u, 301u}) {
      const Rows rows = make_rows(Content::kOnes, dtype, num_columns, 14);
      const ProfileTables tables(fit(rows.table, {.codec = "dictionary"}).profile);
      std::vector<std::byte> coded(encode_room(tables.ref())), row(rows.table.row_bytes());
      for (int64_t i = 0; i < rows.table.num_rows; ++i) {
        const uint32_t bytes = encode_row(tables.ref(), rows.table.row(i), coded.data());
        if (bytes == 0) continue;
        std::vector<uint32_t> words(bytes / 4);
        std::memcpy(words.data(), coded.data(), bytes);
        for (const uint32_t given : {bytes, bytes - 4}) {
          bool valid = false;
          warp::run([&] {
            const bool mine = decode_dictionary_warp(tables.ref(), words.data(), given, row.data());
            if (lane_id() == 17) valid = mine;
          });
          ASSERT_EQ(valid, given == bytes);
        }
        ASSERT_EQ(std::memcmp(row.data(), rows.table.row(i), row.size()), 0) << num_columns << " columns, row " << i;
      }
    }
  }
}

// put() of the GPU, by one warp.
class WarpPut {
 public:
  WarpPut(const Profile& profile, const Homes& homes, const EncodedRows* rows, int64_t spare)
      : tables_(profile), profile_(profile), ref_(homes.ref()), capacity_(homes.num_cells() + spare) {
    entries_.assign(ref_.entries, ref_.entries + ref_.num_rows);
    ref_.entries = entries_.data();
    memory_.resize(homes.bytes_with(capacity_) + 16);
    homes.fill(rows, {begin(), homes.bytes_with(capacity_)});
    ref_.data = begin();
    list_.resize(static_cast<std::size_t>(capacity_));
    status_.cells.used = static_cast<unsigned long long>(homes.num_cells());
  }

  void put(const std::vector<int64_t>& ids, const std::byte* rows) {
    status_.refused = 0;
    const PutJob job{ids.data(), rows,         static_cast<int64_t>(ids.size()),
                     ref_,       list_.data(), static_cast<unsigned long long>(capacity_),
                     &status_};
    for (int64_t i = 0; i < job.count; ++i) claim_row(job, i);
    Words words(ref_.row_bytes);
    with_form<kEncodeForms>(encode_form_of(tables_.ref()), [&](auto form) {
      warp::run([&] {
        const RowEncoder<form.value> encoder(tables_.ref());
        put_rows_warp(encoder, job, 0, 1, words.data());
      });
    });
    ASSERT_TRUE(words.ends_untouched());
    status_.cells.close_gap(list_.data(), 0, 1);
    status_.cells.count_again(job.capacity);
  }

  EncodedRows rows() const { return {profile_, Homes::packed_ref(ref_, capacity_), {}}; }
  const PutStatus& status() const { return status_; }

 private:
  std::byte* begin() { return memory_.data() + (16 - reinterpret_cast<uintptr_t>(memory_.data()) % 16) % 16; }
  ProfileTables tables_;
  Profile profile_;
  HomesRef ref_;
  int64_t capacity_;
  std::vector<uint64_t> entries_;
  std::vector<std::byte> memory_;
  std::vector<int64_t> list_;
  PutStatus status_;
};

std::vector<int64_t> every_third(int64_t count, int64_t first) {
  std::vector<int64_t> ids;
  for (int64_t id = first % 3; id < count; id += 3) ids.push_back(id);
  return ids;
}

TEST_P(PutWarp, StoresAsTheHost) {
  constexpr int64_t kRows = 24;
  for (const uint32_t num_columns : {5u, 50u}) {
    const Rows rows = make_rows(Content::kDense, GetParam(), num_columns, kRows);
    for (const Profile& profile : all_profiles(rows.table)) {
      for (const bool zeros : {false, true}) {
        const EncodedRows encoded = encode(rows.table, profile);
        const uint32_t slot_bytes = std::max(4u, profile.row_bytes() * 3 / 4 / 4 * 4);
        const Homes homes_of_rows(encoded), homes_of_zeros(profile, kRows, slot_bytes);
        const Homes& homes = zeros ? homes_of_zeros : homes_of_rows;
        WarpPut gpu(profile, homes, zeros ? nullptr : &encoded, kRows);
        const auto host = zeros ? std::make_unique<WritableRows>(profile, kRows, slot_bytes)
                                : std::make_unique<WritableRows>(encoded);
        int64_t step = 0;
        for (const Content content : kAllContents) {
          const std::vector<int64_t> ids = every_third(kRows, step++);
          const Rows fresh = make_rows(content, GetParam(), num_columns, static_cast<int64_t>(ids.size()));
          host->put(ids, fresh.table);
          gpu.put(ids, fresh.bytes.data());
          expect_same(host->rows(), gpu.rows(), homes.ref().overflow_begin);
          ASSERT_EQ(gpu.status().fault, ~0ull);
          ASSERT_EQ(gpu.status().cells.used,
                    static_cast<unsigned long long>(
                        (host->rows().ref.data_bytes - static_cast<int64_t>(homes.ref().overflow_begin)) /
                        homes.ref().whole_bytes()));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PutWarp, testing::ValuesIn(kAllDtypes));

TEST(PutWarpFaults, AreTheLeastAndChangeNothing) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 16, 40);
  const Rows other = make_rows(Content::kNoise, Dtype::kFloat32, 16, 4);
  const EncodedRows encoded = encode(rows.table, fit(rows.table, {.codec = "exponent"}).profile);
  const Homes homes(encoded);
  for (const auto& [ids, position, fault] :
       {std::tuple{std::vector<int64_t>{3, 40, -1, 5}, 1, PutFault::kNoSuchRow}, {{3, 4, 5, 3}, 3, PutFault::kTwice}}) {
    WarpPut gpu(encoded.profile, homes, &encoded, 40);
    gpu.put(ids, other.bytes.data());
    EXPECT_EQ(gpu.status().fault, static_cast<unsigned long long>(position) * 4 + static_cast<unsigned>(fault));
    EXPECT_EQ(decoded(gpu.rows()), rows.bytes);
    gpu.put({3, 4, 5, 6}, other.bytes.data());  // no row is still claimed
    std::vector<std::byte> expected = rows.bytes;
    std::copy(other.bytes.begin(), other.bytes.end(), expected.begin() + 3 * 64);
    EXPECT_EQ(decoded(gpu.rows()), expected);
  }
}

TEST(PutWarpFaults, RowsWithoutRoomKeepTheirValues) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 64, 40);
  const Rows noise = make_rows(Content::kNoise, Dtype::kFloat32, 64, 4);
  const Profile profile = fit(rows.table, {.codec = "exponent"}).profile;
  const EncodedRows encoded = encode(rows.table, profile, {LayoutChoice::kSlots, profile.slot_bytes});
  WarpPut gpu(profile, Homes(encoded), &encoded, 2);
  gpu.put({7, 8, 9, 10}, noise.bytes.data());
  EXPECT_EQ(gpu.status().fault, 2 * 4 + static_cast<unsigned>(PutFault::kNoRoom));
  std::vector<std::byte> expected = rows.bytes;
  std::copy_n(noise.bytes.begin(), 2 * 256, expected.begin() + 7 * 256);
  EXPECT_EQ(decoded(gpu.rows()), expected);
  gpu.put({7}, rows.bytes.data() + 7 * 256);  // goes home
  gpu.put({9}, noise.bytes.data());           // to the cell that it has left
  std::copy_n(rows.bytes.begin() + 7 * 256, 256, expected.begin() + 7 * 256);
  std::copy_n(noise.bytes.begin(), 256, expected.begin() + 9 * 256);
  EXPECT_EQ(decoded(gpu.rows()), expected);
}

TEST(PutCells, AreUsedAgainInAnyNumber) {
  for (const unsigned long long taken : {0ull, 2ull, 3ull, 5ull}) {
    for (const unsigned long long left : {0ull, 1ull, 3ull, 4ull}) {
      std::vector<int64_t> list = {4, 1, 6, 100, 101, 102, 103, -1};
      OverflowCells cells{.used = 20, .free = 3, .taken = taken, .left = left};
      std::vector<int64_t> expected = {100, 101, 102, 103};
      expected.resize(left);
      for (int64_t i = 0; i + int64_t(taken) < 3; ++i) expected.push_back(list[std::size_t(i)]);
      for (unsigned long long thread = 0; thread < 2; ++thread) cells.close_gap(list.data(), thread, 2);
      cells.count_again(21);
      EXPECT_EQ(cells.used, taken > 3 ? 21 : 20);
      ASSERT_EQ(cells.free, expected.size());
      list.resize(expected.size());
      std::sort(list.begin(), list.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(list, expected) << taken << " taken, " << left << " left";
    }
  }
}

TEST(WordOfFields, IsThatOfAStreamOfBits) {
  for (uint32_t width = 17; width < 32; ++width) {
    std::vector<uint32_t> fields(34), words(width + 2);
    for (uint32_t i = 0; i < 32; ++i) {
      fields[i] = static_cast<uint32_t>(base::random_64(base::key_of(2), width, i)) & ((1u << width) - 1);
      or_field(words.data(), i * width, width, fields[i]);
    }
    for (uint32_t i = 0; i < width; ++i) {
      const WordOfFields word(i, width);
      ASSERT_EQ(word.join(fields[word.field], fields[word.field + 1], fields[word.field + 2]), words[i]) << width;
    }
  }
}

}  // namespace
}  // namespace cohort::ibp
