#include "sampler/neighbor_sampler.h"

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>
#include <numeric>
#include <utility>

#include "sampler/layer_kernels.cuh"
#include "sampler/tree_kernels.cuh"
#include "sampler/weighted_kernels.cuh"

namespace cohort::sampler {
namespace {

using base::cuda_check;

void check_launch() { cuda_check(cudaGetLastError(), "launch a sampler kernel"); }

auto draw_kernel_of(bool edge_ids, bool excludes) {
  if (excludes) return edge_ids ? draw_kernel<true, true> : draw_kernel<false, true>;
  return edge_ids ? draw_kernel<true, false> : draw_kernel<false, false>;
}

template <int kLanes>
auto draw_few_kernel_of(bool edge_ids, bool excludes) {
  if (excludes) return edge_ids ? draw_few_kernel<kLanes, true, true> : draw_few_kernel<kLanes, false, true>;
  return edge_ids ? draw_few_kernel<kLanes, true, false> : draw_few_kernel<kLanes, false, false>;
}

template <bool kImportance>
auto draw_layer_kernel_of(bool edge_ids, bool excludes) {
  if (excludes) {
    return edge_ids ? draw_layer_kernel<true, true, kImportance> : draw_layer_kernel<false, true, kImportance>;
  }
  return edge_ids ? draw_layer_kernel<true, false, kImportance> : draw_layer_kernel<false, false, kImportance>;
}

// How many of the seeds are of each type: int64 [num_types]. Seeds of one type come to stand together, in their order.
std::vector<int64_t> sort_by_type(std::span<const int64_t> first_of_type, std::span<int64_t> seeds) {
  std::vector<int64_t> counts;
  auto begin = seeds.begin();
  for (std::size_t type = 1; type < first_of_type.size(); ++type) {
    const auto end =
        std::stable_partition(begin, seeds.end(), [&](int64_t seed) { return seed < first_of_type[type]; });
    counts.push_back(end - begin);
    begin = end;
  }
  counts.push_back(seeds.end() - begin);
  return counts;
}

}  // namespace

CudaNeighborSampler::CudaNeighborSampler(std::vector<GpuRelation> relations, std::vector<int64_t> first_of_type,
                                         int64_t num_nodes, int max_blocks)
    : relations_(std::move(relations)),
      first_of_type_(std::move(first_of_type)),
      graph_nodes_(num_nodes),
      max_blocks_(max_blocks),
      first_visit_(static_cast<std::size_t>(num_nodes), "allocate what relabels each node"),
      read_back_(kMostParts * sizeof(int64_t)),
      batch_counts_(1, "allocate counters of a batch"),
      batch_counts_read_(sizeof(BatchCounts)),
      counts_(kMostParts) {
  base::require(relations_.size() <= kMostParts && num_types() <= kMostParts, "at most kMostParts types and relations");
  base::require(std::ranges::is_sorted(relations_, {}, &GpuRelation::source_type), "relations by source type");
}

BatchSizes CudaNeighborSampler::sample(const Query& query, cudaStream_t stream) {
  const bool has_times = std::ranges::any_of(relations_, [](const GpuRelation& own) { return own.edge_times; });
  query.check(relations_.size(), num_types() == 1 && relations_.size() == 1, has_times, has_weights());
  std::vector<Hop> hops = bounded_hops(query);
  const bool tries = !hops.empty();
  const bool is_drawn = tries && sample_within(std::move(hops), query, stream);
  if (!is_drawn) sample_hop_by_hop(query, stream);
  num_bounded_ += is_drawn;
  num_repeated_ += tries && !is_drawn;
  return sizes();
}

void CudaNeighborSampler::sample_hop_by_hop(const Query& query, cudaStream_t stream) {
  begin_batch(query, stream);
  for (std::size_t i = 0; i < query.fanout.size() / relations_.size(); ++i) {
    Hop hop = begin_hop(query, i);
    if (hop.first_list.back() > 0) {
      count_edges(hop, stream);
      read_edges(hop, stream);
      draw(hop, query, stream);
    } else {
      first_edge_.insert(first_edge_.end(), relations_.size(), num_edges_);
    }
    if (hop.num_edges > 0 && hop.gives_ids) {
      relabel(hop, stream);
      end_hop(hop, stream);
    } else {
      first_node_.insert(first_node_.end(), num_types(), num_nodes_);
    }
    num_edges_ += hop.num_edges;
    if (hop.gives_ids) num_local_edges_ = num_edges_;
  }
  end_batch(stream);
}

void CudaNeighborSampler::begin_batch(const Query& query, cudaStream_t stream) {
  num_nodes_ = num_edges_ = num_local_edges_ = num_visits_ = 0;
  edge_ids_ = query.edge_ids;
  numbers_ = query.spec.numbers;
  begin_generation(stream);
  number_seeds(query, stream);
  copy_exclusions(query, stream);
}

void CudaNeighborSampler::begin_generation(cudaStream_t stream) {
  if (generation_ == 0) {
    const std::size_t bytes = first_visit_.size() * sizeof(unsigned long long);
    cuda_check(cudaMemsetAsync(first_visit_.data(), 0xFF, bytes, stream), "clear first visits");
    generation_ = kGenerations;
  }
  --generation_;
}

void CudaNeighborSampler::number_seeds(const Query& query, cudaStream_t stream) {
  const std::span seeds = seeds_.reserve<int64_t>(query.seeds.size());
  std::ranges::copy(query.seeds, seeds.begin());
  first_node_ = {0};
  first_edge_ = {0};
  for (const int64_t count : sort_by_type(first_of_type_, seeds)) first_node_.push_back(first_node_.back() + count);
  num_nodes_ = num_visits_ = std::ssize(seeds);
  disjoint_ = query.spec.disjoint;
  n_id_.reserve(seeds.size());
  if (disjoint_) {
    cuda_check(cudaMemcpyAsync(n_id_.data(), seeds.data(), seeds.size_bytes(), cudaMemcpyHostToDevice, stream),
               "copy seeds");
    cuda_check(cudaMemsetAsync(batch_counts_.data(), 0, sizeof(BatchCounts), stream), "clear the counts of lists");
    return begin_trees(query, stream);
  }
  number_seeds_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(
      seeds.data(), num_nodes_, generation(), first_visit_.data(), id_of_visit_.reserve(seeds.size()), n_id_.data(),
      batch_counts_.data());
  check_launch();
}

// From page-locked memory, which the host need not wait for. Nothing is copied where nothing is excluded.
void CudaNeighborSampler::copy_exclusions(const Query& query, cudaStream_t stream) {
  exclusions_.assign(relations_.size(), {});
  std::size_t size = 0;
  for (const Exclusions& each : query.spec.exclusions)
    size += each.starts.size() + each.positions.size() + each.nodes.size();
  if (size == 0) return;
  const std::span staged = staged_exclusions_.reserve<int64_t>(size);
  int64_t* to = excluded_.reserve(size);
  std::size_t used = 0;
  const auto copy = [&](std::span<const int64_t> from) {
    std::ranges::copy(from, staged.begin() + static_cast<std::ptrdiff_t>(used));
    return to + std::exchange(used, used + from.size());
  };
  for (const Exclusions& each : query.spec.exclusions) {
    if (each.positions.empty()) continue;
    const auto relation = static_cast<std::size_t>(each.relation);
    const auto type = static_cast<std::size_t>(relations_[relation].target_type);
    const int64_t lists = disjoint_ ? std::ssize(each.nodes) : first_node_[type + 1] - first_node_[type];
    base::require(std::ssize(each.starts) == lists + 1, "exclusions from the list of each seed of the type, or node");
    const int64_t *starts = copy(each.starts), *positions = copy(each.positions);
    exclusions_[relation] = {starts, positions, copy(each.nodes), std::ssize(each.nodes)};
  }
  cuda_check(cudaMemcpyAsync(to, staged.data(), used * sizeof(int64_t), cudaMemcpyHostToDevice, stream),
             "copy exclusions");
}

// Its lists: those of the nodes that the hop before has reached, by each relation into their type.
CudaNeighborSampler::Hop CudaNeighborSampler::begin_hop(const Query& query, std::size_t hop) const {
  const std::size_t num_hops = query.fanout.size() / relations_.size();
  Hop begun{.number = static_cast<int>(hop),
            .gives_ids = !query.last_hop_global || hop + 1 < num_hops,
            .fanout = {},
            .draw = {},
            .window = {},
            .first_list = {0},
            .exclusions = hop == 0 || disjoint_ ? exclusions_ : std::vector<ExclusionsRef>(relations_.size()),
            .first_edge = num_edges_,
            .num_edges = 0};
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    const int32_t fanout = query.fanout[relation * num_hops + hop];
    const auto part = hop * num_types() + static_cast<std::size_t>(relations_[relation].target_type);
    const int64_t lists = fanout == 0 ? 0 : first_node_[part + 1] - first_node_[part];
    begun.fanout.push_back(fanout);
    begun.draw.push_back(query.spec.of(fanout, relations_[relation].edge_times));
    begun.window.push_back(query.spec.window_of(relation));
    begun.first_list.push_back(begun.first_list.back() + lists);
  }
  return begun;
}

