#include "sampler/pairs.h"

#include <algorithm>
#include <cmath>

#include "base/prefetch.h"
#include "sampler/draw.h"

namespace cohort::sampler {
namespace {

template <typename Index>
void find_in(std::span<const Index> list, bool ascends, int64_t node, std::vector<int64_t>& positions) {
  const auto wanted = static_cast<Index>(node);
  if (ascends) {
    const auto same = std::ranges::equal_range(list, wanted);
    for (auto each = same.begin(); each != same.end(); ++each) positions.push_back(each - list.begin());
    return;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == wanted) positions.push_back(static_cast<int64_t>(i));
  }
}

// Calls use(indices) with the type that they have.
template <typename Use>
void with_indices(const base::CscRef& graph, Use use) {
  if (graph.index_bytes == 4) {
    use(static_cast<const int32_t*>(graph.indices));
  } else {
    use(static_cast<const int64_t*>(graph.indices));
  }
}

// Asks for the lists of nodes after nodes[i]: first for their ends, then for their neighbours.
void prefetch_lists(const base::CscRef& graph, std::span<const int64_t> nodes, std::size_t i) {
  base::prefetch_ahead(graph.indptr, nodes.data(), i, nodes.size());
  if (const std::size_t next = i + base::kPrefetchAhead / 2; next < nodes.size()) {
    __builtin_prefetch(static_cast<const std::byte*>(graph.indices) + graph.indptr[nodes[next]] * graph.index_bytes);
  }
}

template <typename Index>
bool all_ascend(const base::CscRef& graph, const Index* indices) {
  bool ascend = true;
#pragma omp parallel for schedule(dynamic, 4096) reduction(&& : ascend)
  for (int64_t node = 0; node < graph.num_nodes; ++node) {
    ascend = ascend && std::is_sorted(indices + graph.indptr[node], indices + graph.indptr[node + 1]);
  }
  return ascend;
}

}  // namespace

int64_t num_negatives(const channel::Request& request, int64_t num_pairs) {
  if (request.negative_mode == channel::NegativeMode::kNone) return 0;
  return static_cast<int64_t>(std::ceil(static_cast<double>(num_pairs) * request.negatives));
}

int64_t most_endpoints(const channel::Request& request) {
  const int64_t of_negative = request.negative_mode == channel::NegativeMode::kTriplet ? 1 : 2;
  return 2 * int64_t{request.batch_size} + of_negative * num_negatives(request, request.batch_size);
}

void PairSeeds::make(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
                     base::PhiloxKey key) {
  sources_.clear();
  targets_.clear();
  for (const int64_t position : positions) {
    sources_.push_back(set.seeds[2 * static_cast<std::size_t>(position)]);
    targets_.push_back(set.seeds[2 * static_cast<std::size_t>(position) + 1]);
  }
  draw_negatives(request, key);
  seeds_.clear();
  local_id_.clear();
  input_id_.assign(positions.begin(), positions.end());
  std::ranges::for_each(sources_, [this](int64_t node) { add_endpoint(node); });
  std::ranges::for_each(targets_, [this](int64_t node) { add_endpoint(node); });
  excluded_starts_.clear();
  excluded_.clear();
  if (request.exclude != channel::Exclude::kNone) {
    exclude(request.exclude == channel::Exclude::kReverse, positions.size());
  }
}

void PairSeeds::draw_negatives(const channel::Request& request, base::PhiloxKey key) {
  const int64_t num_pairs = std::ssize(sources_), count = num_negatives(request, num_pairs);
  const bool is_triplet = request.negative_mode == channel::NegativeMode::kTriplet;
  for (int64_t number = 0; number < count; ++number) {
    if (!is_triplet) sources_.push_back(draw_endpoint(key, number, 0, 0, graph_.num_nodes));
    targets_.push_back(draw_endpoint(key, number, 1, 0, graph_.num_nodes));
  }
  if (request.redraws == 0) return;
  const std::span targets = std::span(targets_).subspan(static_cast<std::size_t>(num_pairs));
  for (int64_t number = 0; number < count; ++number) {
    const auto i = static_cast<std::size_t>(number);
    prefetch_lists(graph_, targets, i);
    int64_t& source =
        sources_[static_cast<std::size_t>(is_triplet ? number / (count / num_pairs) : num_pairs + number)];
    for (uint32_t attempt = 1; attempt <= request.redraws && is_edge(source, targets[i]); ++attempt) {
      if (!is_triplet) source = draw_endpoint(key, number, 0, attempt, graph_.num_nodes);
      targets[i] = draw_endpoint(key, number, 1, attempt, graph_.num_nodes);
    }
  }
}

bool PairSeeds::is_edge(int64_t source, int64_t target) {
  found_.clear();
  find(source, target, found_);
  return !found_.empty();
}

void PairSeeds::add_endpoint(int64_t node) {
  const auto [known, is_new] = local_id_.try_emplace(node, std::ssize(seeds_));
  if (is_new) seeds_.push_back(node);
  input_id_.push_back(known->second);
}

void PairSeeds::exclude(bool reverse, std::size_t num_pairs) {
  const std::span source_ids = std::span(input_id_).subspan(num_pairs, num_pairs);
  const std::span target_ids = std::span(input_id_).subspan(num_pairs + sources_.size(), num_pairs);
  edges_.clear();
  for (std::size_t pair = 0; pair < num_pairs; ++pair) {
    edges_.emplace_back(target_ids[pair], sources_[pair]);
    if (reverse) edges_.emplace_back(source_ids[pair], targets_[pair]);
  }
  std::ranges::sort(edges_);
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  auto edge = edges_.begin();
  excluded_starts_.push_back(0);
  for (int64_t target = 0; target < std::ssize(seeds_); ++target) {
    for (; edge != edges_.end() && edge->first == target; ++edge) {
      find(edge->second, seeds_[static_cast<std::size_t>(target)], excluded_);
    }
    std::sort(excluded_.begin() + excluded_starts_.back(), excluded_.end());
    excluded_starts_.push_back(std::ssize(excluded_));
  }
}

void PairSeeds::find(int64_t source, int64_t target, std::vector<int64_t>& positions) {
  const int64_t begin = graph_.indptr[target], end = graph_.indptr[target + 1];
  with_indices(graph_, [&]<typename Index>(const Index* indices) {
    find_in(std::span(indices + begin, indices + end), lists_ascend(), source, positions);
  });
}

bool PairSeeds::lists_ascend() {
  if (!lists_ascend_) {
    with_indices(graph_, [this](const auto* indices) { lists_ascend_ = all_ascend(graph_, indices); });
  }
  return *lists_ascend_;
}

}  // namespace cohort::sampler
