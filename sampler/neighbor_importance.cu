// The part of importance sampling (draw.h) in a CudaNeighborSampler: how many edges are drawn from each list.
#include "sampler/neighbor_kernels.cuh"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {
namespace {

constexpr int kAtOnce = 4;  // candidates that a thread reads

// Calls use(i, first, step) for each list i: by a warp, or by all threads of a block. Of the list's candidates a thread
// is to take each step-th one from `first` on.
template <typename Use>
__device__ void for_each_list(const ImportanceLists& lists, Use use) {
  const int64_t size = start_count(lists.counts, lists.size).lists;
  const auto is_long = [&](int64_t i) { return lists.list[i].degree >= kLongList; };
  for (int64_t i = grid_first() / kWarp; i < size; i += grid_step() / kWarp) {
    if (!is_long(i)) use(i, static_cast<int>(threadIdx.x % kWarp), kWarp);
  }
  for_each_of_block(size, is_long, [&](int64_t i) { use(i, static_cast<int>(threadIdx.x), kBlockThreads); });
}

// Calls use(candidates) with some of the list's candidates, int64 [kAtOnce], as the list calls them; below 0: none.
template <bool kExcludes, typename Use>
__device__ void for_each_candidate(const ImportanceLists& lists, int64_t i, int64_t first, int64_t step, Use use) {
  const DrawnList list = lists.list[i];
  ExcludedRef excluded{};
  if constexpr (kExcludes) excluded = lists.exclusions.of_list(i);
  for (; first < list.degree; first += kAtOnce * step) {
    int64_t candidates[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t position = first + k * step;
      candidates[k] = -1;
      if (position < list.degree) {
        candidates[k] = neighbour_at(list, kExcludes ? pass_over(excluded, position) : position, lists.index_bytes);
      }
    }
    use(candidates);
  }
}

template <bool kExcludes>
__global__ void __launch_bounds__(kBlockThreads) note_least_kernel(const __grid_constant__ ImportanceLists lists) {
  uint32_t* const least = lists.least.of_node;
  for_each_list(lists, [&](int64_t i, int first, int step) {
    if (first == 0) lists.sums[i] = {};
    const uint32_t own = lists.least.entry(LeastDegrees::least_of(lists.list[i].degree, lists.fanout));
    for_each_candidate<kExcludes>(lists, i, first, step, [&](const int64_t(&candidates)[kAtOnce]) {
      uint32_t found[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) found[k] = candidates[k] < 0 ? 0 : __ldcg(least + candidates[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (found[k] > own) atomicMin(least + candidates[k], own);
      }
    });
  });
}

template <bool kExcludes>
__global__ void __launch_bounds__(kBlockThreads) sum_least_kernel(const __grid_constant__ ImportanceLists lists) {
  for_each_list(lists, [&](int64_t i, int first, int step) {
    if (lists.list[i].degree <= lists.fanout) return;
    LeastDegrees own;
    for_each_candidate<kExcludes>(lists, i, first, step, [&](const int64_t(&candidates)[kAtOnce]) {
      uint32_t least[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) least[k] = candidates[k] < 0 ? 0 : lists.least.degree(candidates[k]);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (least[k] > 0) own.add(least[k]);
      }
    });
    for (int apart = kWarp / 2; apart > 0; apart /= 2) {
      own.sum += __shfl_xor_sync(kWholeWarp, own.sum, apart);
      own.inverse_sum += __shfl_xor_sync(kWholeWarp, own.inverse_sum, apart);
    }
    if (threadIdx.x % kWarp > 0) return;
    static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(&lists.sums[i].sum), own.sum);
    atomicAdd(reinterpret_cast<unsigned long long*>(&lists.sums[i].inverse_sum), own.inverse_sum);
  });
}

// picks: int64 [size]; those of lists that fewer than all are drawn from are replaced.
__global__ void count_importance_picks_kernel(const __grid_constant__ ImportanceLists lists, int64_t* picks) {
  const int64_t size = start_count(lists.counts, lists.size).lists;
  for (int64_t i = grid_first(); i < size; i += grid_step()) {
    const int64_t degree = lists.list[i].degree;
    if (degree > lists.fanout) picks[i] = lists.sums[i].picks(lists.fanout, degree);
  }
}

}  // namespace

using base::cuda_check;

// Each relation has its own: lists of different ones can have the same nodes.
LeastDegreesRef CudaNeighborSampler::least_degrees(std::size_t relation) const {
  return {least_degree_[relation].of_node.data(), least_degree_[relation].generation};
}

void CudaNeighborSampler::begin_least_degrees(std::size_t relation, cudaStream_t stream) {
  least_degree_.resize(relations_.size());
  auto& [of_node, generation] = least_degree_[relation];
  if (of_node.size() == 0) {
    const auto type = static_cast<std::size_t>(relations_[relation].source_type);
    const int64_t end = type + 1 < num_types() ? first_of_type_[type + 1] : graph_nodes_;
    of_node =
        base::DeviceArray<uint32_t>(static_cast<std::size_t>(end - first_of_type_[type]), "allocate least degrees");
  }
  if (generation == 0) {
    const std::size_t bytes = of_node.size() * sizeof(uint32_t);
    cuda_check(cudaMemsetAsync(of_node.data(), 0xFF, bytes, stream), "clear least degrees");
    generation = LeastDegreesRef::kGenerations;
  }
  --generation;
}

ImportanceLists CudaNeighborSampler::importance_lists(const Hop& hop, std::size_t relation) {
  const int64_t first = hop.first_list[relation];
  return {.list = list_.data() + first,
          .size = hop.first_list[relation + 1] - first,
          .index_bytes = relations_[relation].topology.index_bytes,
          .fanout = hop.fanout[relation],
          .exclusions = hop.exclusions[relation],
          .counts = hop.counts,
          .least = least_degrees(relation),
          .sums = least_sums_.reserve(static_cast<std::size_t>(hop.first_list.back())) + first};
}

void CudaNeighborSampler::count_by_importance(const ImportanceLists& lists, int64_t* picks, cudaStream_t stream) {
  const bool excludes = lists.exclusions.starts != nullptr;
  const int grid = base::grid_for(lists.size * kWarp, max_blocks_);
  const auto note = excludes ? note_least_kernel<true> : note_least_kernel<false>;
  const auto sum = excludes ? sum_least_kernel<true> : sum_least_kernel<false>;
  note<<<grid, kBlockThreads, 0, stream>>>(lists);
  sum<<<grid, kBlockThreads, 0, stream>>>(lists);
  count_importance_picks_kernel<<<base::grid_for(lists.size, max_blocks_), kBlockThreads, 0, stream>>>(lists, picks);
  cuda_check(cudaGetLastError(), "launch a sampler kernel");
}

}  // namespace cohort::sampler
