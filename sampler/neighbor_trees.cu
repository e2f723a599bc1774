// The part of disjoint batches in a CudaNeighborSampler.
#include <algorithm>
#include <numeric>
#include "sampler/neighbor_sampler.h"

#include "sampler/tree_kernels.cuh"

namespace cohort::sampler {
namespace {

// The trees of seeds that stand by type: each is called by its position in the batch.
std::vector<int32_t> trees_by_type(std::span<const int64_t> first_of_type, std::span<const int64_t> seeds) {
  std::vector<int32_t> trees(seeds.size());
  std::iota(trees.begin(), trees.end(), 0);
  std::ranges::stable_sort(trees, {}, [&](int32_t tree) {
    return std::ranges::upper_bound(first_of_type, seeds[static_cast<std::size_t>(tree)]) - first_of_type.begin();
  });
  return trees;
}

}  // namespace

using base::cuda_check;

void CudaNeighborSampler::begin_trees(const Query& query, cudaStream_t stream) {
  const std::span<const int64_t> times = query.spec.times;
  demand_trees(num_nodes_);
  timed_ = !times.empty();
  if (timed_) staged_times_.copy_to(seed_times_.reserve(times.size()), times, stream, "copy the times of seeds");
  const std::vector<int32_t> trees = trees_by_type(first_of_type_, query.seeds);
  int32_t* tree = tree_.reserve(trees.size());
  staged_trees_.copy_to(tree, std::span(trees), stream, "copy the trees of seeds");
  tree_visits_.clear(stream);
  tree_visits_.reserve(num_nodes_, max_blocks_, stream);
  number_tree_seeds_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(
      n_id_.data(), tree, num_nodes_, tree_visits_.ref(), id_of_visit_.reserve(trees.size()));
  cuda_check(cudaGetLastError(), "launch a sampler kernel");
}

TreeLists CudaNeighborSampler::tree_lists(const Hop& hop, std::size_t relation) {
  return {
      .tree = tree_.data() + (frontier(hop, relation) - n_id_.data()),
      .edge_times = timed_ ? relations_[relation].edge_times : nullptr,
      .times = seed_times_.data(),
      .window = hop.window[relation],
      .draw = hop.draw[relation],
      .first = first_candidate_.reserve(static_cast<std::size_t>(hop.first_list.back())) + hop.first_list[relation]};
}

}  // namespace cohort::sampler
