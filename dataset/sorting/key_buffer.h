// Memory for keys whose pages come when they are first touched: large ones, where the system has them.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace cohort::dataset {

// Key [count]; move-only.
template <typename Key>
class KeyBuffer {
 public:
  KeyBuffer() = default;
  explicit KeyBuffer(std::size_t count) : bytes_(count * sizeof(Key)) {
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      base::fail_errno("--memory", base::format_bytes(static_cast<double>(bytes_)) + " to sort in", errno,
                       "give less: what does not fit is sorted on disk");
    }
    data_ = static_cast<Key*>(data);
    madvise(data, bytes_, MADV_HUGEPAGE);  // a wish: without it, as many small pages cost more time
  }
  ~KeyBuffer() {
    if (data_) munmap(data_, bytes_);
  }
  KeyBuffer(KeyBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  KeyBuffer& operator=(KeyBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Key* get() const noexcept { return data_; }

 private:
  Key* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cohort::dataset