const int64_t* CudaNeighborSampler::frontier(const Hop& hop, std::size_t relation) const {
  if (hop.counts.first_node) return n_id_.data();
  const auto type = static_cast<std::size_t>(relations_[relation].target_type);
  return n_id_.data() + first_node_[static_cast<std::size_t>(hop.number) * num_types() + type];
}

// A fanout below 0 takes all edges, whatever their weights.
bool CudaNeighborSampler::draws_by_weight(const Hop& hop, std::size_t relation) const {
  return relations_[relation].weights.of_edges && hop.fanout[relation] >= 0;
}

void CudaNeighborSampler::count_edges(const Hop& hop, cudaStream_t stream) {
  const int64_t size = hop.first_list.back();
  unsigned long long* use = batch_counts_.data()->list_use;
  int64_t* offset = offset_.reserve(static_cast<std::size_t>(size) + 1);
  DrawnList* list = list_.reserve(static_cast<std::size_t>(size));
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    const int64_t first = hop.first_list[relation], lists = hop.first_list[relation + 1] - first;
    if (lists == 0) continue;
    const GpuRelation& own = relations_[relation];
    const ExclusionsRef& exclusions = hop.exclusions[relation];
    const int grid = base::grid_for(lists, max_blocks_);
    const int64_t* nodes = frontier(hop, relation);
    const Picks picks = picks_of(hop.fanout[relation], hop.draw[relation]);
    if (disjoint_) {
      count_tree_picks_kernel<<<grid, kBlockThreads, 0, stream>>>(
          own.topology, nodes, lists, picks, offset + first, list + first, use, tree_lists(hop, relation), exclusions);
    } else if (draws_by_weight(hop, relation)) {
      count_weighted_picks_kernel<<<grid, kBlockThreads, 0, stream>>>(
          own.topology, own.weights, nodes, lists, picks, offset + first, list + first, use, exclusions, hop.counts);
    } else {
      const auto kernel = exclusions.starts ? count_picks_kernel<true> : count_picks_kernel<false>;
      kernel<<<grid, kBlockThreads, 0, stream>>>(own.topology, nodes, lists, picks, numbers_.dependency > 0,
                                                 offset + first, list + first, use, exclusions, hop.counts);
    }
    check_launch();
    if (draws_by_importance(hop, relation)) {
      begin_least_degrees(relation, stream);
      count_by_importance(importance_lists(hop, relation), offset + first, stream);
    }
  }
  std::size_t bytes = 0;
  cuda_check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, offset, offset, size + 1, stream), "size a scan");
  std::byte* temporary = temporary_.reserve(bytes);
  cuda_check(cub::DeviceScan::ExclusiveSum(temporary, bytes, offset, offset, size + 1, stream), "scan edge counts");
}

