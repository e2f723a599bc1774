// One row in, one row out, on the host: the oracle of the CUDA bodies. Internal to ibp/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ibp/ibp.h"

namespace cohort::ibp {

// Throws Error on a table of impossible shape; `place` names the call.
void check_table(const RowTable& rows, const std::string& place);
// The same, and that the profile is valid and was made for rows of this dtype and width.
void check_table_fits(const RowTable& rows, const Profile& profile, const std::string& place);

// A profile's tables in host memory and the view that codecs read.
class ProfileTables {
 public:
  explicit ProfileTables(const Profile& profile);
  ProfileTables(const ProfileTables&) = delete;
  ProfileTables& operator=(const ProfileTables&) = delete;
  const ProfileRef& ref() const { return ref_; }
  const std::vector<ChunkCode<uint32_t>>& codes4() const { return codes4_; }
  const std::vector<ChunkCode<uint64_t>>& codes8() const { return codes8_; }
  const std::vector<uint32_t>& add() const { return add_; }

 private:
  std::vector<ChunkCode<uint32_t>> codes4_;
  std::vector<ChunkCode<uint64_t>> codes8_;
  std::vector<uint8_t> widths_;
  std::array<uint8_t, 256> codes_of_steps_{};
  std::vector<uint32_t> add_;
  std::vector<uint64_t> elements_;
  ProfileRef ref_;
};

// Bodies of the codecs. encode: bytes written to `out` (a multiple of 4), which has room for encode_room() bytes.
// decode: bytes used of `in`, which is readable up to `bytes` + kReadSlackBytes; 0 when it is no valid row.
inline constexpr uint32_t kReadSlackBytes = 16;
uint32_t encode_invariant(const ProfileRef& profile, const std::byte* row, std::byte* out);
uint32_t decode_invariant(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row);
// The same without the instructions that not every CPU has: what the others are tested against.
uint32_t encode_invariant_portable(const ProfileRef& profile, const std::byte* row, std::byte* out);
uint32_t decode_invariant_portable(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row);
uint32_t encode_exponent(const ProfileRef& profile, const std::byte* row, std::byte* out);
uint32_t decode_exponent(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row);
// Plane A; 0 for a row with an element that has to be exact in it: NaN, infinite, or too small to be normal.
uint32_t encode_plane_a(const ProfileRef& profile, const std::byte* row, std::byte* out);
// Writes profile.plane_b_bytes(), and up to 8 bytes beyond.
void encode_plane_b(const ProfileRef& profile, const std::byte* row, std::byte* out);
// Without plane B as plane A alone tells the row. `plane_b` is readable up to kReadSlackBytes beyond.
uint32_t decode_planes(const ProfileRef& profile, const std::byte* in, uint32_t bytes, const std::byte* plane_b,
                       std::byte* row);
uint32_t encode_layers(const ProfileRef& profile, const std::byte* row, std::byte* out);
uint32_t decode_layers(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row);
uint32_t encode_sparse(const ProfileRef& profile, const std::byte* row, std::byte* out);
uint32_t decode_sparse(const ProfileRef& profile, const std::byte* in, uint32_t bytes, std::byte* row);

// Room for any codec's longest attempt at a row, slack included.
inline std::size_t encode_room(const ProfileRef& profile) {
  return std::size_t{profile.row_bytes} * 2 + std::size_t{profile.num_columns} * 4 + 256;
}

// Whether work on so many bytes repays waking other threads.
constexpr bool worth_threads(int64_t bytes) { return bytes > int64_t{1} << 19; }

// Encodes the row, of codec planes plane A; 0 when the row has to be stored raw: the result is too long.
uint32_t encode_row(const ProfileRef& profile, const std::byte* row, std::byte* out);

// Encodes each row by all threads: visit(row, what encode_row() returned, the encoded bytes).
void encode_each(const ProfileRef& profile, const RowTable& rows,
                 const std::function<void(int64_t, uint32_t, const std::byte*)>& visit);

// Decodes a located row that is not raw; the bytes that it uses of its span, 0 when it is no valid row.
uint32_t coded_bytes(const ProfileRef& profile, const RowSpan& span, std::byte* row, std::vector<std::byte>& scratch);

// Decodes a located row, through `scratch`, which grows as needed; false when it is no valid row.
bool decode_row(const ProfileRef& profile, const RowSpan& span, std::byte* row, std::vector<std::byte>& scratch);

// Throws Error unless the address is a multiple of `bytes`; `place` names the argument.
void demand_multiple(const std::string& place, const void* address, std::size_t bytes);

// Throws Error: this row is no valid encoding.
[[noreturn]] void fail_row(int64_t row);

}  // namespace cohort::ibp
