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

namespace cohort::cache {

inline constexpr uint64_t kNoEntry = ~uint64_t{0};

struct DirectoryRef {
  const uint64_t* words = nullptr;  // uint64 [ceil(V / 32)]: flags of 32 nodes, and above them how many are set before
  const uint64_t* entries = nullptr;  // uint64 [cached nodes], in order of the nodes; ibp::make_entry() with a region

  // kNoEntry for a node that is not cached.
  COHORT_HOST_DEVICE uint64_t find(int64_t node) const {
    if (!words) return kNoEntry;
    const uint64_t word = words[node / 32];
    const uint32_t flags = static_cast<uint32_t>(word), bit = 1u << (node % 32);
    if ((flags & bit) == 0) return kNoEntry;
#ifdef __CUDA_ARCH__
    const int before = __popc(flags & (bit - 1));
#else
    const int before = __builtin_popcount(flags & (bit - 1));
#endif
    return entries[(word >> 32) + static_cast<uint32_t>(before)];
  }
};

// The arrays of a DirectoryRef in host memory. `entry_of`: uint64 [V], kNoEntry where nothing is cached.
struct DirectoryArrays {
  explicit DirectoryArrays(std::span<const uint64_t> entry_of);
  DirectoryRef ref() const { return {words.data(), entries.data()}; }
  std::vector<uint64_t> words, entries;
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
