#include "base/checksum.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/bits.h"

#ifdef __x86_64__
#include <immintrin.h>
#else
#include <arm_acle.h>
#endif

namespace cohort::base {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

// Polynomials modulo the CRC's, reflected: bit 31 is x^0.
uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit) & 1) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

// x^(8 * 2^power): what 2^power bytes of zeros multiply a CRC by.
uint32_t shift_by_power(int power) {
  uint32_t result = 1u << 23;
  for (int i = 0; i < power; ++i) result = multiply(result, result);
  return result;
}

// The processor's instructions; of ARM's, those of ARMv8.1 and most before.
#ifdef __x86_64__
#define COHORT_CRC __attribute__((target("sse4.2")))
COHORT_CRC inline uint64_t crc_of(uint64_t crc, uint64_t word) { return _mm_crc32_u64(crc, word); }
COHORT_CRC inline uint32_t crc_of_byte(uint32_t crc, uint8_t byte) { return _mm_crc32_u8(crc, byte); }
#else
#define COHORT_CRC __attribute__((target("+crc")))
COHORT_CRC inline uint64_t crc_of(uint64_t crc, uint64_t word) { return __crc32cd(static_cast<uint32_t>(crc), word); }
COHORT_CRC inline uint32_t crc_of_byte(uint32_t crc, uint8_t byte) { return __crc32cb(crc, byte); }
#endif

// The instruction gives its result after three cycles, but starts in each: several CRCs side by side, of bytes that
// follow each other.
constexpr int kLanePower = 12;
constexpr std::size_t kLaneBytes = std::size_t{1} << kLanePower, kCrcLanes = 4;

COHORT_CRC uint32_t crc_of_lanes(const std::byte* from, uint32_t crc) {
  static const uint32_t shift = shift_by_power(kLanePower);
  std::array<uint64_t, kCrcLanes> lanes = {crc};
  for (std::size_t at = 0; at < kLaneBytes; at += sizeof(uint64_t)) {
    for (std::size_t lane = 0; lane < kCrcLanes; ++lane) {
      lanes[lane] = crc_of(lanes[lane], load_as<uint64_t>(from + lane * kLaneBytes + at));
    }
  }
  crc = static_cast<uint32_t>(lanes[0]);
  for (std::size_t lane = 1; lane < kCrcLanes; ++lane) crc = multiply(shift, crc) ^ static_cast<uint32_t>(lanes[lane]);
  return crc;
}

COHORT_CRC uint32_t crc_by_instruction(const std::byte* from, std::size_t count, uint32_t crc) {
  for (; count >= kCrcLanes * kLaneBytes; count -= kCrcLanes * kLaneBytes, from += kCrcLanes * kLaneBytes) {
    crc = crc_of_lanes(from, crc);
  }
  uint64_t wide = crc;
  for (; count >= 8; count -= 8, from += 8) wide = crc_of(wide, load_as<uint64_t>(from));
  crc = static_cast<uint32_t>(wide);
  for (; count; --count, ++from) crc = crc_of_byte(crc, static_cast<uint8_t>(*from));
  return crc;
}

#ifdef __x86_64__
// x^exponent.
uint32_t power_of_x(int exponent) {
  uint32_t result = 1u << 31;
  for (int i = 0; i < exponent; ++i) result = multiply(result, 1u << 30);
  return result;
}

// Bytes whose CRC is that of many more: each 16 of them are multiplied by x^(8 * kFoldBytes), modulo the CRC's
// polynomial, and added to those that lie so far behind them. A product of two halves of 64 bits, reflected, is one x
// too much.
constexpr std::size_t kFoldBytes = 256;

#define COHORT_FOLDS __attribute__((target("sse4.2,avx512f,vpclmulqdq")))

