#include "sampler/neighbor_sampler.h"

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cstring>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>
#include <numeric>
#include <utility>

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

// How many of the seeds are of each type: int64 [num_types]. Seeds of one type come to stand together, in their order.
std::vector<int64_t> sort_by_type(std::span<const int64_t> first_of_type, std::vector<int64_t>& seeds) {
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
      first_place_(static_cast<std::size_t>(num_nodes), "allocate what relabels each node"),
      read_back_(kMostParts * sizeof(int64_t)),
      list_use_(kNumUses, "allocate counters of lists"),
      list_use_read_(sizeof(cache::ListUses)),
      counts_(kMostParts) {
  base::require(relations_.size() <= kMostParts && num_types() <= kMostParts, "at most kMostParts types and relations");
  base::require(std::ranges::is_sorted(relations_, {}, &GpuRelation::source_type), "relations by source type");
}

SampledRef CudaNeighborSampler::result() const {
  return {.n_id = n_id_.data(),
          .source = source_.data(),
          .target = target_.data(),
          .num_nodes = num_nodes_,
          .num_edges = num_edges_,
          .num_local_edges = num_local_edges_,
          .e_id = edge_ids_ ? e_id_.data() : nullptr,
          .source_node = source_node_.data(),
          .tree = disjoint_ ? tree_.data() : nullptr,
          .first_node = first_node_,
          .first_edge = first_edge_};
}

cache::ListUses CudaNeighborSampler::list_use() const {
  cache::ListUses use;
  std::memcpy(&use, list_use_read_.data(), sizeof(use));
  for (int tier = 0; tier < cache::kNumTiers; ++tier) {
    auto& [lists, bytes] = use[static_cast<std::size_t>(tier)];
    bytes += lists * cache::list_head_bytes(static_cast<cache::Tier>(tier));
  }
  return use;
}

BatchSizes CudaNeighborSampler::sample(const Query& query, cudaStream_t stream) {
  begin_batch(stream);
  edge_ids_ = query.edge_ids;
  place_seeds(query, stream);
  const std::size_t num_hops = query.fanout.size() / relations_.size();
  base::require(num_hops * relations_.size() == query.fanout.size(), "a fanout for each relation and hop");
  base::require(!query.last_hop_global || num_types() == 1, "local ids in all hops of a typed graph");
  copy_exclusions(query, stream);
  for (std::size_t i = 0; i < num_hops; ++i) {
    Hop hop = begin_hop(query, i);
    count_edges(hop, stream);
    draw(hop, query, stream);
    relabel(hop, stream);
    num_edges_ += hop.num_edges;
    if (hop.gives_ids) num_local_edges_ = num_edges_;
  }
  cuda_check(
      cudaMemcpyAsync(list_use_read_.data(), list_use_.data(), sizeof(cache::ListUses), cudaMemcpyDeviceToHost, stream),
      "read the counts of lists");
  return sizes();
}

BatchSizes CudaNeighborSampler::sizes() const {
  // sums[part][hop]: how many there are from first[hop * parts + part] on
  const auto counts = [](std::span<const int64_t> first, std::size_t parts) {
    std::vector<std::vector<int64_t>> of_part(parts);
    for (std::size_t i = 0; i + 1 < first.size(); ++i) of_part[i % parts].push_back(first[i + 1] - first[i]);
    return of_part;
  };
  const auto of_all = [](std::span<const int64_t> first, std::size_t parts) {
    std::vector<int64_t> sums;
    for (std::size_t i = 0; i + parts < first.size(); i += parts) sums.push_back(first[i + parts] - first[i]);
    return sums;
  };
  BatchSizes sizes;
  sizes.nodes_per_hop = of_all(first_node_, num_types());
  sizes.edges_per_hop = of_all(first_edge_, relations_.size());
  sizes.num_nodes = num_nodes_;
  sizes.num_edges = num_edges_;
  sizes.num_local_edges = num_local_edges_;
  sizes.nodes_of_type = counts(first_node_, num_types());
  sizes.edges_of_relation = counts(first_edge_, relations_.size());
  return sizes;
}

void CudaNeighborSampler::begin_batch(cudaStream_t stream) {
  num_nodes_ = num_edges_ = num_local_edges_ = num_places_ = 0;
  if (generation_ == 0) {
    const std::size_t bytes = first_place_.size() * sizeof(unsigned long long);
    cuda_check(cudaMemsetAsync(first_place_.data(), 0xFF, bytes, stream), "clear first places");
    generation_ = kGenerations;
  }
  --generation_;
  cuda_check(cudaMemsetAsync(list_use_.data(), 0, sizeof(cache::ListUses), stream), "clear the counts of lists");
}

void CudaNeighborSampler::place_seeds(const Query& query, cudaStream_t stream) {
  std::vector<int64_t> seeds(query.seeds.begin(), query.seeds.end());
  first_node_ = {0};
  first_edge_ = {0};
  for (const int64_t count : sort_by_type(first_of_type_, seeds)) first_node_.push_back(first_node_.back() + count);
  num_nodes_ = num_places_ = std::ssize(seeds);
  disjoint_ = query.trees.disjoint;
  n_id_.reserve(seeds.size());
  cuda_check(
      cudaMemcpyAsync(n_id_.data(), seeds.data(), seeds.size() * sizeof(int64_t), cudaMemcpyHostToDevice, stream),
      "copy seeds");
  if (disjoint_) return begin_trees(query, stream);
  place_seeds_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(
      n_id_.data(), num_nodes_, generation(), first_place_.data(), id_of_place_.reserve(seeds.size()));
  check_launch();
}

// Nothing is copied where nothing is excluded.
void CudaNeighborSampler::copy_exclusions(const Query& query, cudaStream_t stream) {
  exclusions_.assign(relations_.size(), {});
  std::size_t size = 0;
  for (const Exclusions& each : query.exclusions) size += each.starts.size() + each.positions.size();
  int64_t* to = excluded_.reserve(size);
  const auto copy = [&](std::span<const int64_t> from) {
    cuda_check(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream), "copy exclusions");
    return std::exchange(to, to + from.size());
  };
  for (const Exclusions& each : query.exclusions) {
    if (each.positions.empty()) continue;
    const auto relation = static_cast<std::size_t>(each.relation);
    const auto type = static_cast<std::size_t>(relations_[relation].target_type);
    base::require(std::ssize(each.starts) == first_node_[type + 1] - first_node_[type] + 1,
                  "exclusions from the list of each seed of the type");
    const int64_t* starts = copy(each.starts);
    exclusions_[relation] = {starts, copy(each.positions)};
  }
}

