#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/prefetch.h"
#include "base/process.h"
#include "cache/host_rows.h"
#include "sampler/backend.h"
#include "sampler/draw.h"

namespace cohort::sampler {
namespace {

constexpr int32_t kUnset = -1;
constexpr int kFewItems = 256;            // not worth waking threads for
constexpr std::size_t kNodesAtOnce = 64;  // whose edges a thread draws before it looks them up

// Writes the drawn positions of one node, ascending; returns how many. positions: int64 [picks].
void draw_positions(base::PhiloxKey key, int64_t node, int hop, int64_t picks, int64_t degree, int64_t* positions) {
  if (picks == degree) {
    for (int64_t j = 0; j < degree; ++j) positions[j] = j;
    return;
  }
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t candidate = draw_candidate(key, node, hop, j, picks, degree);
    const bool taken = std::find(positions, positions + j, candidate) != positions + j;
    positions[j] = taken ? degree - picks + j : candidate;
  }
  std::sort(positions, positions + picks);
}

base::Span since(int64_t start_us) {
  return {static_cast<double>(start_us), static_cast<double>(base::monotonic_us())};
}

class HostBackend final : public Backend {
 public:
  HostBackend(const GraphView& graph, const Faults& faults)
      : graph_(graph), faults_(faults), local_id_(static_cast<std::size_t>(graph.num_nodes), kUnset) {}

  BatchSizes sample(const Query& query) override {
    const int64_t start_us = base::monotonic_us();
    forget_last_batch();
    for (int64_t seed : query.seeds) reach(seed);
    BatchSizes counts;
    counts.nodes_per_hop = {static_cast<int64_t>(n_id_.size())};
    std::size_t frontier_begin = 0;
    for (std::size_t hop = 0; hop < query.fanout.size(); ++hop) {
      const std::size_t frontier_end = n_id_.size();
      const std::size_t edges_before = target_.size();
      draw_hop(query, static_cast<int>(hop), frontier_begin, frontier_end);
      if (query.last_hop_global) source_node_.insert(source_node_.end(), drawn_.begin(), drawn_.end());
      if (!query.last_hop_global || hop + 1 < query.fanout.size()) relabel(edges_before);
      counts.nodes_per_hop.push_back(static_cast<int64_t>(n_id_.size() - frontier_end));
      counts.edges_per_hop.push_back(static_cast<int64_t>(target_.size() - edges_before));
      frontier_begin = frontier_end;
    }
    counts.num_nodes = static_cast<int64_t>(n_id_.size());
    counts.num_edges = static_cast<int64_t>(target_.size());
    counts.num_local_edges = static_cast<int64_t>(source_.size());
    counts.lists[cache::kHostTier] = {
        num_lists_, counts.num_edges * graph_.index_bytes + num_lists_ * cache::list_head_bytes(cache::Tier::kHost)};
    counts.time = since(start_us);
    return counts;
  }

  void before_fetch(const std::function<void(base::GpuStream)>&) override {}

