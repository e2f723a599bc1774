// A .npy file that is written from its start to its end, whose length is known at the end only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "dataset/dtype.h"

namespace cohort::dataset {

// An array of one dimension. Written, not mapped: the process holds one buffer of it.
class NpyWriter {
 public:
  NpyWriter(const std::filesystem::path& path, DType dtype);

  // Appends elements. T holds the bits of the dtype.
  template <typename T>
  void append(std::span<const T> elements) {
    append_bytes(std::as_bytes(elements));
  }
  // Writes the header: the file is whole now.
  void finish();
  int64_t size() const noexcept { return static_cast<int64_t>(bytes_ / size_of(dtype_)); }  // elements so far

 private:
  void append_bytes(std::span<const std::byte> bytes);
  void flush();

  std::string place_;
  DType dtype_;
  base::FileDescriptor file_;
  std::size_t bytes_ = 0;  // of data so far
  std::vector<std::byte> buffer_;
};

}  // namespace cohort::dataset
