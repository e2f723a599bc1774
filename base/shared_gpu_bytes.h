// GPU memory that several processes map.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace cohort::base {

// Reads of memory of cudaMalloc() that another process has opened by cudaIpcOpenMemHandle() are slow where they are
// scattered: random rows of 512 bytes came at 48 GB/s from 15 GB and at 1900 from half a GB, from memory like this one
// at 4170, as from a process's own (H200, driver 580). docs/performance/kernels.md has the table.
class SharedGpuBytes {
 public:
  SharedGpuBytes() = default;
  // Memory of the current GPU. `what` completes "the driver to ..." in errors. `at`: addresses that are reserved, and
  // stay so; null: its own.
  SharedGpuBytes(std::size_t bytes, const char* what, std::byte* at = nullptr);
  // The memory of `bytes` that another process has shared, on the current GPU or on one whose memory it can read.
  SharedGpuBytes(const FileDescriptor& shared, std::size_t bytes, const char* what, std::byte* at = nullptr);

  // Whether the current GPU and its driver can share memory.
  static bool is_supported();

  // To be handed to another process, which maps it.
  FileDescriptor share() const;

  std::byte* data() const noexcept { return data_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Unmap {
    int gpu;
    std::size_t mapped_bytes;
    bool owns_address;
    unsigned long long memory;  // the driver's handle of it
    // Waits until the GPU has done what it was given: it may read here. The memory lives on in other processes that map
    // it.
    void operator()(std::byte* data) const noexcept;
  };
  // Maps the memory that obtain(&its handle, its bytes in whole pages, GPU) has the driver give.
  template <typename Obtain>
  void map(const char* what, std::byte* reserved, Obtain obtain);

  std::unique_ptr<std::byte, Unmap> data_;
  std::size_t bytes_ = 0;
};

// Addresses of the current GPU at which memory is mapped piece by piece, each piece behind the one before: what is
// there stays where it is.
class GrowingGpuBytes {
 public:
  GrowingGpuBytes() = default;
  explicit GrowingGpuBytes(std::size_t most_bytes);  // that all pieces together may have
  ~GrowingGpuBytes();
  GrowingGpuBytes(GrowingGpuBytes&& other) noexcept { *this = std::move(other); }
  GrowingGpuBytes& operator=(GrowingGpuBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(reserved_bytes_, other.reserved_bytes_);
    std::swap(bytes_, other.bytes_);
    std::swap(pieces_, other.pieces_);
    return *this;
  }

  // New memory, in whole pages that have room for `bytes`; the same for memory of another process that add() gave it.
  const SharedGpuBytes& add(std::size_t bytes, const char* what);
  void add(const FileDescriptor& shared, std::size_t bytes, const char* what);

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }  // of all pieces
  const std::vector<SharedGpuBytes>& pieces() const noexcept { return pieces_; }

 private:
  std::byte* next(std::size_t bytes) const;

  std::byte* data_ = nullptr;
  std::size_t reserved_bytes_ = 0, bytes_ = 0;
  std::vector<SharedGpuBytes> pieces_;
};

}  // namespace cohort::base
