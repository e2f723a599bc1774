#include "dataset/dtype.h"

#include <array>
#include <bit>

namespace cohort::dataset {
namespace {

struct Row {
  DType dtype;
  std::size_t size_bytes;
  const char* name;
  const char* descr;
  uint32_t dlpack_code;
};

constexpr uint32_t kInt = 0, kUint = 1 << 8, kFloat = 2 << 8, kBfloat = 4 << 8;  // of DLPack

constexpr std::array<Row, 6> kRows = {{{DType::uint8, 1, "uint8", "|u1", kUint | 8},
                                       {DType::float16, 2, "float16", "<f2", kFloat | 16},
                                       {DType::bfloat16, 2, "bfloat16", "<u2", kBfloat | 16},
                                       {DType::float32, 4, "float32", "<f4", kFloat | 32},
                                       {DType::int32, 4, "int32", "<i4", kInt | 32},
                                       {DType::int64, 8, "int64", "<i8", kInt | 64}}};

const Row& row_of(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t size_of(DType dtype) { return row_of(dtype).size_bytes; }

const char* name_of(DType dtype) { return row_of(dtype).name; }

uint32_t dlpack_code_of(DType dtype) { return row_of(dtype).dlpack_code; }

const char* descr_of(DType dtype) { return row_of(dtype).descr; }

std::optional<DType> dtype_named(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of_descr(std::string_view descr) {
  for (const Row& row : kRows) {
    if (descr == row.descr) return row.dtype;
  }
  return std::nullopt;
}

uint16_t float16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);   // NaN
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // rounds beyond 65504: infinity
  const uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return static_cast<uint16_t>(sign);  // below half the least subnormal
  const bool normal = exponent >= 113;
  const uint32_t shift = normal ? 13 : 126 - exponent;  // bits of the significand dropped
  const uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t kept = significand >> shift;
  const uint32_t dropped = significand & ((1u << shift) - 1), half = 1u << (shift - 1);
  const uint32_t round_up = dropped > half || (dropped == half && (kept & 1u)) ? 1 : 0;
  // A carry out of the significand lands in the exponent, which is the right answer. `kept` of a normal number has its
  // leading one at bit 10, which adds one to the exponent field: hence 113.
  const uint32_t base = normal ? (exponent - 113) << 10 : 0;
  return static_cast<uint16_t>(sign | (base + kept + round_up));
}

uint16_t bfloat16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace cohort::dataset