void CudaNeighborSampler::read_edges(Hop& hop, cudaStream_t stream) {
  const int64_t* offset = offset_.data();
  const int64_t* ends = offset + hop.first_list.back();
  if (relations_.size() > 1) {
    Positions positions{.at = {}, .size = static_cast<int>(relations_.size())};
    std::copy(hop.first_list.begin() + 1, hop.first_list.end(), positions.at);
    gather_kernel<<<1, kMostParts, 0, stream>>>(offset, positions, counts_.data());
    check_launch();
    ends = counts_.data();
  }
  const int64_t* read = read_back(ends, relations_.size(), stream);
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    first_edge_.push_back(num_edges_ + read[relation]);
  }
  hop.num_edges = read[relations_.size() - 1];
  if (disjoint_) demand_tree_nodes(num_visits_ + hop.num_edges);
  if (num_visits_ + hop.num_edges > kMaxVisits) {
    throw base::Error({"a batch", "at most " + std::to_string(kMaxVisits) + " seeds and edges",
                       std::to_string(num_visits_ + hop.num_edges), "use a smaller --batch-size or --fanout"});
  }
}

std::size_t CudaNeighborSampler::num_excluded(const Hop& hop, const Query& query) {
  std::size_t count = 0;
  if (hop.number > 0) return count;
  for (const Exclusions& each : query.spec.exclusions) count += each.positions.size();
  return count;
}

