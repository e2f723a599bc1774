#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prefetch.h"
#include "base/process.h"
#include "cache/host_rows.h"
#include "sampler/backend.h"
#include "sampler/draw.h"
#include "sampler/draw_weights.h"
#include "sampler/host_batch.h"
#include "sampler/host_fetch.h"
#include "sampler/layer_draw.h"
#include "sampler/trees.h"

namespace cohort::sampler {
namespace {

constexpr int32_t kUnset = -1;
constexpr uint32_t kNoDegree = UINT32_MAX;
constexpr std::size_t kNodesAtOnce = 64;  // whose edges a thread draws before it looks them up

// What hop `hop` does not draw from the relation's lists, by the local ids of their nodes, or in trees by the nodes.
ExclusionsRef exclusions_of(const Query& query, int hop, int relation) {
  const auto found = std::ranges::find(query.spec.exclusions, relation, &Exclusions::relation);
  if (found == query.spec.exclusions.end() || (hop > 0 && !query.spec.disjoint)) return {};
  return {found->starts.data(), found->positions.data(), found->nodes.data(), std::ssize(found->nodes)};
}

class HostBackend final : public Backend {
 public:
  HostBackend(const GraphView& graph, const Faults& faults, TieredTables tiered)
      : graph_(graph),
        faults_(faults),
        tiered_(std::move(tiered)),
        local_id_(static_cast<std::size_t>(graph.num_nodes), kUnset) {
    for (const NodeRange& type : graph.types) types_.emplace_back(type);
    for (const Relation& relation : graph.relations) relations_.emplace_back(relation);
  }

  void enter_thread() override {
    if (num_threads_ == 0) num_threads_ = omp_get_max_threads();
    omp_set_num_threads(num_threads_);
  }

  std::size_t most_fetches() const override { return tiered_.of_types.empty() ? 1 : tiered_.ahead; }

  BatchSizes sample(const Query& query) override {
    const int64_t start_us = base::monotonic_us();
    query.check(relations_.size(), graph_.is_homogeneous(), graph_.has_edge_times(), graph_.has_draw_weights());
    forget_last_batch();
    place_seeds(query);
    end_hop_of_nodes();
    const std::size_t num_hops = query.fanout.size() / relations_.size();
    for (std::size_t hop = 0; hop < num_hops; ++hop) {
      const bool gives_ids = !query.last_hop_global || hop + 1 < num_hops;
      for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
        draw_hop(query, static_cast<int>(hop), static_cast<int>(relation), query.fanout[relation * num_hops + hop]);
        if (query.last_hop_global) source_node_.insert(source_node_.end(), drawn_.begin(), drawn_.end());
        num_drawn_ += std::ssize(drawn_);
        if (gives_ids) query.spec.disjoint ? relabel_in_trees(relations_[relation]) : relabel(relations_[relation]);
      }
      end_hop_of_nodes();
    }
    return sizes(start_us);
  }

  void before_fetch(const std::function<void(base::GpuStream)>&) override {}

  void fill(std::byte* data, std::size_t bytes, int value) override { std::memset(data, value, bytes); }

  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    HostFetch& fetch = in_flight_.emplace_back(base::monotonic_us());
    if (faults_.slow_fetch_us > 0) delay();
    std::copy(input_id.begin(), input_id.end(), slot.input_id);
    write_batch(graph_, types_, relations_, source_node_, slot);
    for (std::size_t type = 0; type < types_.size(); ++type) {
      std::byte* x = slot.x_of(type);
      if (!tiered_.of_types.empty()) {
        const auto& rows = tiered_.of_types[type];
        if (rows) fetch.add_rows(*rows, types_[type].n_id, x, slot.plane_a);
      } else {
        fetch_rows(types_[type], x, slot.plane_a, fetch);
      }
    }
    for (const OfRelation& edges : relations_) {  // the trainer reads rows of sources without local ids itself
      const OfType& sources = types_[static_cast<std::size_t>(edges.relation.source_type)];
      fetch.count_in_place(std::ssize(edges.target) - std::ssize(edges.source), sources.range.rows.row_bytes);
    }
    for (std::size_t relation = 0; relation < slot.edge_attr.size(); ++relation) {
      const OfRelation& edges = relations_[relation];
      fetch.add_edge_rows(edges.relation.edge_rows, edges.e_id, slot.edge_attr[relation]);
    }
    fetch.end_of_host(graph_.rows_in != channel::RowsIn::kTable);
  }