// Its lists: those of the nodes that the hop before has reached, by each relation into their type.
CudaNeighborSampler::Hop CudaNeighborSampler::begin_hop(const Query& query, std::size_t hop) const {
  const std::size_t num_hops = query.fanout.size() / relations_.size();
  Hop begun{.number = static_cast<int>(hop),
            .gives_ids = !query.last_hop_global || hop + 1 < num_hops,
            .fanout = {},
            .first_list = {0},
            .exclusions = hop == 0 ? exclusions_ : std::vector<ExclusionsRef>(relations_.size()),
            .first_edge = num_edges_,
            .num_edges = 0};
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    const int32_t fanout = query.fanout[relation * num_hops + hop];
    const auto part = hop * num_types() + static_cast<std::size_t>(relations_[relation].target_type);
    const int64_t lists = fanout == 0 ? 0 : first_node_[part + 1] - first_node_[part];
    begun.fanout.push_back(fanout);
    begun.first_list.push_back(begun.first_list.back() + lists);
  }
  return begun;
}

const int64_t* CudaNeighborSampler::frontier(const Hop& hop, std::size_t relation) const {
  const auto type = static_cast<std::size_t>(relations_[relation].target_type);
  return n_id_.data() + first_node_[static_cast<std::size_t>(hop.number) * num_types() + type];
}

// A fanout below 0 takes all edges, whatever their weights.
bool CudaNeighborSampler::draws_by_weight(const Hop& hop, std::size_t relation) const {
  return relations_[relation].weights.cumulative && hop.fanout[relation] >= 0;
}

