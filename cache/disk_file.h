// A file whose bytes are read when they are needed, past the page cache where the file system allows that (O_DIRECT).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/file_descriptor.h"

namespace cohort::cache {

// As ::pread; tests have others.
using ReadFunction = std::function<ssize_t(int file, void* to, std::size_t bytes, off_t offset)>;

// Tells a file from others that had its name.
struct FileState {
  int64_t bytes = 0, changed_ns = 0;
  bool operator==(const FileState&) const = default;
};
// Throws base::Error when there is no such file.
FileState state_of(const std::string& path);

class DiskFile {
 public:
  static constexpr std::size_t kBlockBytes = 4096;  // a multiple of the blocks of drives

  // Throws base::Error for a file that cannot be read.
  explicit DiskFile(std::string path, ReadFunction read = ::pread);

  const std::string& path() const { return path_; }
  // False: the file system refuses O_DIRECT, so its page cache takes memory.
  bool is_direct() const { return is_direct_; }
  // Reads whole blocks from `offset` on: as many of `to` as the file has, at least `needed` bytes. `offset`, `to` and
  // its size are multiples of kBlockBytes. For any number of threads. Throws base::Error naming file and offset.
  void read(uint64_t offset, std::span<std::byte> to, std::size_t needed) const;
  // Throws base::Error when the file was written to, or cut short, since it was opened.
  void demand_unchanged() const;
  // Throws base::Error unless it was this one when it was opened.
  void demand(const FileState& expected) const { demand_same(expected, opened_); }

 private:
  FileState state() const;
  void demand_same(const FileState& expected, const FileState& found) const;
  bool reads_directly() const;

  std::string path_;
  ReadFunction read_;
  base::FileDescriptor file_;
  bool is_direct_ = false;
  FileState opened_;
};

// Memory for blocks of a DiskFile.
class BlockBuffer {
 public:
  BlockBuffer() = default;
  ~BlockBuffer();
  BlockBuffer(const BlockBuffer&) = delete;
  BlockBuffer& operator=(const BlockBuffer&) = delete;
  // Of at least so many bytes; what was in it is lost when it has to grow. Throws base::Error without memory.
  std::span<std::byte> reserve(std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::cache
