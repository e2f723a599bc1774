// GPU memory that several processes map.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace cohort::base {

// Reads of memory of cudaMalloc() that another process has opened by cudaIpcOpenMemHandle() are slow where they are
// scattered: random rows of 512 bytes came at 48 GB/s from 15 GB and at 1900 from half a GB, from memory like this one
// at 4170, as from a process's own (H200, driver 580). docs/performance.md has the table.
class SharedGpuBytes {
 public:
  SharedGpuBytes() = default;
  // Memory of the current GPU. `what` completes "the driver to ..." in errors.
  SharedGpuBytes(std::size_t bytes, const char* what);
  // The memory of `bytes` that another process has shared, on the current GPU or on one whose memory it can read.
  SharedGpuBytes(const FileDescriptor& shared, std::size_t bytes, const char* what);
  // The same at addresses that are reserved, and stay so.
  SharedGpuBytes(std::size_t bytes, std::byte* at, const char* what);
  SharedGpuBytes(const FileDescriptor& shared, std::size_t bytes, std::byte* at, const char* what);
  // Waits until the GPU has done what it was given: it may read here. The memory lives on in other processes that map
  // it.
  ~SharedGpuBytes();
  SharedGpuBytes(SharedGpuBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
        memory_(std::exchange(other.memory_, 0)),
        owns_address_(other.owns_address_),
        gpu_(other.gpu_) {}
  SharedGpuBytes& operator=(SharedGpuBytes&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(memory_, other.memory_);
    std::swap(owns_address_, other.owns_address_);
    std::swap(gpu_, other.gpu_);
    return *this;
  }

  // Whether the current GPU and its driver can share memory.
  static bool is_supported();

  // To be handed to another process, which maps it.
  FileDescriptor share() const;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void make(std::size_t bytes, const char* what);
  void open(const FileDescriptor& shared, std::size_t bytes, const char* what);
  void map(const char* what);

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0, mapped_bytes_ = 0;
  unsigned long long memory_ = 0;  // the driver's handle of it
  bool owns_address_ = true;
  int gpu_ = 0;
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
