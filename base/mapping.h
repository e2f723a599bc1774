// Pages of a process: of a file, or memory of its own.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/file_descriptor.h"

namespace cohort::base {

enum class Access { kReadOnly, kReadWrite };

// Move-only.
class Mapping {
 public:
  Mapping() = default;
  // The first `bytes` (not 0) of a file, or those from `offset`, a multiple of 4096, shared with all that map it.
  static Mapping of(const FileDescriptor& file, std::size_t bytes, Access access, const std::string& place,
                    std::size_t offset = 0);
  // All of an existing regular file; nothing where it is empty.
  static Mapping of(const std::string& path, Access access = Access::kReadOnly);
  // Zeros, whose pages take memory when they are first touched: large ones, where the system has them. Throws Error
  // naming `place`, the bytes and their `purpose`, and `hint` where there are no addresses for them.
  static Mapping zeros(std::size_t bytes, const char* place, const char* purpose, const char* hint = "");
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Gives the pages of a file that were read back to the system; they come again when they are touched.
  void release() const noexcept;

 private:
  Mapping(void* data, std::size_t bytes) : data_(static_cast<std::byte*>(data)), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::base