  bool finished() override { return in_flight_.front().done(); }

  FetchUse fetched() override {
    const FetchUse use = in_flight_.front().finish();
    in_flight_.pop_front();
    return use;
  }

 private:
  void forget_last_batch() {
    for (OfType& type : types_) {
      int32_t* const local_id = local_id_.data() + type.range.first;
      for (std::size_t i = 0; i < type.n_id.size(); ++i) {
        base::prefetch_ahead(local_id, type.n_id.data(), i, type.n_id.size());
        local_id[type.n_id[i]] = kUnset;
      }
      type.n_id.clear();
      type.tree.clear();
      type.ends_of_hops.clear();
    }
    for (OfRelation& edges : relations_) {
      edges.source.clear();
      edges.target.clear();
      edges.e_id.clear();
      edges.share.clear();
      edges.per_hop.clear();
    }
    source_node_.clear();
    tree_ids_.clear();
    num_lists_ = list_bytes_ = num_drawn_ = 0;
  }

  // Of a node by its id among all nodes.
  OfType& type_of(int64_t node) {
    const auto after = std::ranges::upper_bound(types_, node, {}, [](const OfType& type) { return type.range.first; });
    return *std::prev(after);
  }

  // Gives the node of the type the next local id unless it has one.
  int32_t reach(OfType& type, int64_t node) {
    int32_t& id = local_id_[static_cast<std::size_t>(type.range.first + node)];
    if (id == kUnset) {
      id = static_cast<int32_t>(type.n_id.size());
      type.n_id.push_back(node);
    }
    return id;
  }

  // The same in a tree.
  int32_t reach_in_tree(OfType& type, int64_t node, int32_t tree) {
    const auto next = static_cast<int32_t>(type.n_id.size());
    const int64_t in_tree = node_in_tree(tree, type.range.first + node);
    const int32_t id = tree_ids_.find_or_add(static_cast<uint64_t>(in_tree), next);
    if (id != next) return id;
    type.n_id.push_back(node);
    type.tree.push_back(tree);
    return id;
  }

  void place_seeds(const Query& query) {
    if (query.spec.disjoint) demand_trees(std::ssize(query.seeds));
    for (std::size_t i = 0; i < query.seeds.size(); ++i) {
      OfType& type = type_of(query.seeds[i]);
      const int64_t node = query.seeds[i] - type.range.first;
      query.spec.disjoint ? reach_in_tree(type, node, static_cast<int32_t>(i)) : reach(type, node);
    }
  }

  void end_hop_of_nodes() {
    for (OfType& type : types_) type.ends_of_hops.push_back(type.n_id.size());
  }

