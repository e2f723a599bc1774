#include "cache/recent_rows.h"

namespace cohort::cache {
namespace {

constexpr int64_t kMostRowBytes = 4 * 0xffff;  // of an entry

}  // namespace

RecentRows::RecentRows(int64_t num_nodes, int64_t row_bytes) {
  if (row_bytes <= 0 || row_bytes % 4 != 0 || row_bytes > kMostRowBytes) return;
  row_bytes_ = static_cast<uint32_t>(row_bytes);
  last_ = base::DeviceArray<uint32_t>(static_cast<std::size_t>(num_nodes), "allocate where each node's row was last");
  base::fill_gpu(last_.data(), 0xFF, last_.size() * sizeof(uint32_t), "clear where each node's row was last");
}

bool RecentRows::remembers(int slot) const { return any() && slot >= 0 && slot < ibp::kMaxRegions; }

RecentRef RecentRows::turn_to(int slot, const RecentBatch& batch) {
  RecentRef ref;
  if (!remembers(slot)) return ref;
  const auto at = static_cast<std::size_t>(slot);
  batches_[at] = {};
  ref = {last_.data(), batches_, row_bytes_, static_cast<uint32_t>(slot)};
  if (batch.count <= int64_t{RecentRef::kPositionMask}) batches_[at] = batch;
  return ref;
}

}  // namespace cohort::cache
