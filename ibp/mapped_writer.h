// A file that is written through memory, and appears whole. Internal to ibp/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>

#include "base/mapping.h"
#include "base/whole_file.h"

namespace cohort::ibp {

// Grows at its end, by write() or through windows: parts of it mapped into memory, which any threads fill. While one
// window is filled, a thread beside the caller's unmaps the one before it and reserves the space of the next.
class MappedWriter {
 public:
  explicit MappedWriter(std::string path) : file_(std::move(path)) {}
  ~MappedWriter() { settle(); }  // without commit(): removes what was written
  MappedWriter(const MappedWriter&) = delete;
  MappedWriter& operator=(const MappedWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  // Lets fill(out) write up to `max_bytes` in place, by any threads, and say how many; what it writes beyond is lost.
  template <typename Fill>
  void write_mapped(uint64_t max_bytes, Fill fill) {
    if (max_bytes == 0) return;
    Window window = open_window(max_bytes);
    position_ += fill(window.begin);
    close_window(std::move(window), max_bytes);
  }
  // Zeros up to a multiple of kSectionAlign.
  void align();
  uint64_t position() const { return position_; }
  // Writes `header` over the first bytes and gives the file its name.
  void commit(std::span<const std::byte> header);

 private:
  struct Window {
    base::Mapping mapping;       // whole pages
    std::byte* begin = nullptr;  // where the file ends so far
  };

  Window open_window(uint64_t max_bytes);
  void close_window(Window window, uint64_t max_bytes_of_next);
  // Makes the file reach to `end`, with space on disk where the file system can promise it: 0, or errno.
  int reserve(uint64_t end);
  void settle();
  [[noreturn]] void fail(const char* expected, int error) const;

  base::WholeFile file_;
  uint64_t position_ = 0;
  uint64_t reserved_ = 0;    // up to where there is space
  std::future<void> aside_;  // what the other thread does: it alone reads and writes reserved_ until it is settled
};

}  // namespace cohort::ibp
