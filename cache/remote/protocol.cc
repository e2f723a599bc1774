#include "cache/remote/protocol.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"

namespace cohort::cache {
namespace {

template <typename T>
uint32_t with(const T* array, int64_t size, uint32_t before) {
  if (!array) return before;
  return base::crc32c_parallel(std::as_bytes(std::span(array, static_cast<std::size_t>(size))), before);
}

// The checksum at the end of a profile's bytes is left out: a checksum of bytes and their own checksum is a constant.
uint32_t with_profile(const ibp::Profile& profile, uint32_t before) {
  const std::vector<std::byte> bytes = ibp::to_bytes(profile);
  return base::crc32c_parallel(std::span(bytes).first(bytes.size() - sizeof(uint32_t)), before);
}

}  // namespace

Hello RunIdentity::hello() const {
  base::require(key.size() == kKeyBytes, "a key of 32 bytes");
  Hello hello;
  hello.machine = static_cast<uint32_t>(machine);
  hello.tables = tables;
  std::ranges::copy(key, hello.key.begin());
  return hello;
}

uint32_t tables_digest(std::span<const ibp::EncodedRows> tables) {
  uint32_t digest = 0;
  for (const auto& [profile, rows, keepers] : tables) {
    digest = with_profile(profile, digest);
    const std::array<int64_t, 8> numbers = {
        rows.num_rows,     rows.data_bytes,           rows.overflow_bytes,  rows.row_bytes,
        rows.stride_bytes, rows.plane_b_stride_bytes, rows.max_coded_bytes, static_cast<int64_t>(rows.layout)};
    digest = with(numbers.data(), std::ssize(numbers), digest);
    digest = with(rows.entries, rows.num_rows, digest);
    digest = with(rows.lengths, rows.num_rows, digest);
    digest = with(rows.flags, (rows.num_rows + 31) / 32, digest);
  }
  return digest;
}

}  // namespace cohort::cache
