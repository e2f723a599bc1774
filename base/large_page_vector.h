// A vector in large pages, for numbers that threads read at scattered places: in pages of 4 KiB, each read of a table
// of more than 8 MB also waits for the translation of its address.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace cohort::base {

template <typename T>
struct LargePageAllocator {
  using value_type = T;
  static constexpr std::size_t kPageBytes = std::size_t{2} << 20;

  LargePageAllocator() = default;
  template <typename U>
  LargePageAllocator(const LargePageAllocator<U>&) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < kPageBytes) return static_cast<T*>(::operator new(bytes));
    void* const data = ::operator new (bytes, std::align_val_t{kPageBytes});
    madvise(data, bytes / kPageBytes * kPageBytes, MADV_HUGEPAGE);  // a hint, which a system may refuse
    return static_cast<T*>(data);
  }
  void deallocate(T* data, std::size_t count) {
    if (count * sizeof(T) < kPageBytes) return ::operator delete(data);
    ::operator delete (data, std::align_val_t{kPageBytes});
  }
  template <typename U>
  bool operator==(const LargePageAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using LargePageVector = std::vector<T, LargePageAllocator<T>>;

}  // namespace cohort::base