// `count`: a multiple of kFoldBytes, at least one.
COHORT_FOLDS uint32_t crc_by_folding(const std::byte* from, std::size_t count, uint32_t crc) {
  constexpr int kFoldBits = 8 * int{kFoldBytes};
  static const uint64_t first = uint64_t{power_of_x(kFoldBits + 64 - 1)} << 32,
                        second = uint64_t{power_of_x(kFoldBits - 1)} << 32;  // of the halves of 16 bytes
  constexpr std::size_t kVectors = kFoldBytes / sizeof(__m512i);
  const auto factors = _mm512_set4_epi64(static_cast<int64_t>(second), static_cast<int64_t>(first),
                                         static_cast<int64_t>(second), static_cast<int64_t>(first));
  std::array<std::array<uint64_t, 8>, kVectors> folded{};
  std::memcpy(folded.data(), from, kFoldBytes);
  folded[0][0] ^= crc;
  __m512i a = _mm512_loadu_si512(&folded[0]), b = _mm512_loadu_si512(&folded[1]);
  __m512i c = _mm512_loadu_si512(&folded[2]), d = _mm512_loadu_si512(&folded[3]);
  constexpr int kSum = 0x96;  // of three
  for (std::size_t at = kFoldBytes; at < count; at += kFoldBytes) {
    const auto fold = [&](__m512i vector, std::size_t number) COHORT_FOLDS {
      return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(vector, factors, 0x00),
                                       _mm512_clmulepi64_epi128(vector, factors, 0x11),
                                       _mm512_loadu_si512(from + at + number * sizeof(__m512i)), kSum);
    };
    a = fold(a, 0);
    b = fold(b, 1);
    c = fold(c, 2);
    d = fold(d, 3);
  }
  _mm512_storeu_si512(&folded[0], a);
  _mm512_storeu_si512(&folded[1], b);
  _mm512_storeu_si512(&folded[2], c);
  _mm512_storeu_si512(&folded[3], d);
  return crc_by_instruction(reinterpret_cast<const std::byte*>(folded.data()), kFoldBytes, 0);
}
#endif

constexpr uint64_t kPrime1 = 0x9e3779b185ebca87, kPrime2 = 0xc2b2ae3d27d4eb4f, kPrime3 = 0x165667b19e3779f9,
                   kPrime4 = 0x85ebca77c2b2ae63, kPrime5 = 0x27d4eb2f165667c5;  // of XXH64

uint64_t xxh64_round(uint64_t lane, uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#ifdef __x86_64__
  static const bool folds = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
  if (const std::size_t most = bytes.size() / kFoldBytes * kFoldBytes; folds && most > kFoldBytes) {
    before = ~crc_by_folding(bytes.data(), most, ~before);
    bytes = bytes.subspan(most);
  }
#endif
  return crc32c_without_folds(bytes, before);
}

uint32_t crc32c_without_folds(std::span<const std::byte> bytes, uint32_t before) {
  return ~crc_by_instruction(bytes.data(), bytes.size(), ~before);
}

uint32_t crc32c_parallel(std::span<const std::byte> bytes, uint32_t before) {
  constexpr int kPiecePower = 20;
  constexpr std::size_t kPieceBytes = std::size_t{1} << kPiecePower;
  const std::size_t count = bytes.size() / kPieceBytes;  // whole pieces
  std::vector<uint32_t> pieces(count);
#pragma omp parallel for schedule(static) if (count > 1)
  for (std::size_t i = 0; i < count; ++i) pieces[i] = crc32c(bytes.subspan(i * kPieceBytes, kPieceBytes));
  const uint32_t shift = shift_by_power(kPiecePower);
  for (const uint32_t piece : pieces) before = multiply(shift, before) ^ piece;
  return crc32c(bytes.subspan(count * kPieceBytes), before);
}

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  const std::byte* from = bytes.data();
  std::size_t left = bytes.size();
  uint64_t hash = seed + kPrime5;
  if (left >= 32) {
    std::array<uint64_t, 4> lanes = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
    for (; left >= 32; left -= 32) {
      for (uint64_t& lane : lanes) {
        lane = xxh64_round(lane, load_as<uint64_t>(from));
        from += sizeof(uint64_t);
      }
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = (hash ^ xxh64_round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += bytes.size();
  for (; left >= 8; left -= 8, from += 8) {
    hash = std::rotl(hash ^ xxh64_round(0, load_as<uint64_t>(from)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ load_as<uint32_t>(from) * kPrime1, 23) * kPrime2 + kPrime3;
    from += 4;
    left -= 4;
  }
  for (; left; --left, ++from) hash = std::rotl(hash ^ static_cast<uint8_t>(*from) * kPrime5, 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace cohort::base