  // Appends the drawn edges of the relation's targets that the last hop has reached: targets as local ids, sources (in
  // drawn_) as nodes of the source type.
  void draw_hop(const Query& query, int hop, int number, int64_t fanout) {
    OfRelation& edges = relations_[static_cast<std::size_t>(number)];
    const OfType& targets = types_[static_cast<std::size_t>(edges.relation.target_type)];
    const base::CscRef& lists = edges.relation.lists;
    const std::vector<int64_t>& n_id = targets.n_id;
    const std::size_t end = targets.ends_of_hops.back();
    const std::size_t begin = targets.before_last_hop();
    const DrawWeightsRef weights = weights_for(edges.relation.draw_weights.get(), fanout);
    const ExclusionsRef exclusions = exclusions_of(query, hop, number);
    const Draw how = query.spec.of(fanout, edges.relation.edge_times);
    const int64_t first_source = types_[static_cast<std::size_t>(edges.relation.source_type)].range.first;
    const HopDraw draw{query.key, query.spec.numbers, hop,        number,  how,  picks_of(fanout, how), targets,
                       lists,     first_source,       exclusions, weights, begin};
    find_candidates(query, edges.relation, draw);
    const bool by_importance = draw.numbers.importance && fanout > 0;
    if (by_importance) note_least_degrees(draw, begin, end);
    offset_.assign(end - begin + 1, 0);
    int64_t num_read = 0;  // neighbours
    for (std::size_t i = begin; i < end; ++i) {
      base::prefetch_ahead(lists.indptr, n_id.data(), i, end);
      if (weights.positive) base::prefetch_ahead(weights.positive, n_id.data(), i, end);
      const int64_t may = drawable(draw, i);
      const int64_t picks = by_importance ? of_lists_[i - begin].picks(fanout, may) : draw.picks.of(may);
      offset_[i - begin + 1] = offset_[i - begin] + picks;
      num_lists_ += picks > 0 ? 1 : 0;
      num_read += draw.numbers.dependency > 0 && picks > 0 ? may : picks;
    }
    if (query.spec.disjoint) demand_tree_nodes(std::ssize(query.seeds) + num_drawn_ + offset_.back());
    drawn_.resize(static_cast<std::size_t>(offset_.back()));
    list_bytes_ += num_read * lists.index_bytes;
    edges.per_hop.push_back(offset_.back());
    edges.edges_before = edges.target.size();
    edges.target.resize(edges.edges_before + drawn_.size());
    if (query.edge_ids) edges.e_id.resize(edges.target.size());
    if (draw.numbers.importance) edges.share.resize(edges.target.size());
#pragma omp parallel for schedule(dynamic) if (end - begin > std::size_t{kFewItems})
    for (std::size_t first = begin; first < end; first += kNodesAtOnce) {
      const std::size_t last = std::min(first + kNodesAtOnce, end);
      for (std::size_t i = first; i < last; ++i) {
        base::prefetch_ahead(lists.indptr, n_id.data(), i, end);
        prefetch_units(weights, lists.indptr, n_id.data(), i, last);
        if (draw.numbers.dependency > 0) prefetch_list(lists, n_id.data(), i, end);
        draw_of(draw, i, offset_[i - begin], offset_[i - begin + 1] - offset_[i - begin], edges);
      }
      look_up(lists, static_cast<std::size_t>(offset_[first - begin]), static_cast<std::size_t>(offset_[last - begin]),
              query.edge_ids ? edges.e_id.data() + edges.edges_before : nullptr);
    }
    if (by_importance) forget_least_degrees(draw, begin, end);
  }

  // What is drawn from all lists of one relation in one hop.
  struct HopDraw {
    base::PhiloxKey key;
    NodeNumbers numbers;
    int hop, relation;
    Draw how;
    Picks picks;
    const OfType& targets;
    const base::CscRef& lists;
    int64_t first_source;  // the node that lists call 0
    ExclusionsRef exclusions;
    DrawWeightsRef weights;  // none: uniform draws
    std::size_t first;       // target of the hop, as a local id
  };

  // Has the list of a later one of `nodes` begin to come into the cache; its ends are there already.
  static void prefetch_list(const base::CscRef& lists, const int64_t* nodes, std::size_t i, std::size_t end) {
    constexpr std::size_t kAhead = base::kPrefetchAhead / 4, kLines = 4, kLineBytes = 64;
    if (i + kAhead >= end) return;
    const auto* list =
        static_cast<const std::byte*>(lists.indices) + lists.indptr[nodes[i + kAhead]] * lists.index_bytes;
    for (std::size_t line = 0; line < kLines; ++line) __builtin_prefetch(list + line * kLineBytes);
  }

  // What is not drawn from the list of the node with this local id.
  static ExcludedRef excluded_from(const HopDraw& draw, std::size_t local_id) {
    const OfType& targets = draw.targets;
    if (targets.tree.empty()) return draw.exclusions.of_list(static_cast<int64_t>(local_id));
    return draw.exclusions.of_node(targets.range.first + targets.n_id[local_id]);
  }

