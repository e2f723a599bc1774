// Any bytes as a file of encoded rows, or as one coded row. Byte 0: 0 a file as it is, 1 a file whose checksums are
// made right, so that damage behind them is reached, 2 a row.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "ibp/codecs.h"
#include "ibp/file_format.h"
#include "ibp/ibp.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::ibp {
namespace {

struct alignas(16) Piece {
  std::byte bytes[16];
};

// Makes the header's and the sections' checksums right, so that damage behind them is reached.
void repair_checksums(std::byte* image, std::size_t size) {
  FileHeader header;
  if (size < sizeof(header)) return;
  std::memcpy(&header, image, sizeof(header));
  header.magic = kFileMagic;
  header.version = std::clamp<uint32_t>(header.version, 1, kNewestVersion);
  const std::size_t lengths[] = {header.profile_bytes,  header.data_bytes,      header.plane_b_bytes,
                                 header.overflow_bytes, header.directory_bytes, header.checksum_bytes};
  std::size_t at = sizeof(header);
  for (int i = 0; i < 6; ++i) {
    at = (at + kSectionAlign - 1) / kSectionAlign * kSectionAlign;
    if (at > size || lengths[i] > size - at) break;
    const std::span section(image + at, lengths[i]);
    if (i == 0 && lengths[i] > 12) {
      const auto codec = static_cast<Codec>(image[at + 12]);
      const uint32_t version = format_version(codec);
      std::memcpy(image + at, "IBPPROF1", 8);
      std::memcpy(image + at + 8, &version, sizeof(version));
      const uint32_t crc = base::crc32c(section.first(lengths[i] - 4));
      std::memcpy(image + at + lengths[i] - 4, &crc, 4);
    }
    if (i == 4) header.directory_crc = base::crc32c(section);
    if (i == 5) header.checksum_crc = base::crc32c(section);
    at += lengths[i];
  }
  header.header_crc = base::crc32c(std::as_bytes(std::span(&header, 1)).first(sizeof(header) - 4));
  std::memcpy(image, &header, sizeof(header));
}

void read_file(std::span<const std::byte> bytes, bool repair) {
  std::vector<Piece> pieces(bytes.size() / 16 + 1);
  std::byte* image = pieces.data()->bytes;
  std::memcpy(image, bytes.data(), bytes.size());
  if (repair) repair_checksums(image, bytes.size());
  try {
    const EncodedRows encoded = load({image, bytes.size()}, nullptr, "fuzz", !repair);
    std::vector<std::byte> row(encoded.ref.row_bytes);
    for (int64_t i = 0; i < std::min<int64_t>(encoded.ref.num_rows, 64); ++i) {
      try {
        fetch(encoded, std::span(&i, 1), row.data());
      } catch (const base::Error&) {
        continue;  // this row is damaged; the others are looked at all the same
      }
    }
  } catch (const base::Error&) {
    return;
  }
}

// Rows that every codec of their dtype can make smaller: float32 or bfloat16 [64, 50].
struct Rows {
  std::vector<float> floats = std::vector<float>(64 * 50);
  std::vector<uint16_t> halves = std::vector<uint16_t>(64 * 50);  // the same values
  Rows() {
    for (std::size_t i = 0; i < floats.size(); ++i) {
      floats[i] = i % 7 ? 0 : 1.0f + static_cast<float>(i % 11) / 8;
      halves[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(floats[i]) >> 16);
    }
  }
  RowTable table(Dtype dtype, int64_t num_rows) const {
    const void* data = dtype == Dtype::kFloat32 ? static_cast<const void*>(floats.data()) : halves.data();
    return {data, num_rows, dtype, 50};
  }
};

// One profile of each codec, learnt from these rows.
std::vector<Profile> make_profiles() {
  const Rows rows;
  std::vector<Profile> profiles;
  for (const Codec codec : kCodecs) {
    const Dtype dtype = codec == Codec::kLayers ? Dtype::kBfloat16 : Dtype::kFloat32;
    for (const uint32_t chunk_bytes : {4u, 8u}) {
      profiles.push_back(fit(rows.table(dtype, 64), {.codec = name_of(codec), .chunk_bytes = chunk_bytes}).profile);
    }
  }
  return profiles;
}

void read_row(std::span<const std::byte> bytes) {
  static const std::vector<Profile> profiles = make_profiles();
  std::vector<std::byte> scratch, row(200);
  for (const Profile& profile : profiles) {
    const ProfileTables tables(profile);
    RowSpan span{bytes.data(), static_cast<uint32_t>(bytes.size()), false, true};
    decode_row(tables.ref(), span, row.data(), scratch);
    const uint32_t plane_b_bytes = tables.ref().plane_b_bytes();
    if (profile.codec != Codec::kPlanes || span.bytes < plane_b_bytes) continue;
    span.bytes -= plane_b_bytes;
    span.plane_b = span.begin + span.bytes;
    decode_row(tables.ref(), span, row.data(), scratch);
  }
}

// Four rows as a file.
std::string file_of(const Profile& profile, LayoutChoice layout) {
  const Rows rows;
  const dataset::TemporaryFolder folder;
  save(encode(rows.table(profile.dtype, 4), profile, {.layout = layout}), folder / "rows");
  return dataset::read_bytes(folder / "rows");
}

}  // namespace
}  // namespace cohort::ibp

namespace cohort::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const ibp::Profile& profile : ibp::make_profiles()) {
    for (const auto layout : {ibp::LayoutChoice::kPacked, ibp::LayoutChoice::kSlots}) {
      if (profile.codec == ibp::Codec::kPlanes && layout == ibp::LayoutChoice::kPacked) continue;
      const std::string file = ibp::file_of(profile, layout);
      for (const char mode : {'\0', '\1'}) all.push_back(mode + file);
    }
  }
  all.push_back(std::string(1, 2) + std::string(120, 'r'));
  return all;
}

void run(std::span<const std::byte> input) {
  if (input.empty()) return;
  const int mode = std::to_integer<int>(input[0]) % 3;
  const auto bytes = input.subspan(1);
  if (mode == 2) {
    ibp::read_row(bytes.first(std::min<std::size_t>(bytes.size(), 4096)));
  } else {
    ibp::read_file(bytes, mode == 1);
  }
}

}  // namespace cohort::fuzz
