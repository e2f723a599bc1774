// Rows to test with: every kind of content, at any dtype and width, the same bits every time.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "ibp/codecs.h"

namespace cohort::ibp {

// Plain rows that own their bytes.
struct Rows {
  std::vector<std::byte> bytes;
  RowTable table;
};

inline Rows make_rows(Dtype dtype, uint32_t num_columns, int64_t num_rows) {
  Rows rows;
  rows.table = {nullptr, num_rows, dtype, num_columns};
  rows.bytes.resize(static_cast<std::size_t>(num_rows) * rows.table.row_bytes());
  rows.table.data = rows.bytes.data();
  return rows;
}

enum class Content { kZeros, kNoise, kDense, kOnes, kConstant, kPowers, kSpecial, kMixed, kFew };

inline const char* name_of(Content content) {
  constexpr const char* kNames[] = {"zeros", "noise", "dense", "ones", "constant", "powers", "special", "mixed", "few"};
  return kNames[static_cast<int>(content)];
}

// A bell-shaped value of standard deviation 1, from sums of uniform ones.
inline double bell(uint64_t row, uint64_t column) {
  double sum = 0;
  for (uint64_t i = 0; i < 6; ++i) {
    const uint64_t two = base::random_64(base::key_of(7), row, column * 16 + i);
    sum += static_cast<double>((two >> 32) + (two & 0xffffffff)) / 4294967296.0;
  }
  return sum - 6;
}

// The element's bits for a float value in `dtype` (truncated), or the integer for the others.
inline uint64_t bits_of(Dtype dtype, double value) {
  const auto single = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &single, 4);
  switch (dtype) {
    case Dtype::kFloat32:
      return bits;
    case Dtype::kBfloat16:
      return bits >> 16;
    case Dtype::kFloat16: {
      const int exponent = static_cast<int>((bits >> 23) & 0xff) - 112;
      const uint32_t sign = (bits >> 16) & 0x8000;
      if (exponent <= 0) return sign;
      return exponent >= 31 ? sign | 0x7c00 : sign | static_cast<uint32_t>(exponent) << 10 | ((bits >> 13) & 0x3ff);
    }
    default:
      return static_cast<uint64_t>(static_cast<int64_t>(value * 16));
  }
}

// NaNs with payloads, infinities, zeros, subnormals, the largest and the smallest numbers.
inline uint64_t special_bits(Dtype dtype, uint64_t draw) {
  constexpr uint32_t kFloat[] = {0x7fc00001, 0xffc12345, 0x7f800001, 0x7f800000, 0xff800000, 0x80000000,
                                 0x00000001, 0x807fffff, 0x7f7fffff, 0x00800000, 0x3f800000, 0x00000000};
  const uint32_t bits = kFloat[draw % 12];
  if (dtype == Dtype::kBfloat16) return bits >> 16;
  if (dtype == Dtype::kFloat16) {
    constexpr uint16_t kHalf[] = {0x7e01, 0xfd23, 0x7c01, 0x7c00, 0xfc00, 0x8000,
                                  0x0001, 0x83ff, 0x7bff, 0x0400, 0x3c00, 0};
    return kHalf[draw % 12];
  }
  return dtype == Dtype::kBits64 ? (uint64_t{bits} << 32) | bits : bits;
}

inline uint64_t element_of(Content content, Dtype dtype, uint64_t row, uint64_t column) {
  const uint64_t draw = base::random_64(base::key_of(11), row, column);
  switch (content) {
    case Content::kZeros:
      return 0;
    case Content::kNoise:
      return draw;
    case Content::kDense:
      return bits_of(dtype, bell(row, column));
    case Content::kOnes:
      return draw % 50 == 0 ? bits_of(dtype, 1.0) : 0;
    case Content::kConstant:
      return draw % 20 == 0 ? bits_of(dtype, 1.0 / static_cast<double>(row % 30 + 1)) : 0;
    case Content::kPowers:
      return draw % 7 == 0 ? bits_of(dtype, static_cast<double>(draw % 1000) / 1000 + 0.5) : 0;
    case Content::kSpecial:
      return draw % 3 ? special_bits(dtype, draw >> 8) : bits_of(dtype, bell(row, column));
    case Content::kFew:
      return bits_of(dtype, static_cast<double>(draw % 200));
    case Content::kMixed:
      return element_of(static_cast<Content>(row % 7), dtype, row, column);
  }
  return 0;
}

inline Rows make_rows(Content content, Dtype dtype, uint32_t num_columns, int64_t num_rows) {
  Rows rows = make_rows(dtype, num_columns, num_rows);
  const uint32_t size = element_bytes(dtype);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (uint32_t column = 0; column < num_columns; ++column) {
      const uint64_t element = element_of(content, dtype, static_cast<uint64_t>(row), column);
      std::memcpy(rows.bytes.data() + row * int64_t{rows.table.row_bytes()} + column * size, &element, size);
    }
  }
  return rows;
}

// Every codec that can encode these rows, but planes, fitted on `table`; invariant with both chunk sizes.
inline std::vector<Profile> all_profiles(const RowTable& table) {
  std::vector<Profile> profiles;
  for (const uint32_t chunk_bytes : {4u, 8u}) {
    profiles.push_back(fit(table, {.codec = "invariant", .chunk_bytes = chunk_bytes}).profile);
  }
  for (const Codec codec : kCodecs) {
    const bool fits = with_codec(codec, [&](auto traits) { return traits.unfit(table).empty(); });
    if (!fits || codec == Codec::kInvariant || codec == Codec::kPlanes) continue;
    profiles.push_back(fit(table, {.codec = name_of(codec)}).profile);
  }
  profiles.push_back(fit(table).profile);
  return profiles;
}

inline constexpr Content kAllContents[] = {Content::kZeros,   Content::kNoise,    Content::kDense,
                                           Content::kOnes,    Content::kConstant, Content::kPowers,
                                           Content::kSpecial, Content::kMixed,    Content::kFew};
inline constexpr Dtype kAllDtypes[] = {Dtype::kUint8,   Dtype::kFloat16, Dtype::kBfloat16,
                                       Dtype::kFloat32, Dtype::kBits32,  Dtype::kBits64};

// All rows.
inline std::vector<std::byte> decoded(const EncodedRows& encoded) {
  std::vector<std::byte> out(static_cast<std::size_t>(encoded.ref.num_rows) * encoded.ref.row_bytes);
  decode(encoded, out.data());
  return out;
}

}  // namespace cohort::ibp
