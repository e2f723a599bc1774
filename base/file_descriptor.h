// Owner of a file descriptor, and writing through one.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace cohort::base {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const noexcept { return number_; }
  explicit operator bool() const noexcept { return number_ >= 0; }
  // Closes the file after it was written; throws Error naming `place` where only this tells that a write has failed.
  void close(const std::string& place);

 private:
  int number_ = -1;
};

// Writes all bytes at the descriptor's position. Throws Error naming `place`, as when the disk is full.
void write_all(const FileDescriptor& file, std::span<const std::byte> bytes, const std::string& place);
// The same at `offset`; the position stays.
void write_all_at(const FileDescriptor& file, uint64_t offset, std::span<const std::byte> bytes,
                  const std::string& place);
// Waits until a file or folder is on disk. Throws Error naming `place`, as when an earlier write has failed.
void sync_to_disk(const FileDescriptor& file, const std::string& place);

}  // namespace cohort::base