  // Where edges have times, of all lists of the hop: a search in each, by all threads.
  void find_candidates(const Query& query, const Relation& relation, const HopDraw& draw) {
    candidates_.clear();
    if (query.spec.times.empty() || !relation.edge_times) return;
    const OfType& targets = draw.targets;
    const int64_t window = query.spec.window_of(static_cast<std::size_t>(draw.relation));
    const std::size_t begin = draw.first, end = targets.ends_of_hops.back();
    candidates_.resize(end - begin);
#pragma omp parallel for schedule(dynamic, 64) if (end - begin > std::size_t{kFewItems})
    for (std::size_t i = begin; i < end; ++i) {
      const int64_t* ends = relation.lists.indptr + targets.n_id[i];
      const TimeSpan span = span_until(query.spec.times[static_cast<std::size_t>(targets.tree[i])], window);
      candidates_[i - begin] =
          candidates_in(relation.edge_times, ends[0], ends[1], span, draw.how, draw.picks, excluded_from(draw, i));
    }
  }

  // How many edges of the node with this local id may be drawn.
  int64_t drawable(const HopDraw& draw, std::size_t local_id) const {
    if (!candidates_.empty()) return candidates_[local_id - draw.first].count;
    const int64_t node = draw.targets.n_id[local_id];
    return num_drawable(draw.weights, node, draw.lists.indptr + node, excluded_from(draw, local_id));
  }

  // Calls use(neighbour) with what may be drawn from the list of the node with this local id, as the list calls it.
  template <typename Use>
  void for_each_candidate(const HopDraw& draw, std::size_t local_id, Use use) const {
    const int64_t* const ends = draw.lists.indptr + draw.targets.n_id[local_id];
    const ExcludedRef excluded = excluded_from(draw, local_id);
    draw.lists.with_indices([&](const auto* indices) {
      for (int64_t at = ends[0]; excluded.count == 0 && at < ends[1]; ++at) use(int64_t{indices[at]});
      for (int64_t at = ends[0]; excluded.count > 0 && at < ends[1]; ++at) {
        if (!excluded.has(at - ends[0])) use(int64_t{indices[at]});
      }
    });
  }

  // For importance sampling: least_degree_ of all candidates of the hop, and its sums over each list.
  void note_least_degrees(const HopDraw& draw, std::size_t begin, std::size_t end) {
    least_degree_.resize(local_id_.size(), kNoDegree);
    of_lists_.assign(end - begin, {});
    uint32_t* const least = least_degree_.data();
#pragma omp parallel for schedule(dynamic, 64) if (end - begin > std::size_t{kFewItems})
    for (std::size_t i = begin; i < end; ++i) {
      const uint32_t own = LeastDegrees::least_of(drawable(draw, i), draw.picks.fanout);
      for_each_candidate(draw, i, [&](int64_t neighbour) {
        const std::atomic_ref<uint32_t> of_neighbour(least[neighbour]);
        uint32_t before = of_neighbour.load(std::memory_order_relaxed);
        while (own < before && !of_neighbour.compare_exchange_weak(before, own, std::memory_order_relaxed)) {
        }
      });
    }
#pragma omp parallel for schedule(dynamic, 64) if (end - begin > std::size_t{kFewItems})
    for (std::size_t i = begin; i < end; ++i) {
      if (drawable(draw, i) <= draw.picks.fanout) continue;
      LeastDegrees& sums = of_lists_[i - begin];
      for_each_candidate(draw, i, [&](int64_t neighbour) { sums.add(least[neighbour]); });
    }
  }

  void forget_least_degrees(const HopDraw& draw, std::size_t begin, std::size_t end) {
#pragma omp parallel for schedule(dynamic, 64) if (end - begin > std::size_t{kFewItems})
    for (std::size_t i = begin; i < end; ++i) {
      for_each_candidate(draw, i, [&](int64_t neighbour) {
        std::atomic_ref(least_degree_[static_cast<std::size_t>(neighbour)]).store(kNoDegree, std::memory_order_relaxed);
      });
    }
  }

