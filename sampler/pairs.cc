#include "sampler/pairs.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/format.h"
#include "base/prefetch.h"
#include "base/side_by_side.h"
#include "sampler/draw.h"
#include "sampler/negatives.h"

namespace cohort::sampler {
namespace {

template <typename Index>
void find_in(std::span<const Index> list, bool ascends, int64_t node, std::vector<int64_t>& positions) {
  const auto wanted = static_cast<Index>(node);
  if (ascends) {
    const auto [begin, end] = std::equal_range(list.begin(), list.end(), wanted);
    for (auto each = begin; each != end; ++each) positions.push_back(each - list.begin());
    return;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == wanted) positions.push_back(static_cast<int64_t>(i));
  }
}

// Asks for the lists of nodes after nodes[i], counted from `first`: first for their ends, then for their neighbours
// where a search looks first.
void prefetch_lists(const base::CscRef& graph, std::span<const int64_t> nodes, int64_t first, std::size_t i) {
  if (const std::size_t next = i + base::kPrefetchAhead; next < nodes.size()) {
    __builtin_prefetch(graph.indptr + (nodes[next] - first));
  }
  if (const std::size_t next = i + base::kPrefetchAhead / 2; next < nodes.size()) {
    const int64_t begin = graph.indptr[nodes[next] - first], length = graph.indptr[nodes[next] - first + 1] - begin;
    for (const int64_t at : {int64_t{0}, length / 4, length / 2, length - length / 4}) {
      __builtin_prefetch(static_cast<const std::byte*>(graph.indices) + (begin + at) * graph.index_bytes);
    }
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

// The node, which must be of the type.
int64_t of_type(const NodeRange& type, int64_t node, const char* place) {
  if (node >= type.first && node - type.first < type.count) return node;
  throw base::Error({place, base::format("a node in [{}, {})", type.first, type.first + type.count),
                     std::to_string(node), "pairs must be of their node types"});
}

constexpr std::size_t kLeastShared = 1024;  // edges that several threads look for

}  // namespace

int64_t num_negatives(const channel::Request& request, int64_t num_pairs) {
  if (request.negative_mode == channel::NegativeMode::kNone) return 0;
  return static_cast<int64_t>(std::ceil(static_cast<double>(num_pairs) * request.negatives));
}

int64_t most_endpoints(const channel::Request& request) {
  const int64_t of_negative = request.negative_mode == channel::NegativeMode::kBinary ? 2 : 1;
  return 2 * int64_t{request.batch_size} + of_negative * num_negatives(request, request.batch_size);
}

int64_t most_seeds_of_pairs(const channel::Request& request) {
  const bool share_seeds = !request.disjoint;
  if (request.negative_mode != channel::NegativeMode::kInBatch || !share_seeds) return most_endpoints(request);
  const int64_t of_one_pair = 2 + num_negatives(request, 1);
  return std::max(2 * int64_t{request.batch_size}, of_one_pair);
}

void PairSeeds::make(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
                     base::PhiloxKey key) {
  base::require(request.relation < relations_.size(), "pairs of a relation of the graph");
  relation_ = static_cast<int>(request.relation);
  const Relation& relation = relations_[request.relation];
  source_type_ = request.unrelated ? static_cast<int>(request.source_type) : relation.source_type;
  target_type_ = request.unrelated ? static_cast<int>(request.target_type) : relation.target_type;
  base::require(std::cmp_less(source_type_, types_.size()) && std::cmp_less(target_type_, types_.size()),
                "pairs of node types of the graph");
  base::require(!request.unrelated || request.exclude == channel::Exclude::kNone, "excluded pairs of a relation");
  sources_.clear();
  targets_.clear();
  for (const int64_t position : positions) {
    const int64_t* pair = set.seeds.data() + 2 * position;
    sources_.push_back(of_type(sources_type(), pair[0], "the source of a pair"));
    targets_.push_back(of_type(targets_type(), pair[1], "the target of a pair"));
  }
  draw_negatives(set, positions, request, key);
  times_.clear();
  exclusions_.clear();
  input_id_.assign(positions.begin(), positions.end());
  if (request.disjoint) {
    seeds_ = sources_;
    seeds_.insert(seeds_.end(), targets_.begin(), targets_.end());
    const int64_t first_target = source_type_ == target_type_ ? std::ssize(sources_) : 0;
    for (int64_t id = 0; id < std::ssize(sources_); ++id) input_id_.push_back(id);
    for (int64_t id = 0; id < std::ssize(targets_); ++id) input_id_.push_back(first_target + id);
    find_times(set, positions, request.negative_mode != channel::NegativeMode::kBinary);
  } else {
    number_endpoints();
  }
  if (request.exclude != channel::Exclude::kNone) exclude(request.exclude, positions.size(), request.disjoint);
}

void PairSeeds::find_times(const SeedSet& set, std::span<const int64_t> positions, bool triplets) {
  if (set.times.empty()) return;
  const std::size_t num_pairs = positions.size(), num_targets = targets_.size();
  const auto add = [&](std::size_t pair) { times_.push_back(set.times[static_cast<std::size_t>(positions[pair])]); };
  for (std::size_t i = 0; i < sources_.size(); ++i) add(i % num_pairs);
  for (std::size_t i = 0; i < num_targets; ++i) {
    const bool is_negative = triplets && i >= num_pairs;
    add(is_negative ? (i - num_pairs) / ((num_targets - num_pairs) / num_pairs) : i % num_pairs);
  }
}

void PairSeeds::draw_negatives(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
                               base::PhiloxKey key) {
  const int64_t num_pairs = std::ssize(sources_), count = num_negatives(request, num_pairs);
  const bool has_sources = request.negative_mode == channel::NegativeMode::kBinary;
  const bool in_batch = request.negative_mode == channel::NegativeMode::kInBatch;
  const base::CscRef& lists = relations_[request.relation].lists;
  const EndNodes of_sources(sources_type(), set.source_weights, set.source_times);
  const EndNodes of_targets(targets_type(), set.target_weights, set.target_times);
  const TargetsOfPairs of_pairs(in_batch ? std::span(targets_) : std::span<int64_t>(), set.target_times,
                                of_targets.type.first);
  const auto pair_of = [&](int64_t number) {
    return has_sources ? number % num_pairs : number / (count / num_pairs);  // as find_times() has it
  };
  const auto time_of = [&](int64_t number) {
    if (set.times.empty()) return int64_t{0};
    return set.times[static_cast<std::size_t>(positions[static_cast<std::size_t>(pair_of(number))])];
  };
  const auto draw_target = [&](int64_t number, uint32_t attempt) {
    const int64_t time = time_of(number), others = in_batch ? of_pairs.others(pair_of(number), time) : 0;
    if (others == 0) return of_targets.draw(key, number, 1, attempt, time);
    const int64_t drawn = draw_endpoint(key, number, 1, attempt, others);
    return targets_[static_cast<std::size_t>(of_pairs.other(pair_of(number), drawn))];
  };
  for (int64_t number = 0; number < count; ++number) {
    if (has_sources) sources_.push_back(of_sources.draw(key, number, 0, 0, time_of(number)));
    targets_.push_back(draw_target(number, 0));
  }
  if (request.redraws == 0) return;
  const std::span targets = std::span(targets_).subspan(static_cast<std::size_t>(num_pairs));
  for (int64_t number = 0; number < count; ++number) {
    const auto i = static_cast<std::size_t>(number);
    if (!request.unrelated) prefetch_lists(lists, targets, of_targets.type.first, i);
    const auto pair = static_cast<std::size_t>(has_sources ? num_pairs + number : pair_of(number));
    const auto is_link = [&] {
      const bool is_own = in_batch && targets[i] == targets_[pair];
      return is_own || (!request.unrelated && is_edge(sources_[pair], targets[i]));
    };
    for (uint32_t attempt = 1; attempt <= request.redraws && is_link(); ++attempt) {
      if (has_sources) sources_[pair] = of_sources.draw(key, number, 0, attempt, time_of(number));
      targets[i] = draw_target(number, attempt);
    }
  }
}

bool PairSeeds::is_edge(int64_t source, int64_t target) {
  found_.clear();
  find(relation_, source, target, found_);
  return !found_.empty();
}

// Where the types of both ends differ, all sources come before the first target.
void PairSeeds::number_endpoints() {
  seeds_.clear();
  local_id_.clear();
  for (const int64_t node : sources_) add_endpoint(node, 0);
  first_target_ = source_type_ == target_type_ ? 0 : std::ssize(seeds_);
  for (const int64_t node : targets_) add_endpoint(node, first_target_);
}

// first: of seeds_ that is of the node's type.
void PairSeeds::add_endpoint(int64_t node, int64_t first) {
  const auto next = static_cast<int32_t>(std::ssize(seeds_) - first);
  const int32_t number = local_id_.find_or_add(static_cast<uint64_t>(node), next);
  if (number == next) seeds_.push_back(node);
  input_id_.push_back(number);
}

void PairSeeds::exclude(channel::Exclude which, std::size_t num_pairs, bool in_trees) {
  const std::span<const int64_t> ids = input_id_, all_sources = sources_, all_targets = targets_, seeds = seeds_;
  const auto source_keys = in_trees ? all_sources : ids.subspan(num_pairs, num_pairs);
  const auto target_keys = in_trees ? all_targets : ids.subspan(num_pairs + sources_.size(), num_pairs);
  const bool is_one_type = source_type_ == target_type_;
  const std::span<const int64_t> of_targets = in_trees ? seeds : seeds.subspan(static_cast<std::size_t>(first_target_)),
                                 of_sources = is_one_type ? seeds : seeds.first(seeds.size() - of_targets.size());
  std::vector<dataset::SameEdges> there{{relation_, false}};
  if (which == channel::Exclude::kReverse) there = same_edges();
  std::ranges::stable_sort(there, {}, &dataset::SameEdges::relation);
  excluded_.resize(std::max(excluded_.size(), there.size()));
  edges_.clear();
  for (std::size_t i = 0; i < there.size(); ++i) {
    const auto [number, reversed] = there[i];
    for (std::size_t pair = 0; pair < num_pairs; ++pair) {
      if (reversed) {
        edges_.emplace_back(source_keys[pair], targets_[pair]);
      } else {
        edges_.emplace_back(target_keys[pair], sources_[pair]);
      }
    }
    if (i + 1 < there.size() && there[i + 1].relation == number) continue;
    exclude_edges(number, reversed ? of_sources : of_targets, in_trees, excluded_[i]);
    edges_.clear();
  }
}

std::vector<dataset::SameEdges> PairSeeds::same_edges() {
  std::vector<dataset::RelationLists> relations;
  for (const Relation& each : relations_) {
    relations.push_back({each.source_type, each.target_type, each.lists, each.reverse_of});
  }
  if (reverses_->empty()) *reverses_ = dataset::find_reverses(relations);
  return dataset::same_edges(relations, *reverses_, relation_);
}

void PairSeeds::exclude_edges(int relation, std::span<const int64_t> targets, bool in_trees, Excluded& excluded) {
  std::ranges::sort(edges_);
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  lists_.clear();
  for (const auto& [target, source] : edges_) {
    lists_.push_back(in_trees ? target : targets[static_cast<std::size_t>(target)]);
  }
  find_edges(relation);
  std::size_t edge = 0;
  excluded.positions.clear();
  excluded.nodes.clear();
  excluded.starts.assign(1, 0);
  const auto add_list = [&](int64_t target) {
    for (; edge < edges_.size() && edges_[edge].first == target; ++edge) {
      const Found& part = parts_[edge / edges_of_part_];
      const std::size_t in_part = edge % edges_of_part_;
      const auto begin = in_part == 0 ? 0 : part.ends[in_part - 1], end = part.ends[in_part];
      excluded.positions.insert(excluded.positions.end(), part.positions.begin() + begin, part.positions.begin() + end);
    }
    std::sort(excluded.positions.begin() + excluded.starts.back(), excluded.positions.end());
    excluded.starts.push_back(std::ssize(excluded.positions));
  };
  if (in_trees) {
    while (edge < edges_.size()) add_list(excluded.nodes.emplace_back(edges_[edge].first));
  } else {
    for (int64_t target = 0; target < std::ssize(targets); ++target) add_list(target);
  }
  exclusions_.push_back({relation, excluded.starts, excluded.positions, excluded.nodes});
}

// Lists of random nodes come slowly from memory, so several threads wait for them.
void PairSeeds::find_edges(int relation) {
  const Relation& lists = relations_[static_cast<std::size_t>(relation)];
  const int64_t first = type(lists.target_type).first;
  lists_ascend(relation);  // which the threads then only read
  const std::size_t num_parts = edges_.size() < kLeastShared ? 1 : parts_.size();
  edges_of_part_ = std::max<std::size_t>((edges_.size() + num_parts - 1) / num_parts, 1);
  base::side_by_side(num_parts, [&](std::size_t number) {
    Found& part = parts_[number];
    part.positions.clear();
    part.ends.clear();
    const std::size_t end = std::min((number + 1) * edges_of_part_, edges_.size());
    for (std::size_t edge = number * edges_of_part_; edge < end; ++edge) {
      prefetch_lists(lists.lists, lists_, first, edge);
      find(relation, edges_[edge].second, lists_[edge], part.positions);
      part.ends.push_back(std::ssize(part.positions));
    }
  });
}

void PairSeeds::find(int relation, int64_t source, int64_t target, std::vector<int64_t>& positions) {
  const Relation& edges = relations_[static_cast<std::size_t>(relation)];
  const base::CscRef& lists = edges.lists;
  const int64_t list = target - type(edges.target_type).first, node = source - type(edges.source_type).first;
  const int64_t begin = lists.indptr[list], end = lists.indptr[list + 1];
  lists.with_indices([&]<typename Index>(const Index* indices) {
    find_in(std::span(indices + begin, indices + end), lists_ascend(relation), node, positions);
  });
}

bool PairSeeds::lists_ascend(int relation) {
  const auto at = static_cast<std::size_t>(relation);
  std::optional<bool>& ascend = (*lists_ascend_)[at];
  if (!ascend) {
    const base::CscRef& lists = relations_[at].lists;
    lists.with_indices([&](const auto* indices) { ascend = all_ascend(lists, indices); });
  }
  return *ascend;
}

// The first batch is made before threads begin: it finds out which lists ascend, and the threads then only read that.
const PairSeeds& PairsOfPass::make(const Schedule& schedule, uint64_t step) {
  const std::size_t now = buffer_of(step);
  if (making_[now].valid()) {
    making_[now].get();
  } else {
    make_batch(schedule, step);
  }
  now_ = &buffers_[now];
  for (uint64_t ahead = 1; ahead <= kAhead; ++ahead) {
    const uint64_t next = step + ahead * request_.step_stride;
    std::future<void>& making = making_[buffer_of(next)];
    if (!making.valid()) {
      making = std::async(std::launch::async, [this, &schedule, next] { make_batch(schedule, next); });
    }
  }
  return *now_;
}

void PairsOfPass::make_batch(const Schedule& schedule, uint64_t step) {
  const std::span<const int64_t> positions = schedule.positions(step);
  if (positions.empty()) return;  // behind the last batch
  buffers_[buffer_of(step)].make(schedule.set(), positions, request_, batch_key(seed_, request_.epoch, step));
}

}  // namespace cohort::sampler
