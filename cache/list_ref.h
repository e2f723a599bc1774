// Neighbour lists that a clique of GPUs caches, as one of these GPUs reads them: plain views, passed by value to
// kernels.
//
// A list lies in a slab as int64 degree and int32 or int64 [degree] neighbours, at a multiple of 8 bytes and padded
// with zeros to one. Its directory entry holds the offset and, as the region, the position in the clique of the GPU
// that has it; the length bits are 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "cache/directory.h"
#include "cache/plan/cost.h"
#include "ibp/encoded_ref.h"

namespace cohort::cache {

// Where the neighbours of a node are.
struct ListRef {
  const std::byte* neighbours = nullptr;  // int32 or int64 [degree]; null: not found
  int64_t degree = 0;
  Tier tier = Tier::kHost;
};

// By default nothing is cached.
struct CachedListsRef {
  DirectoryRef directory{};
  std::array<const std::byte*, ibp::kMaxRegions> slabs{};  // of the clique's GPUs, in its order; readable by this GPU
  uint32_t own = 0;                                        // this GPU's position in the clique

  // A list by its number (cache/plan/items.h); without a pointer when it is not cached.
  COHORT_HOST_DEVICE ListRef find(int64_t number) const {
    const uint64_t entry = directory.find(number);
    if (entry == kNoEntry) return {};
    const uint32_t region = ibp::entry_region(entry);
    const std::byte* list = slabs[region] + ibp::entry_offset_bytes(entry);
    const int64_t degree = *reinterpret_cast<const int64_t*>(list);
    return {list + sizeof(int64_t), degree, region == own ? Tier::kLocal : Tier::kPeer};
  }
};

}  // namespace cohort::cache