  // Draws `picks` edges of the node with this local id, from drawn_[drawn_before] on.
  void draw_of(const HopDraw& draw, std::size_t local_id, int64_t drawn_before, int64_t picks, OfRelation& edges) {
    if (picks == 0) return;
    const ExcludedRef excluded = excluded_from(draw, local_id);
    const OfType& targets = draw.targets;
    const int64_t node = targets.n_id[local_id], begin = draw.lists.indptr[node];
    const int64_t row = candidates_.empty() ? begin : candidates_[local_id - draw.first].first;
    const int64_t may = drawable(draw, local_id);
    const int64_t numbered = targets.range.first + node;
    const int64_t keyed = targets.tree.empty() ? numbered : node_in_tree(targets.tree[local_id], numbered);
    int64_t* drawn = drawn_.data() + drawn_before;
    float* share = draw.numbers.importance ? edges.share.data() + edges.edges_before + drawn_before : nullptr;
    if (share) std::fill_n(share, picks, static_cast<float>(1 / static_cast<double>(picks)));
    if (draw.weights.of_edges) {
      const ListMass list = draw.weights.of_list(draw.lists.indptr + node);
      draw_weighted({draw.weights, list, excluded, may, draw.key, keyed, draw.hop, draw.relation}, picks, drawn);
      for (int64_t j = 0; j < picks; ++j) drawn[j] += row;
    } else if (draw.numbers.dependency > 0 && picks < may) {
      thread_local LayerDraw of_thread;
      const int64_t end = draw.lists.indptr[node + 1];
      LayerDraw::List list{draw.lists, draw.first_source, begin, end, excluded, picks};
      if (share) list.least = least_degree_.data(), list.of_candidates = of_lists_[local_id - draw.first];
      of_thread.draw(list, draw.numbers, draw.hop, drawn, share);
    } else {
      draw_positions(draw.how, draw.key, keyed, draw.hop, draw.relation, picks, may, drawn);
      const ExcludedRef from_row = excluded.from(row - begin);
      for (int64_t j = 0; j < picks; ++j) drawn[j] = row + pass_over(from_row, drawn[j]);
    }
    std::fill_n(edges.target.begin() + static_cast<std::ptrdiff_t>(edges.edges_before) + drawn_before, picks,
                static_cast<int32_t>(local_id));
  }

  // Puts the sources of edges in their place in drawn_[first, last); `e_id`: where the edges are to be kept, or null.
  void look_up(const base::CscRef& lists, std::size_t first, std::size_t last, int64_t* e_id) {
    const auto* indices = static_cast<const std::byte*>(lists.indices);
    for (std::size_t i = first; i < last; ++i) {
      if (i + base::kPrefetchAhead < last) {
        __builtin_prefetch(indices + drawn_[i + base::kPrefetchAhead] * lists.index_bytes);
      }
      if (e_id) e_id[i] = drawn_[i];
      drawn_[i] = lists.index(drawn_[i]);
    }
  }

  // Turns the drawn sources into local ids, in edge order.
  void relabel(OfRelation& edges) {
    OfType& sources = types_[static_cast<std::size_t>(edges.relation.source_type)];
    const int32_t* const local_id = local_id_.data() + sources.range.first;
    edges.source.resize(edges.edges_before + drawn_.size());
    for (std::size_t edge = 0; edge < drawn_.size(); ++edge) {
      base::prefetch_ahead(local_id, drawn_.data(), edge, drawn_.size());
      edges.source[edges.edges_before + edge] = reach(sources, drawn_[edge]);
    }
  }

  // The same, where sources are in the trees of their targets.
  void relabel_in_trees(OfRelation& edges) {
    OfType& sources = types_[static_cast<std::size_t>(edges.relation.source_type)];
    const OfType& targets = types_[static_cast<std::size_t>(edges.relation.target_type)];
    edges.source.resize(edges.edges_before + drawn_.size());
    for (std::size_t edge = 0; edge < drawn_.size(); ++edge) {
      const int32_t target = edges.target[edges.edges_before + edge];
      edges.source[edges.edges_before + edge] =
          reach_in_tree(sources, drawn_[edge], targets.tree[static_cast<std::size_t>(target)]);
    }
  }

