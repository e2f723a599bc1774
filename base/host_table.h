// A large table in host memory that kernels of every GPU read in place.
//
// Where the GPUs can, it is memory that the driver manages and keeps on the host: GPUs translate its addresses by large
// pages, those of page-locked memory 64 KiB at a time, however it came to be. Rows of 512 bytes far from each other in
// tens of GB are read by an H200 at 51 GB/s from the one, in any order, and at 17 from the other, 46 by address
// (docs/performance/kernels.md).
#pragma once

#include <cstddef>
#include <memory>

#include "base/owners.h"

namespace cohort::base {

// Tables of a process are managed memory up to this share of what the current GPU has free; further ones are
// page-locked.
constexpr double kManagedShare = 0.8;

class HostTable {
 public:
  HostTable() = default;
  // Managed memory grows as it is first written, best by all threads at once. The environment's
  // COHORT_HOST_TABLES=page-locked does without it. Throws Error.
  explicit HostTable(std::size_t bytes);

  std::byte* data() const noexcept { return managed_ ? managed_.get() : pinned_.data(); }
  std::size_t bytes() const noexcept { return bytes_; }
  // To be called when it is written, before kernels of the current GPU read it; else they fault on its pages first.
  void open_to_gpu() const;

 private:
  struct Free {
    std::size_t bytes;
    void operator()(std::byte* data) const noexcept;
  };

  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> managed_{nullptr, Free{0}};
  PinnedBytes pinned_;  // where managed memory is not wanted, or GPUs cannot read it beside the host
};

}  // namespace cohort::base
