// .npy files as memory: mapped for reading, and mapped for writing.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mapping.h"
#include "dataset/dtype.h"
#include "dataset/npy_header.h"

namespace cohort::dataset {

// True when elements of C++ type T hold the bits of `dtype` (both 16-bit floats are held as uint16_t).
template <typename T>
constexpr bool holds(DType dtype) {
  if constexpr (std::is_same_v<T, uint8_t>) return dtype == DType::uint8;
  if constexpr (std::is_same_v<T, uint16_t>) return dtype == DType::float16 || dtype == DType::bfloat16;
  if constexpr (std::is_same_v<T, float>) return dtype == DType::float32;
  if constexpr (std::is_same_v<T, int32_t>) return dtype == DType::int32;
  if constexpr (std::is_same_v<T, int64_t>) return dtype == DType::int64;
  return false;
}

// An array in a .npy file: header and shape known, data mapped. `Byte` is const for reading.
template <typename Byte>
class NpyArray {
 public:
  NpyArray() = default;
  NpyArray(base::Mapping mapping, NpyHeader header, std::string place)
      : mapping_(std::move(mapping)), header_(std::move(header)), place_(std::move(place)) {}

  DType dtype() const noexcept { return header_.dtype; }
  const std::vector<int64_t>& shape() const noexcept { return header_.shape; }
  int64_t size() const { return header_.num_elements(); }       // elements
  std::size_t bytes() const { return header_.data_bytes(); }    // of the data
  const std::string& place() const noexcept { return place_; }  // the file, for messages
  bool is_mapped() const noexcept { return mapping_.data() != nullptr; }
  Byte* data() const noexcept { return mapping_.data() + header_.header_bytes; }
  void release() const noexcept { mapping_.release(); }

  // The elements as T; throws when the file holds another type.
  template <typename T>
  auto as() const {
    if (!holds<T>(dtype())) {
      throw base::Error({place_, "the element type asked for", std::string("dtype ") + name_of(dtype()), ""});
    }
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(data()), static_cast<std::size_t>(size()));
  }

 private:
  base::Mapping mapping_;
  NpyHeader header_;
  std::string place_;
};

using MappedArray = NpyArray<const std::byte>;
using MappedOutput = NpyArray<std::byte>;

// What a reader demands of a file.
struct NpyDemand {
  std::vector<DType> dtypes;   // any of these
  std::vector<int64_t> shape;  // -1: any length
};

// Maps a .npy file. Throws base::Error when it is missing, truncated or not what the format allows.
MappedArray map_npy(const std::filesystem::path& path);

// The same, and throws unless dtype and shape are as demanded.
MappedArray map_npy(const std::filesystem::path& path, const NpyDemand& demand);

// Creates a .npy file of zeros to be filled in place; its space on disk is reserved at once.
MappedOutput create_npy(const std::filesystem::path& path, DType dtype, std::vector<int64_t> shape);

}  // namespace cohort::dataset
