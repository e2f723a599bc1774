// A file without a name: the kernel removes it with its last descriptor, however the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file_descriptor.h"

namespace cohort::base {

class TemporaryFile {
 public:
  // On the disk of `folder`. Throws base::Error when it cannot be made.
  explicit TemporaryFile(const std::filesystem::path& folder);

  // Appends; throws base::Error when the disk is full.
  void append(const void* data, std::size_t bytes);
  // Reads `bytes` bytes at `offset`, all of which were appended before.
  void read(int64_t offset, void* data, std::size_t bytes) const;
  int64_t bytes() const noexcept { return bytes_; }

 private:
  std::string place_;
  FileDescriptor file_;
  int64_t bytes_ = 0;
};

}  // namespace cohort::base
