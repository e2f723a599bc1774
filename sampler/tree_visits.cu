#include <algorithm>
#include <bit>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "sampler/tree_visits.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

__global__ void move_visits_kernel(TreeVisitsRef from, TreeVisitsRef to) {
  for (int64_t i = base::grid_first(); i < int64_t{1} << from.bits; i += base::grid_step()) {
    if (from.entries[i].key != kNoTreeNode) to.put(from.entries[i].key, from.entries[i].visit);
  }
}

void clear_entries(const base::DeviceArray<TreeVisit>& entries, cudaStream_t stream) {
  cuda_check(cudaMemsetAsync(entries.data(), 0xFF, entries.size() * sizeof(TreeVisit), stream),
             "clear visits of trees");
}

}  // namespace

void TreeVisits::clear(cudaStream_t stream) {
  if (entries_.size() > 0) clear_entries(entries_, stream);
}

void TreeVisits::reserve(int64_t num_keys, int max_blocks, cudaStream_t stream) {
  constexpr int kFewestBits = 12;
  const int bits = std::max(kFewestBits, static_cast<int>(std::bit_width(2 * static_cast<uint64_t>(num_keys))));
  if (bits <= bits_) return;
  base::DeviceArray<TreeVisit> larger(std::size_t{1} << bits, "allocate visits of trees");
  clear_entries(larger, stream);
  if (entries_.size() > 0) {
    move_visits_kernel<<<base::grid_for(int64_t{1} << bits_, max_blocks), base::kBlockThreads, 0, stream>>>(
        ref(), {larger.data(), bits});
    cuda_check(cudaGetLastError(), "launch the move of visits of trees");
  }
  entries_ = std::move(larger);  // the old memory is freed once the kernel is done with it: cudaFree waits
  bits_ = bits;
}

}  // namespace cohort::sampler
