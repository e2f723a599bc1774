// A large table in host memory that kernels of every GPU read in place.
//
// Where the GPUs can, it is memory that the driver manages and keeps on the host: GPUs translate its addresses by pages
// of 2 MiB, those of page-locked memory by 4 KiB, however it came to be. With rows of 512 bytes far from each other an
// H200 reads 51 GB/s of the one in any order, of the other 15, and 38 by address (tens of GB; docs/performance.md).
#pragma once

#include <cstddef>
#include <memory>

#include "base/owners.h"

namespace cohort::base {

class HostTable {
 public:
  HostTable() = default;
  // Managed memory grows as it is first written, best by all threads at once. Throws Error.
  explicit HostTable(std::size_t bytes);

  std::byte* data() const noexcept { return managed_ ? managed_.get() : pinned_.data(); }
  std::size_t bytes() const noexcept { return bytes_; }
  // Whether places in any order are read as fast as in order.
  bool in_any_order() const noexcept { return managed_ != nullptr; }
  // To be called when it is written, before kernels of the current GPU read it; else they fault at each page first.
  void open_to_gpu() const;

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept { cudaFree(data); }
  };

  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> managed_;
  PinnedBytes pinned_;  // where there are GPUs that cannot read managed memory beside the host
};

}  // namespace cohort::base
