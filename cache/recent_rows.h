// Rows that the batches before left in GPU memory: batches are written into a few slots in turn, and what a slot holds
// stays until it is written again. A row that is there is copied instead of fetched.
//
// One uint32 a node says in which slot, at which position it was written last. The slot's own list of nodes proves it,
// so nothing is ever cleared.
#pragma once

#include <array>
#include <cstdint>

#include "base/host_device.h"
#include "base/owners.h"
#include "cache/directory.h"
#include "ibp/gpu.h"

namespace cohort::cache {

// A batch as its slot has it.
struct RecentBatch {
  const int64_t* nodes = nullptr;   // int64 [count]
  const std::byte* rows = nullptr;  // [count, row_bytes]
  int64_t count = 0;
};

struct RecentRef {
  static constexpr int kPositionBits = 29;
  static constexpr uint32_t kPositionMask = (uint32_t{1} << kPositionBits) - 1;

  uint32_t* last = nullptr;  // uint32 [V], slot and position; null: no row is copied
  std::array<RecentBatch, ibp::kMaxRegions> batches;
  uint32_t row_bytes = 0;
  uint32_t slot = 0;  // that is being written

#ifdef __CUDACC__
  // The place of a node's row as ibp::make_entry() has it, slots being regions; kNoEntry: no slot has it.
  __device__ uint64_t find(int64_t node) const {
    if (!last) return kNoEntry;
    const uint32_t seen = last[node], position = seen & kPositionMask, in = seen >> kPositionBits;
    const RecentBatch& batch = batches[in];
    if (position >= batch.count || batch.nodes[position] != node) return kNoEntry;
    return ibp::entry_in_region(ibp::make_entry(uint64_t{position} * row_bytes, row_bytes, true), in);
  }
  __device__ void note(int64_t node, int64_t position) const {
    if (last) last[node] = (slot << kPositionBits) | static_cast<uint32_t>(position);
  }
#endif
};

// What a GPU remembers of its slots.
class RecentRows {
 public:
  RecentRows() = default;  // nothing
  // Slots from ibp::kMaxRegions on are not remembered. Rows whose bytes are no multiple of 4 are never copied.
  RecentRows(int64_t num_nodes, int64_t row_bytes);
  bool remembers(int slot) const;
  // For the batch that is written into `slot` now: what the others hold. Afterwards the slot holds `batch`.
  RecentRef turn_to(int slot, const RecentBatch& batch);
  // Nothing that the slots hold now is copied.
  void forget() { batches_ = {}; }
  bool any() const { return last_.size() > 0; }

 private:
  base::DeviceArray<uint32_t> last_;  // uint32 [V]
  uint32_t row_bytes_ = 0;
  std::array<RecentBatch, ibp::kMaxRegions> batches_;
};

}  // namespace cohort::cache
