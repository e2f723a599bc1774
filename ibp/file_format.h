// The first 128 bytes of a file of encoded rows: FORMAT.md 6. Internal to ibp/.
#pragma once

#include <array>
#include <cstdint>

namespace cohort::ibp {

inline constexpr std::array<char, 8> kFileMagic = {'I', 'B', 'P', 'R', 'O', 'W', 'S', '1'};
inline constexpr uint64_t kChecksumBlockBytes = uint64_t{1} << 20;
inline constexpr uint64_t kSectionAlign = 128;

struct FileHeader {
  std::array<char, 8> magic = kFileMagic;
  uint32_t version = 1;
  uint32_t layout = 0;
  uint64_t num_rows = 0;
  uint64_t profile_bytes = 0;
  uint64_t data_bytes = 0;
  uint64_t overflow_bytes = 0;
  uint64_t directory_bytes = 0;
  uint64_t checksum_bytes = 0;
  uint32_t stride_bytes = 0;
  uint32_t max_coded_bytes = 0;
  uint32_t directory_crc = 0;
  uint32_t checksum_crc = 0;
  uint64_t plane_b_bytes = 0;         // version 2
  uint32_t plane_b_stride_bytes = 0;  // version 2
  std::array<uint32_t, 8> zeros{};
  uint32_t header_crc = 0;  // of the 124 bytes before it
};
static_assert(sizeof(FileHeader) == 128);

}  // namespace cohort::ibp
