#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/launch.h"
#include "sampler/tree_places.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

__global__ void move_places_kernel(TreePlacesRef from, TreePlacesRef to) {
  for (int64_t i = base::grid_first(); i < int64_t{1} << from.bits; i += base::grid_step()) {
    if (from.entries[i].key != kNoTreeNode) to.put(from.entries[i].key, from.entries[i].place);
  }
}

void clear_entries(const base::DeviceArray<TreePlace>& entries, cudaStream_t stream) {
  cuda_check(cudaMemsetAsync(entries.data(), 0xFF, entries.size() * sizeof(TreePlace), stream),
             "clear places of trees");
}

}  // namespace

void TreePlaces::clear(cudaStream_t stream) {
  if (entries_.size() > 0) clear_entries(entries_, stream);
}

void TreePlaces::reserve(int64_t num_keys, int max_blocks, cudaStream_t stream) {
  constexpr int kFewestBits = 12;
  const int bits = std::max(kFewestBits, static_cast<int>(std::bit_width(2 * static_cast<uint64_t>(num_keys))));
  if (bits <= bits_) return;
  base::DeviceArray<TreePlace> larger(std::size_t{1} << bits, "allocate places of trees");
  clear_entries(larger, stream);
  if (entries_.size() > 0) {
    move_places_kernel<<<base::grid_for(int64_t{1} << bits_, max_blocks), base::kBlockThreads, 0, stream>>>(
        ref(), {larger.data(), bits});
    cuda_check(cudaGetLastError(), "launch the move of places of trees");
  }
  entries_ = std::move(larger);  // the old memory is freed once the kernel is done with it: cudaFree waits
  bits_ = bits;
}

}  // namespace cohort::sampler
