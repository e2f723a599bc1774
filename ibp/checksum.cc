#include "ibp/checksum.h"

#include <array>
#include <vector>

#include "ibp/bits.h"

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace cohort::ibp {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

// tables[k][b]: the CRC of byte b followed by k zero bytes.
constexpr auto kTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
    }
  }
  return tables;
}();

uint32_t crc_by_table(const std::byte* from, std::size_t count, uint32_t crc) {
  for (; count >= 8; count -= 8, from += 8) {
    const uint64_t word = load_as<uint64_t>(from) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; count; --count, ++from) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(*from)) & 0xff];
  return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t crc_by_instruction(const std::byte* from, std::size_t count, uint32_t crc) {
  uint64_t wide = crc;
  for (; count >= 8; count -= 8, from += 8) wide = _mm_crc32_u64(wide, load_as<uint64_t>(from));
  crc = static_cast<uint32_t>(wide);
  for (; count; --count, ++from) crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*from));
  return crc;
}
#endif

// Polynomials modulo the CRC's, reflected: bit 31 is x^0.
uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit) & 1) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

// x^(8 * bytes): what as many bytes of zeros multiply a CRC by.
uint32_t shift_by(uint64_t bytes) {
  uint32_t result = 1u << 31, power = 1u << 23;
  for (; bytes; bytes >>= 1) {
    if (bytes & 1) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#ifdef __x86_64__
  static const bool fast = __builtin_cpu_supports("sse4.2");
  if (fast) return ~crc_by_instruction(bytes.data(), bytes.size(), ~before);
#endif
  return ~crc_by_table(bytes.data(), bytes.size(), ~before);
}

uint32_t crc32c_joined(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return multiply(shift_by(second_bytes), first) ^ second;
}

uint32_t crc32c_parallel(std::span<const std::byte> bytes, uint32_t before) {
  constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  const std::size_t count = bytes.size() / kPieceBytes;  // whole pieces
  std::vector<uint32_t> pieces(count);
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::size_t i = 0; i < count; ++i) pieces[i] = crc32c(bytes.subspan(i * kPieceBytes, kPieceBytes));
  const uint32_t shift = shift_by(kPieceBytes);
  for (const uint32_t piece : pieces) before = multiply(shift, before) ^ piece;
  return crc32c(bytes.subspan(count * kPieceBytes), before);
}

}  // namespace cohort::ibp
