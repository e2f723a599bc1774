// The element types a data set may hold, and the two 16-bit floats as bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cohort::dataset {

enum class DType { uint8, float16, bfloat16, float32, int32, int64 };

// Bytes of one element.
std::size_t size_of(DType dtype);

// "float32": the name used in meta.json, in messages and on the command line.
const char* name_of(DType dtype);

// The type with this name; nothing when there is none.
std::optional<DType> dtype_named(std::string_view name);

// As in DLPack: type code << 8 | bits.
uint32_t dlpack_code_of(DType dtype);

// The NumPy descr ("<f4"). NumPy has no bfloat16: it is stored as uint16 ("<u2"), and "<u2" in a file means bfloat16.
const char* descr_of(DType dtype);

// The type with this NumPy descr; nothing when the format has no such type.
std::optional<DType> dtype_of_descr(std::string_view descr);

// True for the types that features may have.
constexpr bool is_feature_dtype(DType dtype) { return dtype != DType::int32 && dtype != DType::int64; }

// The nearest float16 / bfloat16, ties to even, as bits. Beyond the range: infinity. NaN stays NaN.
uint16_t float16_bits(float value);
uint16_t bfloat16_bits(float value);

}  // namespace cohort::dataset
