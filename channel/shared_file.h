// A file mapped into several processes, with its space reserved.
#pragma once

#include <cstddef>
#include <filesystem>
#include <utility>

namespace cohort::channel {

// Throws Error when it is no folder.
std::size_t free_bytes_of(const std::filesystem::path& folder);

class SharedFile {
 public:
  SharedFile() = default;
  ~SharedFile();
  SharedFile(SharedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedFile& operator=(SharedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Makes the file (mode 0600), reserves `bytes` for it, maps it. Throws Error naming need and space when the
  // file system is too small, so that nobody meets a bus error later.
  static SharedFile create(const std::filesystem::path& path, std::size_t bytes);
  // Maps an existing file as long as it is.
  enum class Access { kReadOnly, kReadWrite };
  static SharedFile open(const std::filesystem::path& path, Access access = Access::kReadWrite);

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::channel