  void fill(std::byte* data, std::size_t bytes, int value) override { std::memset(data, value, bytes); }

  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    const int64_t start_us = base::monotonic_us();
    if (faults_.slow_fetch_us > 0) delay();
    const auto num_nodes = static_cast<int64_t>(n_id_.size());
    const auto num_local_edges = static_cast<int64_t>(source_.size());
    std::copy(n_id_.begin(), n_id_.end(), slot.n_id);
    std::copy(input_id.begin(), input_id.end(), slot.input_id);
    std::copy(source_.begin(), source_.end(), slot.edge_index);
    std::copy_n(target_.begin(), num_local_edges, slot.edge_index + num_local_edges);
    if (slot.source_node) std::copy(source_node_.begin(), source_node_.end(), slot.source_node);
    if (slot.indptr) write_indptr(slot);
    if (slot.e_id) std::copy(e_id_.begin(), e_id_.end(), slot.e_id);
    if (slot.edge_weight) write_weights(slot.edge_weight);
#pragma omp parallel for schedule(static) if (num_nodes > kFewItems)
    for (int64_t i = 0; i < num_nodes; ++i) {
      const int64_t node = n_id_[static_cast<std::size_t>(i)];
      if (slot.y && i < slot.num_labels) copy_label(node, slot.y + i * graph_.label_bytes);
      if (graph_.encoded || slot_row_bytes(graph_) == 0) continue;  // a graph without features is sampled, too
      std::memcpy(slot.x + i * graph_.row_bytes, graph_.features + node * graph_.row_bytes,
                  static_cast<std::size_t>(graph_.row_bytes));
    }
    if (graph_.encoded) graph_.encoded->fetch(n_id_, slot.x);
    const int64_t num_rows = num_nodes + static_cast<int64_t>(target_.size()) - num_local_edges;
    const int64_t bytes = graph_.encoded ? graph_.encoded->stored_bytes(n_id_) : num_rows * graph_.row_bytes;
    use_.time = since(start_us);
    use_.rows[cache::kHostTier] = {num_rows, bytes, graph_.rows_in_place ? 0 : use_.time.us()};
  }

  bool finished() override { return true; }
  FetchUse fetched() override { return use_; }

 private:
  void forget_last_batch() {
    for (std::size_t i = 0; i < n_id_.size(); ++i) {
      base::prefetch_ahead(local_id_.data(), n_id_.data(), i, n_id_.size());
      local_id_[static_cast<std::size_t>(n_id_[i])] = kUnset;
    }
    n_id_.clear();
    source_.clear();
    target_.clear();
    e_id_.clear();
    source_node_.clear();
    num_lists_ = 0;
  }

  // Gives the node the next local id unless it has one.
  int32_t reach(int64_t node) {
    int32_t& id = local_id_[static_cast<std::size_t>(node)];
    if (id == kUnset) {
      id = static_cast<int32_t>(n_id_.size());
      n_id_.push_back(node);
    }
    return id;
  }

  int64_t neighbour(int64_t position) const {
    return graph_.index_bytes == 4 ? static_cast<const int32_t*>(graph_.indices)[position]
                                   : static_cast<const int64_t*>(graph_.indices)[position];
  }

  // Appends the drawn edges of the nodes n_id_[begin, end): targets as local ids, sources (in drawn_) as global ones.
  void draw_hop(const Query& query, int hop, std::size_t begin, std::size_t end) {
    const int64_t fanout = query.fanout[static_cast<std::size_t>(hop)];
    offset_.assign(end - begin + 1, 0);
    for (std::size_t i = begin; i < end; ++i) {
      base::prefetch_ahead(graph_.indptr, n_id_.data(), i, end);
      const int64_t node = n_id_[i];
      const int64_t picks = num_picks(graph_.indptr[node + 1] - graph_.indptr[node], fanout);
      offset_[i - begin + 1] = offset_[i - begin] + picks;
      num_lists_ += picks > 0 ? 1 : 0;
    }
    drawn_.resize(static_cast<std::size_t>(offset_.back()));
    const std::size_t edges_before = target_.size();
    target_.resize(edges_before + drawn_.size());
    if (query.edge_ids) e_id_.resize(target_.size());
#pragma omp parallel for schedule(dynamic) if (end - begin > std::size_t{kFewItems})
    for (std::size_t first = begin; first < end; first += kNodesAtOnce) {
      const std::size_t last = std::min(first + kNodesAtOnce, end);
      for (std::size_t i = first; i < last; ++i) {
        base::prefetch_ahead(graph_.indptr, n_id_.data(), i, end);
        draw_of(query, hop, i, offset_[i - begin], edges_before);
      }
      look_up(static_cast<std::size_t>(offset_[first - begin]), static_cast<std::size_t>(offset_[last - begin]),
              query.edge_ids ? e_id_.data() + edges_before : nullptr);
    }
  }

