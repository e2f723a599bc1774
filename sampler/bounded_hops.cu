// Two parts of CudaNeighborSampler: drawing a batch without waiting for the sizes of its hops, within bounds that the
// host knows, and reading the sizes when the batch ends.
#include <algorithm>
#include <cstring>
#include <utility>

#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

constexpr int kTellThreads = 128;
constexpr int64_t kMostGrowth = 2;

// Copies `from` to `to`, int64 [count] in host memory, by one block: a copy engine would start and end later.
__global__ void tell_kernel(const int64_t* from, int count, int64_t* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) to[i] = from[i];
}

void tell(const int64_t* from, std::size_t count, int64_t* to, cudaStream_t stream) {
  tell_kernel<<<1, kTellThreads, 0, stream>>>(from, static_cast<int>(count), to);
  cuda_check(cudaGetLastError(), "launch the reading of sizes");
}

}  // namespace

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
          .share = numbers_.importance ? share_.data() : nullptr,
          .first_node = first_node_,
          .first_edge = first_edge_};
}

cache::ListUses CudaNeighborSampler::list_use() const {
  cache::ListUses use;
  std::memcpy(&use, reinterpret_cast<const BatchCounts*>(batch_counts_read_.data())->list_use, sizeof(use));
  for (int tier = 0; tier < cache::kNumTiers; ++tier) {
    auto& [lists, bytes] = use[static_cast<std::size_t>(tier)];
    bytes += lists * cache::list_head_bytes(static_cast<cache::Tier>(tier));
  }
  return use;
}

BatchSizes CudaNeighborSampler::sizes() const {
  // of_part[part][hop]: the number of nodes of a type, or edges of a relation, that begin at first[hop * parts + part]
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

HopCounts CudaNeighborSampler::hop_counts(std::size_t hop) const {
  BatchCounts* counts = batch_counts_.data();
  return {.first_node = counts->first_node + hop,
          .first_edge = counts->first_edge + hop,
          .too_small = &counts->too_small,
          .next_id = &counts->next_id};
}

// The hops of the batch, with bounds of their sizes; empty: the batch must be drawn hop by hop. The bound of a hop that
// takes all neighbours, or more than the fanout, is a multiple of the edges that this hop had in the last batch.
std::vector<CudaNeighborSampler::Hop> CudaNeighborSampler::bounded_hops(const Query& query) const {
  const std::size_t num_hops = query.fanout.size();
  if (num_types() > 1 || relations_.size() > 1 || query.spec.disjoint || num_hops > channel::kMaxHops) return {};
  int64_t lists = std::ssize(query.seeds), visits = lists;
  std::vector<Hop> hops;
  for (std::size_t i = 0; i < num_hops; ++i) {
    Hop hop{.number = static_cast<int>(i),
            .gives_ids = !query.last_hop_global || i + 1 < num_hops,
            .fanout = {query.fanout[i]},
            .draw = {query.spec.of(query.fanout[i], false)},
            .window = {},
            .first_list = {0, lists},
            .exclusions = {ExclusionsRef{}},
            .first_edge = 0,
            .num_edges = 0,
            .counts = hop_counts(i)};
    const std::size_t excluded = num_excluded(hop, query);
    std::size_t end = std::min(target_.size(), source_node_.size());
    if (query.edge_ids) end = std::min(end, e_id_.size());
    if (hop.gives_ids) end = std::min(end, source_.size());
    if (query.spec.numbers.importance) end = std::min(end, share_.size());
    std::size_t most = hop.gives_ids ? std::min(end, first_.size()) : end;
    if (needs_position(hop, excluded)) {
      most = std::min(most, position_.size());
      if (has_weights()) most = std::min(most, taken_.size() - std::min(excluded, taken_.size()));
    }
    const bool is_bounded = hop.fanout[0] >= 0 && !query.spec.numbers.importance;
    const bool knows_last = first_edge_.size() == num_hops + 1;
    if (!is_bounded && !knows_last) return {};
    const int64_t likely = is_bounded ? lists * hop.fanout[0] : kMostGrowth * (first_edge_[i + 1] - first_edge_[i]);
    most = std::min(most, static_cast<std::size_t>(likely));
    hop.counts.end_edge = static_cast<int64_t>(end);
    hop.num_edges = hop.counts.most_edges = static_cast<int64_t>(most);
    visits += hop.num_edges;
    if (lists == 0 || hop.num_edges == 0 || visits > kMaxVisits) return {};
    const auto most_lists = static_cast<int64_t>(std::min(list_.size(), offset_.size() - 1));
    lists = std::min({hop.num_edges, graph_nodes_ - std::ssize(query.seeds), most_lists});
    hops.push_back(std::move(hop));
  }
  return hops;
}

// Draws the batch within the bounds of `hops`. False: a hop exceeds its bounds.
bool CudaNeighborSampler::sample_within(std::vector<Hop> hops, const Query& query, cudaStream_t stream) {
  begin_batch(query, stream);
  hops[0].exclusions = exclusions_;
  for (const Hop& hop : hops) {
    count_edges(hop, stream);
    draw(hop, query, stream);
    if (!hop.gives_ids) continue;
    const int64_t most = most_new_nodes(hop);
    relabel(hop, stream);
    num_nodes_ += most;
  }
  const BatchCounts& counts = end_batch(stream);
  if (counts.too_small) return false;
  const std::size_t num_hops = hops.size();
  const bool is_global = !hops.back().gives_ids;
  first_node_.assign(counts.first_node, counts.first_node + num_hops + 2);
  first_edge_.assign(counts.first_edge, counts.first_edge + num_hops + 1);
  if (is_global) first_node_.back() = first_node_[num_hops];
  num_nodes_ = first_node_.back();
  num_edges_ = first_edge_.back();
  num_local_edges_ = is_global ? first_edge_[num_hops - 1] : num_edges_;
  return true;
}

const BatchCounts& CudaNeighborSampler::end_batch(cudaStream_t stream) {
  static_assert(sizeof(BatchCounts) % sizeof(int64_t) == 0);
  tell(reinterpret_cast<const int64_t*>(batch_counts_.data()), sizeof(BatchCounts) / sizeof(int64_t),
       reinterpret_cast<int64_t*>(batch_counts_read_.data()), stream);
  ended_.record(stream);
  cuda_check(cudaEventSynchronize(ended_), "read sizes");
  return *reinterpret_cast<const BatchCounts*>(batch_counts_read_.data());
}

const int64_t* CudaNeighborSampler::read_back(const int64_t* values, std::size_t count, cudaStream_t stream) {
  auto* host = reinterpret_cast<int64_t*>(read_back_.data());
  tell(values, count, host, stream);
  cuda_check(cudaStreamSynchronize(stream), "read sizes");
  return host;
}

}  // namespace cohort::sampler