void CudaNeighborSampler::count_edges(Hop& hop, cudaStream_t stream) {
  const int64_t size = hop.first_list.back();
  if (size == 0) {
    first_edge_.insert(first_edge_.end(), relations_.size(), num_edges_);
    return;
  }
  int64_t* offset = offset_.reserve(static_cast<std::size_t>(size) + 1);
  DrawnList* list = list_.reserve(static_cast<std::size_t>(size));
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    const int64_t first = hop.first_list[relation], lists = hop.first_list[relation + 1] - first;
    if (lists == 0) continue;
    const GpuRelation& own = relations_[relation];
    const ExclusionsRef& exclusions = hop.exclusions[relation];
    const int grid = base::grid_for(lists, max_blocks_);
    const int64_t *nodes = frontier(hop, relation), fanout = hop.fanout[relation];
    if (disjoint_) {
      count_tree_picks_kernel<<<grid, kBlockThreads, 0, stream>>>(own.topology, nodes, lists, fanout, offset + first,
                                                                  list + first, list_use_.data(),
                                                                  tree_lists(hop, relation));
    } else if (draws_by_weight(hop, relation)) {
      count_weighted_picks_kernel<<<grid, kBlockThreads, 0, stream>>>(
          own.topology, own.weights, nodes, lists, fanout, offset + first, list + first, list_use_.data(), exclusions);
    } else {
      const auto kernel = exclusions.starts ? count_picks_kernel<true> : count_picks_kernel<false>;
      kernel<<<grid, kBlockThreads, 0, stream>>>(own.topology, nodes, lists, fanout, offset + first, list + first,
                                                 list_use_.data(), exclusions);
    }
    check_launch();
  }
  std::size_t bytes = 0;
  cuda_check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, offset, offset, size + 1, stream), "size a scan");
  std::byte* temporary = temporary_.reserve(bytes);
  cuda_check(cub::DeviceScan::ExclusiveSum(temporary, bytes, offset, offset, size + 1, stream), "scan edge counts");
  const int64_t* ends = offset + size;
  if (relations_.size() > 1) {
    Places places{.at = {}, .size = static_cast<int>(relations_.size())};
    std::copy(hop.first_list.begin() + 1, hop.first_list.end(), places.at);
    gather_kernel<<<1, kMostParts, 0, stream>>>(offset, places, counts_.data());
    check_launch();
    ends = counts_.data();
  }
  const int64_t* read = read_back(ends, relations_.size(), stream);
  for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
    first_edge_.push_back(num_edges_ + read[relation]);
  }
  hop.num_edges = read[relations_.size() - 1];
  if (disjoint_) demand_tree_nodes(num_places_ + hop.num_edges);
  if (num_places_ + hop.num_edges > kMaxPlaces) {
    throw base::Error({"a batch", "at most " + std::to_string(kMaxPlaces) + " seeds and edges",
                       std::to_string(num_places_ + hop.num_edges), "use a smaller --batch-size or --fanout"});
  }
}

void CudaNeighborSampler::draw(const Hop& hop, const Query& query, cudaStream_t stream) {
  const auto edges = static_cast<std::size_t>(hop.num_edges), before = static_cast<std::size_t>(hop.first_edge);
  if (hop.gives_ids) source_.extend(before + edges, before, stream);
  target_.extend(before + edges, before, stream);
  source_node_.extend(before + edges, before, stream);
  if (query.edge_ids) e_id_.extend(before + edges, before, stream);
  std::size_t num_excluded = 0;
  if (hop.number == 0) {
    for (const Exclusions& each : query.exclusions) num_excluded += each.positions.size();
  }
  if (std::ranges::max(hop.fanout) > kWarp || num_excluded > 0) {
    position_.reserve(edges);
    if (has_weights()) taken_.reserve(edges + num_excluded);
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
                            .place = (disjoint_ ? 0 : generation()) + static_cast<uint64_t>(num_places_),
                            .first_place = hop.gives_ids ? first_place_.data() : nullptr,
                            .exclusions = hop.exclusions[relation]};
    const int grid = base::grid_for(lists * kWarp, max_blocks_);
    const DrawGraph graph{topology.indptr, topology.index_bytes, topology.first_target, topology.first_source};
    const DrawKey key{query.key, hop.number, static_cast<int>(relation)};
    if (disjoint_) {
      tree_places_.reserve(num_nodes_ + hop.num_edges, max_blocks_, stream);
      const auto in_trees = query.edge_ids ? draw_tree_kernel<true> : draw_tree_kernel<false>;
      in_trees<<<grid, kBlockThreads, 0, stream>>>(graph, arrays, lists, key, tree_lists(hop, relation),
                                                   tree_places_.ref());
    } else if (draws_by_weight(hop, relation)) {
      const auto kernel = query.edge_ids ? draw_weighted_kernel<true> : draw_weighted_kernel<false>;
      kernel<<<grid, kBlockThreads, 0, stream>>>(graph, relations_[relation].weights, arrays, taken_.data(), lists,
                                                 key);
    } else {
      const auto kernel = draw_kernel_of(query.edge_ids, arrays.exclusions.starts != nullptr);
      kernel<<<grid, kBlockThreads, 0, stream>>>(graph, arrays, lists, key);
    }
    check_launch();
  }
}

