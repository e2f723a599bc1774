// A file without a name: the kernel removes it with its last descriptor, however the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace cohort::dataset {

class TemporaryFile {
 public:
  // On the disk of `folder`. Throws base::Error when it cannot be made.
  explicit TemporaryFile(const std::filesystem::path& folder);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // Appends; throws base::Error when the disk is full.
  void append(const void* data, std::size_t bytes);
  // Reads `bytes` bytes at `offset`, all of which were appended before.
  void read(int64_t offset, void* data, std::size_t bytes) const;
  int64_t bytes() const noexcept { return bytes_; }

 private:
  std::string place_;
  int file_;
  int64_t bytes_ = 0;
};

// Writes all bytes at the descriptor's position; throws base::Error naming `place` when the disk is full.
void write_all(int file, const void* data, std::size_t bytes, const std::string& place);

}  // namespace cohort::dataset