  // Draws edges of node n_id_[i], from drawn_[drawn_before] on.
  void draw_of(const Query& query, int hop, std::size_t i, int64_t drawn_before, std::size_t edges_before) {
    const int64_t node = n_id_[i], row = graph_.indptr[node], degree = graph_.indptr[node + 1] - row;
    const int64_t picks = num_picks(degree, query.fanout[static_cast<std::size_t>(hop)]);
    int64_t* drawn = drawn_.data() + drawn_before;
    draw_positions(query.key, node, hop, picks, degree, drawn);
    for (int64_t j = 0; j < picks; ++j) drawn[j] += row;
    std::fill_n(target_.begin() + static_cast<std::ptrdiff_t>(edges_before) + drawn_before, picks,
                static_cast<int32_t>(i));
  }

  // Puts the sources of edges in their place in drawn_[first, last); `edges`: where the edges are to be kept, or null.
  void look_up(std::size_t first, std::size_t last, int64_t* edges) {
    const auto* indices = static_cast<const std::byte*>(graph_.indices);
    for (std::size_t i = first; i < last; ++i) {
      if (i + base::kPrefetchAhead < last) {
        __builtin_prefetch(indices + drawn_[i + base::kPrefetchAhead] * graph_.index_bytes);
      }
      if (edges) edges[i] = drawn_[i];
      drawn_[i] = neighbour(drawn_[i]);
    }
  }

  // Turns the drawn sources into local ids, in edge order.
  void relabel(std::size_t edges_before) {
    source_.resize(edges_before + drawn_.size());
    for (std::size_t edge = 0; edge < drawn_.size(); ++edge) {
      base::prefetch_ahead(local_id_.data(), drawn_.data(), edge, drawn_.size());
      source_[edges_before + edge] = reach(drawn_[edge]);
    }
  }

  void write_weights(float* to) const {
#pragma omp parallel for schedule(static) if (e_id_.size() > std::size_t{kFewItems})
    for (std::size_t edge = 0; edge < e_id_.size(); ++edge) to[edge] = graph_.edge_weights[e_id_[edge]];
  }

  // The edges stand by ascending target.
  void write_indptr(const SlotArrays& slot) const {
    std::fill(slot.indptr, slot.indptr + slot.num_targets + 1, 0);
    for (int32_t target : target_) ++slot.indptr[target + 1];
    std::partial_sum(slot.indptr, slot.indptr + slot.num_targets + 1, slot.indptr);
  }

  void copy_label(int64_t node, std::byte* to) const {
    std::memcpy(to, graph_.labels + node * graph_.label_bytes, static_cast<std::size_t>(graph_.label_bytes));
  }

  void delay() {
    std::uniform_int_distribution<int64_t> delay_us(0, faults_.slow_fetch_us);
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(delays_)));
  }

  GraphView graph_;
  Faults faults_;
  std::vector<int32_t> local_id_;     // int32 [V], kUnset outside the batch
  std::vector<int64_t> n_id_;         // int64 [num_nodes]
  std::vector<int32_t> source_;       // int32 [num_local_edges]
  std::vector<int32_t> target_;       // int32 [num_edges]
  std::vector<int64_t> e_id_;         // int64 [num_edges], where the query wants them
  std::vector<int64_t> source_node_;  // int64 [num_edges], where the query leaves the last hop global
  std::vector<int64_t> offset_;       // int64 [frontier + 1], first edge of each frontier node
  std::vector<int64_t> drawn_;        // int64 [edges of the hop], positions, then global ids
  int64_t num_lists_ = 0;             // of the batch, that neighbours were drawn from
  FetchUse use_;
  std::mt19937_64 delays_{std::random_device{}()};
};

}  // namespace

std::unique_ptr<Backend> make_host_backend(const GraphView& graph, const Faults& faults) {
  if (graph.num_nodes > INT32_MAX) {
    throw base::Error(
        {"data set", "at most 2147483647 nodes", std::to_string(graph.num_nodes), "batch-local ids are int32"});
  }
  return std::make_unique<HostBackend>(graph, faults);
}

}  // namespace cohort::sampler
