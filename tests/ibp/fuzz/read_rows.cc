// libFuzzer: any bytes as a file of encoded rows, or as one coded row. Neither may crash, hang or read out of bounds.
//   clang++ ... -fsanitize=fuzzer,address,undefined (target ibp_fuzz), then: ibp_fuzz -max_total_time=600
#include <cstring>

#include "base/check.h"
#include "ibp/checksum.h"
#include "ibp/file_format.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"

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
  header.version = 1;
  const std::size_t lengths[] = {header.profile_bytes, header.data_bytes, header.overflow_bytes, header.directory_bytes,
                                 header.checksum_bytes};
  std::size_t at = sizeof(header);
  for (int i = 0; i < 5; ++i) {
    at = (at + kSectionAlign - 1) / kSectionAlign * kSectionAlign;
    if (at > size || lengths[i] > size - at) break;
    const std::span section(image + at, lengths[i]);
    if (i == 0 && lengths[i] > 12) {
      std::memcpy(image + at, "IBPPROF1\1\0\0\0", 12);
      const uint32_t crc = crc32c(section.first(lengths[i] - 4));
      std::memcpy(image + at + lengths[i] - 4, &crc, 4);
    }
    if (i == 3) header.directory_crc = crc32c(section);
    if (i == 4) header.checksum_crc = crc32c(section);
    at += lengths[i];
  }
  header.header_crc = crc32c(std::as_bytes(std::span(&header, 1)).first(sizeof(header) - 4));
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

// One profile of each codec, learnt from fixed rows.
std::vector<Profile> make_profiles() {
  std::vector<float> rows(64 * 50);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = i % 7 ? 0 : 1.0f + static_cast<float>(i % 11) / 8;
  const RowTable table{rows.data(), 64, Dtype::kFloat32, 50};
  std::vector<Profile> profiles;
  for (const char* codec : {"invariant", "exponent", "sparse"}) {
    for (const uint32_t chunk_bytes : {4u, 8u}) {
      profiles.push_back(fit(table, {.codec = codec, .chunk_bytes = chunk_bytes}).profile);
    }
  }
  return profiles;
}

void read_row(std::span<const std::byte> bytes) {
  static const std::vector<Profile> profiles = make_profiles();
  std::vector<std::byte> scratch, row(200);
  for (const Profile& profile : profiles) {
    const ProfileTables tables(profile);
    decode_row(tables.ref(), {bytes.data(), static_cast<uint32_t>(bytes.size()), false, true}, row.data(), scratch);
  }
}

}  // namespace
}  // namespace cohort::ibp

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 3 == 2) {
    cohort::ibp::read_row(bytes.first(std::min<std::size_t>(bytes.size(), 4096)));
  } else {
    cohort::ibp::read_file(bytes, data[0] % 3 == 1);
  }
  return 0;
}