bool CudaNeighborSampler::needs_position(const Hop& hop, std::size_t excluded) {
  return std::ranges::max(hop.fanout) > kWarp || excluded > 0;
}

void CudaNeighborSampler::draw(const Hop& hop, const Query& query, cudaStream_t stream) {
  const auto edges = static_cast<std::size_t>(hop.num_edges), before = static_cast<std::size_t>(hop.first_edge);
  if (hop.gives_ids) source_.extend(before + edges, before, stream);
  target_.extend(before + edges, before, stream);
  source_node_.extend(before + edges, before, stream);
  if (query.edge_ids) e_id_.extend(before + edges, before, stream);
  if (numbers_.importance) share_.extend(before + edges, before, stream);
  const std::size_t excluded = num_excluded(hop, query);
  if (needs_position(hop, excluded)) {
    position_.reserve(edges);
    if (has_weights()) taken_.reserve(edges + excluded);
  }
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    const int64_t first = hop.first_list[relation], lists = hop.first_list[relation + 1] - first;
    if (lists == 0) continue;
    const int64_t* nodes = frontier(hop, relation);
    const TopologyRef& topology = relations_[relation].topology;
    const DrawArrays arrays{.frontier = nodes,
                            .offset = offset_.data() + first,
                            .list = list_.data() + first,
                            .position = position_.data(),
                            .neighbour = source_node_.data() + before,
                            .e_id = query.edge_ids ? e_id_.data() + before : nullptr,
                            .target = target_.data() + before,
                            .first_target = static_cast<int32_t>(nodes - n_id_.data()),
                            .visit = (disjoint_ ? 0 : generation()) + static_cast<uint64_t>(num_visits_),
                            .first_visit = hop.gives_ids ? first_visit_.data() : nullptr,
                            .exclusions = hop.exclusions[relation],
                            .counts = hop.counts};
    const int grid = base::grid_for(lists * kWarp, max_blocks_);
    const DrawGraph graph{topology.indptr, topology.index_bytes, topology.first_target, topology.first_source};
    const DrawKey key{query.key, hop.number, static_cast<int>(relation), hop.draw[relation]};
    if (disjoint_) {
      tree_visits_.reserve(num_nodes_ + hop.num_edges, max_blocks_, stream);
      const auto in_trees = query.edge_ids ? draw_tree_kernel<true> : draw_tree_kernel<false>;
      in_trees<<<grid, kBlockThreads, 0, stream>>>(graph, arrays, lists, key, tree_lists(hop, relation),
                                                   tree_visits_.ref());
    } else if (draws_by_weight(hop, relation)) {
      const auto kernel = query.edge_ids ? draw_weighted_kernel<true> : draw_weighted_kernel<false>;
      kernel<<<grid, kBlockThreads, 0, stream>>>(graph, relations_[relation].weights, arrays, taken_.data(), lists,
                                                 key);
    } else if (numbers_.importance) {
      const bool chooses = draws_by_importance(hop, relation);
      const ImportanceLists of = chooses ? importance_lists(hop, relation) : ImportanceLists{};
      const auto kernel = draw_layer_kernel_of<true>(query.edge_ids, arrays.exclusions.starts != nullptr);
      kernel<<<grid, kBlockThreads, 0, stream>>>(
          graph, arrays, lists,
          {numbers_, hop.number, {of.least, LeastDegrees::least_of(0, of.fanout), of.sums, share_.data() + before}});
    } else if (numbers_.dependency > 0) {
      const auto kernel = draw_layer_kernel_of<false>(query.edge_ids, arrays.exclusions.starts != nullptr);
      kernel<<<grid, kBlockThreads, 0, stream>>>(graph, arrays, lists, {numbers_, hop.number, {}});
    } else if (hop.fanout[relation] >= 0 && hop.fanout[relation] <= kWarp / 2 && key.draw != Draw::kReplaced) {
      const bool excludes = arrays.exclusions.starts != nullptr;
      const int lanes = hop.fanout[relation] <= kWarp / 4 ? kWarp / 4 : kWarp / 2;
      const auto kernel = lanes == kWarp / 4 ? draw_few_kernel_of<kWarp / 4>(query.edge_ids, excludes)
                                             : draw_few_kernel_of<kWarp / 2>(query.edge_ids, excludes);
      kernel<<<base::grid_for(lists * lanes, max_blocks_), kBlockThreads, 0, stream>>>(graph, arrays, lists, key,
                                                                                       hop.fanout[relation]);
    } else {
      const auto kernel = draw_kernel_of(query.edge_ids, arrays.exclusions.starts != nullptr);
      kernel<<<grid, kBlockThreads, 0, stream>>>(graph, arrays, lists, key);
    }
    check_launch();
  }
}