void CudaNeighborSampler::relabel(const Hop& hop, cudaStream_t stream) {
  if (hop.num_edges == 0 || !hop.gives_ids) {
    first_node_.insert(first_node_.end(), num_types(), num_nodes_);
    return;
  }
  const auto edges = static_cast<std::size_t>(hop.num_edges), places = static_cast<std::size_t>(num_places_);
  const auto nodes = static_cast<std::size_t>(num_nodes_);
  const int grid = base::grid_for(hop.num_edges, max_blocks_);
  uint32_t* first = first_.reserve(edges);
  const int64_t* neighbour = source_node_.data() + hop.first_edge;
  const int32_t* target = target_.data() + hop.first_edge;
  if (disjoint_) {
    find_tree_first_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour, target, tree_.data(), hop.num_edges,
                                                               tree_places_.ref(), first);
  } else {
    find_first_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour, hop.num_edges, first_place_.data(), first);
  }
  check_launch();
  int32_t* ids = id_of_place_.extend(places + edges, places, stream);
  const ReachesFirst reaches_first{first, static_cast<uint32_t>(num_places_)};
  const auto is_new = thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), reaches_first);
  const auto number = [&](std::byte* space, std::size_t& bytes) {
    cuda_check(cub::DeviceScan::ExclusiveScan(space, bytes, is_new, ids + places, cuda::std::plus<>{},
                                              static_cast<int32_t>(num_nodes_), hop.num_edges, stream),
               "number new nodes");
  };
  std::size_t bytes = 0;
  number(nullptr, bytes);
  number(temporary_.reserve(bytes), bytes);
  const int64_t most = disjoint_ ? hop.num_edges : std::min(hop.num_edges, graph_nodes_ - num_nodes_);
  n_id_.extend(nodes + static_cast<std::size_t>(most), nodes, stream);
  const HopSources sources{neighbour,
                           hop.num_edges,
                           reaches_first,
                           ids,
                           source_.data() + hop.first_edge,
                           n_id_.data(),
                           counts_.data() + num_types() - 1};
  name_sources_kernel<<<grid, kBlockThreads, 0, stream>>>(sources);
  check_launch();
  if (disjoint_) {
    int32_t* tree = tree_.extend(nodes + edges, nodes, stream);
    name_trees_kernel<<<grid, kBlockThreads, 0, stream>>>(sources, target, tree);
    check_launch();
  }
  end_hop(hop, ids + places, stream);
  num_places_ += hop.num_edges;
}

// ids: int32 [num_edges], how many nodes there were before each edge of the hop. The edges stand by their sources'
// type, so new nodes do too.
void CudaNeighborSampler::end_hop(const Hop& hop, const int32_t* ids, cudaStream_t stream) {
  Places places{.at = {}, .size = 0};  // first edge of each type but the first, where there are edges from there on
  for (std::size_t type = 1; type < num_types(); ++type) {
    const auto relation = std::ranges::lower_bound(relations_, static_cast<int>(type), {}, &GpuRelation::source_type);
    const auto part = static_cast<std::size_t>(hop.number) * relations_.size() +
                      static_cast<std::size_t>(relation - relations_.begin());
    const int64_t edge = first_edge_[part] - hop.first_edge;
    if (edge < hop.num_edges) places.at[places.size++] = edge;
  }
  if (places.size > 0) {
    gather_kernel<<<1, kMostParts, 0, stream>>>(ids, places, counts_.data());
    check_launch();
  }
  const int64_t* read = read_back(counts_.data(), num_types(), stream);
  const int64_t end = read[num_types() - 1];
  for (std::size_t type = 1; type < num_types(); ++type) {
    first_node_.push_back(static_cast<int>(type) <= places.size ? read[type - 1] : end);
  }
  first_node_.push_back(num_nodes_ = end);
}

const int64_t* CudaNeighborSampler::read_back(const int64_t* values, std::size_t count, cudaStream_t stream) {
  auto* host = reinterpret_cast<int64_t*>(read_back_.data());
  cuda_check(cudaMemcpyAsync(host, values, count * sizeof(int64_t), cudaMemcpyDeviceToHost, stream), "read sizes");
  cuda_check(cudaStreamSynchronize(stream), "read sizes");
  return host;
}

}  // namespace cohort::sampler
