#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "ibp/host.h"
#include "ibp/ibp.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

std::string temporary(const char* name) { return testing::TempDir() + name; }

// A file's bytes at a 16-byte boundary.
struct alignas(16) Piece {
  std::byte bytes[16];
};
struct Image {
  std::vector<Piece> pieces;
  std::size_t size = 0;
  std::byte* data() { return pieces.data()->bytes; }
  std::span<const std::byte> span(std::size_t count) { return {data(), count}; }
};

Image read_image(const std::string& path) {
  Image image;
  image.size = std::filesystem::file_size(path);
  image.pieces.resize(image.size / 16 + 1);
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(image.data()), static_cast<std::streamsize>(image.size));
  return image;
}

std::vector<Profile> all_profiles_and_planes(const RowTable& table) {
  std::vector<Profile> profiles = all_profiles(table);
  profiles.push_back(fit(table, {.codec = "planes"}).profile);
  return profiles;
}

// A file of the rows, so many of them at once. Returns its bytes.
int64_t write_in_pieces(const RowTable& rows, const Profile& profile, int64_t piece_rows, const std::string& path) {
  FileWriter writer(path, profile, {.num_rows = rows.num_rows});
  for (int64_t first = 0; first < rows.num_rows; first += piece_rows) {
    writer.append({rows.row(first), std::min(piece_rows, rows.num_rows - first), rows.dtype, rows.num_columns});
  }
  return writer.finish();
}

void expect_same_bytes(const std::string& whole, const std::string& pieces) {
  Image a = read_image(whole), b = read_image(pieces);
  ASSERT_EQ(a.size, b.size);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size), 0);
  std::filesystem::remove(whole);
  std::filesystem::remove(pieces);
}

TEST(File, WrittenPieceByPieceIsTheSameFile) {
  const std::string whole = temporary("whole.ibp"), pieces = temporary("pieces.ibp");
  // Of many pages: the space of a piece is reserved while the one before it is filled. Planes B are longer than a block
  // of checksums.
  for (const auto& [num_rows, piece_rows] : {std::pair{1000, 128}, {40000, 6400}}) {
    const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 40, num_rows);
    for (const Profile& profile : all_profiles_and_planes(rows.table)) {
      SCOPED_TRACE(name_of(profile.codec));
      save(encode(rows.table, profile), whole);
      const int64_t bytes = write_in_pieces(rows.table, profile, piece_rows, pieces);
      EXPECT_EQ(bytes, static_cast<int64_t>(std::filesystem::file_size(pieces)));
      expect_same_bytes(whole, pieces);
    }
  }
}

TEST(File, HasAsManyRowsOfPlanesAsWereNamed) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 40, 100);
  FileWriter writer(temporary("few.ibp"), fit(rows.table, {.codec = "planes"}).profile, {.num_rows = 100});
  writer.append(rows.table);
  writer.append({rows.table.row(0), 1, Dtype::kFloat32, 40});
  EXPECT_THROW(writer.finish(), base::Error);
}

// Bytes of malloc() in use.
std::size_t bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Slots in which no row finds room: all are in the overflow area, whose section comes last in the file.
TEST(File, OverflowRowsAreNotKeptInMemory) {
  constexpr int64_t kRows = 8'000, kPiece = 1'000, kColumns = 1024;  // 33 MB
  const std::string whole = temporary("overflow_whole.ibp"), pieces = temporary("overflow_pieces.ibp");
  const Rows rows = make_rows(Content::kNoise, Dtype::kFloat32, kColumns, kRows);
  const Profile profile = fit(rows.table, {.codec = "exponent"}).profile;
  const EncodeOptions options{LayoutChoice::kSlots, 16};
  FileWriter writer(pieces, profile, options);
  std::size_t before = 0;
  for (int64_t first = 0; first < kRows; first += kPiece) {
    if (first == kPiece) before = bytes_in_use();
    writer.append({rows.table.row(first), std::min(kPiece, kRows - first), Dtype::kFloat32, kColumns});
  }
  EXPECT_LE(bytes_in_use(), before + (14u << 20));
  writer.finish();
  const EncodedRows encoded = encode(rows.table, profile, options);
  ASSERT_EQ(encoded.ref.overflow_bytes, kRows * kColumns * 4);
  save(encoded, whole);
  expect_same_bytes(whole, pieces);
}

TEST(File, PiecesOfAnySizeDecode) {
  const std::string path = temporary("odd_pieces.ibp");
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 40, 500);
  for (const Profile& profile : all_profiles_and_planes(rows.table)) {
    write_in_pieces(rows.table, profile, 37, path);
    EXPECT_EQ(decoded(load(path)), rows.bytes);
  }
  std::filesystem::remove(path);
}

TEST(File, AppearsOnlyWhenFinished) {
  const std::string path = temporary("unfinished.ibp");
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 8, 100);
  {
    FileWriter writer(path, fit(rows.table).profile);
    writer.append(rows.table);
  }
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    EXPECT_FALSE(entry.path().string().starts_with(path)) << entry.path();
  }
  EXPECT_THROW(load(path), base::Error);
  EXPECT_THROW(FileWriter("/nonexistent/folder/x.ibp", fit(rows.table).profile), base::Error);
}

TEST(File, EveryCutIsAnError) {
  const std::string path = temporary("cut.ibp");
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 12, 40);
  for (const auto& [codec, layout] : {std::pair{"sparse", LayoutChoice::kPacked},
                                      {"sparse", LayoutChoice::kSlots},
                                      {"planes", LayoutChoice::kSlots}}) {
    save(encode(rows.table, fit(rows.table, {.codec = codec}).profile, {.layout = layout}), path);
    Image image = read_image(path);
    for (std::size_t size = 0; size < image.size; ++size) {
      EXPECT_THROW(load(image.span(size), nullptr, "cut"), base::Error) << size;
    }
    EXPECT_NO_THROW(load(image.span(image.size), nullptr, "whole"));
  }
  std::filesystem::remove(path);
}

// A flipped bit is found, or lies in padding and changes nothing.
TEST(File, NoFlippedBitGivesAWrongRow) {
  const std::string path = temporary("flip.ibp");
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 12, 40);
  for (const Profile& profile : all_profiles_and_planes(rows.table)) {
    save(encode(rows.table, profile), path);
    Image image = read_image(path);
    int found = 0;
    for (std::size_t bit = 0; bit < image.size * 8; bit += 5) {
      image.data()[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      try {
        EXPECT_EQ(decoded(load(image.span(image.size), nullptr, "flipped")), rows.bytes) << bit;
      } catch (const base::Error&) {
        ++found;
      }
      image.data()[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
    EXPECT_GT(found, static_cast<int>(image.size / 2));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cohort::ibp