  // Of the batch that was sampled.
  BatchSizes sizes(int64_t start_us) const {
    BatchSizes sizes;
    const std::size_t num_hops = relations_[0].per_hop.size();
    sizes.nodes_per_hop.assign(num_hops + 1, 0);
    sizes.edges_per_hop.assign(num_hops, 0);
    for (const OfType& type : types_) {
      std::vector<int64_t> per_hop;
      std::size_t before = 0;
      for (const std::size_t end : type.ends_of_hops)
        per_hop.push_back(static_cast<int64_t>(end - std::exchange(before, end)));
      add(per_hop, sizes.nodes_per_hop);
      sizes.num_nodes += static_cast<int64_t>(type.n_id.size());
      sizes.nodes_of_type.push_back(std::move(per_hop));
    }
    for (const OfRelation& edges : relations_) {
      add(edges.per_hop, sizes.edges_per_hop);
      sizes.num_edges += static_cast<int64_t>(edges.target.size());
      sizes.num_local_edges += static_cast<int64_t>(edges.source.size());
      sizes.edges_of_relation.push_back(edges.per_hop);
    }
    sizes.lists[cache::kHostTier] = {num_lists_, list_bytes_ + num_lists_ * cache::list_head_bytes(cache::Tier::kHost)};
    sizes.time = since(start_us);
    return sizes;
  }

  static void add(const std::vector<int64_t>& values, std::vector<int64_t>& sums) {
    std::ranges::transform(values, sums, sums.begin(), std::plus<>());
  }

  // The rows of the type's nodes, and what was read for them.
  void fetch_rows(const OfType& type, std::byte* x, bool plane_a, HostFetch& fetch) const {
    if (graph_.rows_in == channel::RowsIn::kTable) {
      fetch.count_in_place(std::ssize(type.n_id), type.range.rows.row_bytes);
    } else {
      fetch.add_rows(type.range.rows, type.n_id, x, plane_a);
    }
  }

  void delay() {
    std::uniform_int_distribution<int64_t> delay_us(0, faults_.slow_fetch_us);
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(delays_)));
  }

  GraphView graph_;
  Faults faults_;
  TieredTables tiered_;
  int num_threads_ = 0;  // of OpenMP, that the backend's threads have
  std::vector<OfType> types_;
  std::vector<OfRelation> relations_;
  std::vector<int32_t> local_id_;       // int32 [V], of all types, kUnset outside the batch
  std::vector<int64_t> source_node_;    // int64 [num_edges], where the query leaves the last hop global
  std::vector<int64_t> offset_;         // int64 [frontier + 1], first edge of each frontier node
  std::vector<Candidates> candidates_;  // [frontier]; none: all edges
  // Of importance sampling: uint32 [V], by what lists call nodes, kNoDegree outside of a hop; [frontier].
  std::vector<uint32_t> least_degree_;
  std::vector<LeastDegrees> of_lists_;
  TreeIds tree_ids_;                 // of a disjoint batch
  std::vector<int64_t> drawn_;       // int64 [edges of the hop], positions, then nodes
  int64_t num_drawn_ = 0;            // edges of the batch
  int64_t num_lists_ = 0;            // of the batch, that neighbours were drawn from
  int64_t list_bytes_ = 0;           // of the neighbours drawn
  std::deque<HostFetch> in_flight_;  // the oldest first
  std::mt19937_64 delays_{std::random_device{}()};
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(const GraphView& graph, const Faults& faults, TieredTables tiered) {
  if (graph.num_nodes > INT32_MAX) {
    throw base::Error(
        {"data set", "at most 2147483647 nodes", std::to_string(graph.num_nodes), "batch-local ids are int32"});
  }
  return std::make_unique<HostBackend>(graph, faults, std::move(tiered));
}

}  // namespace cohort::sampler
