// Where the rows that a clique of GPUs caches lie, as one of these GPUs looks it up.
//
// A bitmap of the cached nodes with ranks leads from a node to its entry: two reads for a cached node, one for another,
// V / 4 bytes that mostly stay in the GPU's L2 cache, no probing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "base/owners.h"
#include "cache/row_bits.h"

namespace cohort::cache {

inline constexpr uint64_t kNoEntry = ~uint64_t{0};

struct DirectoryRef {
  const uint64_t* words = nullptr;    // as RowBitsRef has them
  const uint64_t* entries = nullptr;  // uint64 [cached nodes], in order of the nodes; ibp::make_entry() with a region

  // kNoEntry for a node that is not cached.
  COHORT_HOST_DEVICE uint64_t find(int64_t node) const {
    const int64_t number = RowBitsRef{words}.find(node);
    return number < 0 ? kNoEntry : entries[number];
  }
};

// The arrays of a DirectoryRef in host memory. `entry_of`: uint64 [V], kNoEntry where nothing is cached.
struct DirectoryArrays {
  explicit DirectoryArrays(std::span<const uint64_t> entry_of);
  DirectoryRef ref() const { return {cached.words().data(), entries.data()}; }
  RowBits cached;
  std::vector<uint64_t> entries;
};

// The same in the memory of the current GPU.
class Directory {
 public:
  Directory() = default;  // nothing is cached
  explicit Directory(const DirectoryArrays& arrays);
  DirectoryRef ref() const { return {words_.data(), entries_.data()}; }
  int64_t num_entries() const { return static_cast<int64_t>(entries_.size()); }  // nodes that are cached

 private:
  base::DeviceArray<uint64_t> words_, entries_;
};

}  // namespace cohort::cache