int64_t CudaNeighborSampler::most_new_nodes(const Hop& hop) const {
  return disjoint_ ? hop.num_edges : std::min(hop.num_edges, graph_nodes_ - num_nodes_);
}

void CudaNeighborSampler::relabel(const Hop& hop, cudaStream_t stream) {
  const auto edges = static_cast<std::size_t>(hop.num_edges), visits = static_cast<std::size_t>(num_visits_);
  const auto nodes = static_cast<std::size_t>(num_nodes_);
  const int grid = base::grid_for(hop.num_edges, max_blocks_);
  uint32_t* first = first_.reserve(edges);
  const int64_t* neighbour = source_node_.data() + hop.first_edge;
  const int32_t* target = target_.data() + hop.first_edge;
  if (disjoint_) {
    find_tree_first_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour, target, tree_.data(), hop.num_edges,
                                                               tree_visits_.ref(), first);
  } else {
    find_first_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour, hop.num_edges, first_visit_.data(), first,
                                                          hop.counts);
  }
  check_launch();
  int32_t* ids = id_of_visit_.extend(visits + edges, visits, stream);
  const ReachesFirst reaches_first{first, static_cast<uint32_t>(num_visits_)};
  const auto is_new = thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), reaches_first);
  const auto number_from = [&](auto first_id) {
    const auto number = [&](std::byte* space, std::size_t& bytes) {
      cuda_check(cub::DeviceScan::ExclusiveScan(space, bytes, is_new, ids + visits, cuda::std::plus<>{}, first_id,
                                                hop.num_edges, stream),
                 "number new nodes");
    };
    std::size_t bytes = 0;
    number(nullptr, bytes);
    number(temporary_.reserve(bytes), bytes);
  };
  if (hop.counts.next_id) {
    number_from(cub::FutureValue<int32_t>(hop.counts.next_id));
  } else {
    number_from(static_cast<int32_t>(num_nodes_));
  }
  n_id_.extend(nodes + static_cast<std::size_t>(most_new_nodes(hop)), nodes, stream);
  const HopSources sources{neighbour,
                           hop.num_edges,
                           reaches_first,
                           ids,
                           source_.data() + hop.first_edge,
                           n_id_.data(),
                           hop.counts.first_node ? hop.counts.first_node + 2 : counts_.data() + num_types() - 1,
                           hop.counts};
  name_sources_kernel<<<grid, kBlockThreads, 0, stream>>>(sources);
  check_launch();
  if (disjoint_) {
    int32_t* tree = tree_.extend(nodes + edges, nodes, stream);
    name_trees_kernel<<<grid, kBlockThreads, 0, stream>>>(sources, target, tree);
    check_launch();
  }
  num_visits_ += hop.num_edges;
}

// The edges stand by their sources' type, so new nodes do too.
void CudaNeighborSampler::end_hop(const Hop& hop, cudaStream_t stream) {
  const int32_t* ids = id_of_visit_.data() + num_visits_ - hop.num_edges;  // how many nodes there were before each edge
  Positions positions{.at = {},
                      .size = 0};  // first edge of each type but the first, where there are edges from there on
  for (std::size_t type = 1; type < num_types(); ++type) {
    const auto relation = std::ranges::lower_bound(relations_, static_cast<int>(type), {}, &GpuRelation::source_type);
    const auto part = static_cast<std::size_t>(hop.number) * relations_.size() +
                      static_cast<std::size_t>(relation - relations_.begin());
    const int64_t edge = first_edge_[part] - hop.first_edge;
    if (edge < hop.num_edges) positions.at[positions.size++] = edge;
  }
  if (positions.size > 0) {
    gather_kernel<<<1, kMostParts, 0, stream>>>(ids, positions, counts_.data());
    check_launch();
  }
  const int64_t* read = read_back(counts_.data(), num_types(), stream);
  const int64_t end = read[num_types() - 1];
  for (std::size_t type = 1; type < num_types(); ++type) {
    first_node_.push_back(static_cast<int>(type) <= positions.size ? read[type - 1] : end);
  }
  first_node_.push_back(num_nodes_ = end);
}

}  // namespace cohort::sampler
