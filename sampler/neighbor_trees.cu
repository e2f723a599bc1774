// The part of disjoint batches in a CudaNeighborSampler.
#include "sampler/neighbor_sampler.h"
#include "sampler/tree_kernels.cuh"

namespace cohort::sampler {

using base::cuda_check;

void CudaNeighborSampler::begin_trees(const Query& query, cudaStream_t stream) {
  const std::span<const int64_t> times = query.trees.times;
  demand_trees(num_nodes_);
  base::require(relations_.size() == 1 && !query.last_hop_global && query.exclusions.empty(),
                "no trees of a typed graph, with global ids, or with exclusions");
  base::require((times.empty() || edge_times_) && !has_weights(), "edge times, for seeds with times, and no weights");
  timed_ = !times.empty();
  latest_ = query.trees.latest;
  if (timed_) {
    int64_t* copy = seed_times_.reserve(times.size());
    cuda_check(cudaMemcpyAsync(copy, times.data(), times.size_bytes(), cudaMemcpyHostToDevice, stream),
               "copy the times of seeds");
  }
  tree_places_.clear(stream);
  tree_places_.reserve(num_nodes_, max_blocks_, stream);
  const auto seeds = static_cast<std::size_t>(num_nodes_);
  place_tree_seeds_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(
      n_id_.data(), num_nodes_, tree_places_.ref(), tree_.reserve(seeds), id_of_place_.reserve(seeds));
  cuda_check(cudaGetLastError(), "launch a sampler kernel");
}

TreeLists CudaNeighborSampler::tree_lists(const Hop& hop) {
  return {.tree = tree_.data() + (frontier(hop, 0) - n_id_.data()),
          .edge_times = timed_ ? edge_times_ : nullptr,
          .times = seed_times_.data(),
          .latest = latest_,
          .first = first_candidate_.reserve(static_cast<std::size_t>(hop.first_list.back()))};
}

}  // namespace cohort::sampler
