#include "sampler/pipeline.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/process.h"
#include "base/profiler_range.h"
#include "sampler/draw.h"

namespace cohort::sampler {
namespace {

using channel::Stage;
using namespace std::chrono_literals;

int64_t num_targets(const channel::Batch& batch) { return batch.num_nodes - batch.nodes_per_hop[batch.num_hops]; }

SlotArrays arrays_of(std::byte* data, const channel::Batch& batch, const channel::TypedBatch* typed,
                     const GraphView& graph) {
  const auto ids = [data](uint64_t offset) { return reinterpret_cast<int64_t*>(data + offset); };
  std::vector<std::byte*> tables, edge_attr;
  for (std::size_t type = 0; typed && type < graph.types.size(); ++type) tables.push_back(data + typed->x_offset[type]);
  for (std::size_t relation = 0; graph.has_edge_rows() && relation < graph.relations.size(); ++relation) {
    edge_attr.push_back(data + (typed ? typed->edge_attr_offset[relation] : batch.edge_attr_offset));
  }
  const int64_t of_all_types = batch.labels_of_seeds ? batch.num_seeds : batch.num_nodes;
  return {.n_id = ids(batch.n_id_offset),
          .y = data + batch.y_offset,
          .edge_index = ids(batch.edge_index_offset),
          .input_id = ids(batch.input_id_offset),
          .x = data + batch.x_offset,
          .indptr = ids(batch.indptr_offset),
          .num_targets = num_targets(batch),
          .e_id = batch.e_id_offset == 0 ? nullptr : ids(batch.e_id_offset),
          .edge_weight =
              batch.edge_weight_offset == 0 ? nullptr : reinterpret_cast<float*>(data + batch.edge_weight_offset),
          .num_labels = typed ? typed->num_labels : of_all_types,
          .source_node = batch.last_hop_global ? ids(batch.source_node_offset) : nullptr,
          .tree = batch.disjoint ? ids(batch.tree_offset) : nullptr,
          .tables = std::move(tables),
          .edge_attr = std::move(edge_attr),
          .place = ids(batch.place_offset)};
}

// Null: the graph has one type.
std::unique_ptr<channel::TypedBatch> describe_types(const GraphView& graph, const channel::Request& request,
                                                    const BatchSizes& counts) {
  if (!graph.is_typed) return nullptr;
  auto typed = std::make_unique<channel::TypedBatch>();
  for (std::size_t type = 0; type < counts.nodes_of_type.size(); ++type) {
    std::ranges::copy(counts.nodes_of_type[type], typed->nodes_per_hop[type]);
  }
  for (std::size_t relation = 0; relation < counts.edges_of_relation.size(); ++relation) {
    std::ranges::copy(counts.edges_of_relation[relation], typed->edges_per_hop[relation]);
  }
  if (counts.nodes_of_type.empty()) return typed;  // a batch without seeds
  const std::vector<int64_t>& labelled = counts.nodes_of_type[static_cast<std::size_t>(graph.label_type)];
  const bool of_seeds = request.labels_of_seeds != 0;
  typed->num_labels = of_seeds ? labelled[0] : std::accumulate(labelled.begin(), labelled.end(), int64_t{0});
  return typed;
}

// Length of indptr.
int64_t num_offsets(const GraphView& graph, const channel::Batch& batch, const BatchSizes& counts) {
  if (!graph.is_typed) return num_targets(batch) + 1;
  int64_t count = 0;
  for (const Relation& relation : graph.relations) {
    const std::vector<int64_t>& nodes = counts.nodes_of_type[static_cast<std::size_t>(relation.target_type)];
    count += std::accumulate(nodes.begin(), nodes.end() - 1, int64_t{1});
  }
  return count;
}

int64_t nodes_of_type(const BatchSizes& counts, std::size_t type) {
  if (counts.nodes_of_type.empty()) return counts.num_nodes;  // of a graph of one type
  const std::vector<int64_t>& nodes = counts.nodes_of_type[type];
  return std::accumulate(nodes.begin(), nodes.end(), int64_t{0});
}

// Of the rows of each type in a slot.
std::vector<int64_t> table_bytes(const GraphView& graph, const BatchSizes& counts) {
  std::vector<int64_t> bytes;
  for (std::size_t type = 0; type < graph.types.size(); ++type) {
    const bool has_rows = graph.rows_in == channel::RowsIn::kSlots;
    bytes.push_back(has_rows ? graph.types[type].rows.row_bytes * nodes_of_type(counts, type) : 0);
  }
  return bytes;
}

// Of the rows of the edges of each relation.
std::vector<int64_t> edge_table_bytes(const GraphView& graph, const BatchSizes& counts) {
  std::vector<int64_t> bytes;
  for (std::size_t relation = 0; graph.has_edge_rows() && relation < graph.relations.size(); ++relation) {
    const std::vector<int64_t>& edges = counts.edges_of_relation[relation];
    bytes.push_back(graph.relations[relation].edge_rows.row_bytes *
                    std::accumulate(edges.begin(), edges.end(), int64_t{0}));
  }
  return bytes;
}

channel::Batch describe(const channel::Request& request, const Schedule& schedule, uint64_t step,
                        const BatchSizes& counts, bool last_hop_global) {
  channel::Batch batch{};
  batch.pass = request.pass;
  batch.step = step;
  batch.num_steps = schedule.num_steps();
  batch.num_nodes = counts.num_nodes;
  batch.num_edges = counts.num_edges;
  batch.num_seeds = counts.nodes_per_hop[0];
  batch.num_hops = request.num_hops;
  batch.labels_of_seeds = request.labels_of_seeds;
  batch.last_hop_global = last_hop_global ? 1 : 0;
  batch.disjoint = is_disjoint(request) ? 1 : 0;
  std::copy(counts.nodes_per_hop.begin(), counts.nodes_per_hop.end(), batch.nodes_per_hop);
  std::copy(counts.edges_per_hop.begin(), counts.edges_per_hop.end(), batch.edges_per_hop);
  return batch;
}

void report(const BatchSizes& sampled, const FetchUse& fetched, channel::Batch& batch) {
  batch.sample = sampled.time;
  batch.fetch = fetched.time;
  batch.row_tiers = fetched.rows;
  batch.edge_rows = fetched.edge_rows;
  batch.list_tiers = sampled.lists;
}

}  // namespace

// A pass that is being served.
struct Pipeline::Pass {
  const channel::Request& request;
  Schedule schedule;
  PairsOfPass pairs;
  std::future<BatchSizes> ahead;  // the next batch, where it is being sampled already: from the above, so it ends first

  bool of_pairs() const { return schedule.set().are_pairs; }
};

void Pipeline::serve() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; else a sleep of 20 us takes 70
  while (const auto request = publisher_.next_request()) {
    const auto is_wanted = [&] { return !publisher_.given_up(request->pass); };
    if (const SeedSet* set = seed_sets_.of(*request, is_wanted)) serve_pass(*request, *set);
  }
}

void Pipeline::serve_pass(const channel::Request& request, const SeedSet& set) {
  base::require(request.num_hops >= 1 && request.num_hops <= channel::kMaxHops, "1 to kMaxHops hops");
  const uint64_t stride = request.step_stride;
  base::require(stride >= 1, "a stride of at least 1");
  backend_.use_sms(request.sampler_sms);
  demand_offered(set, request);
  Pass pass{request, Schedule(set, request.batch_size, orders_.of(set, request)), {pairs_, request, options_.seed}, {}};
  const uint64_t num_steps = pass.schedule.num_steps(), end = (num_steps + stride - 1) / stride * stride;
  for (uint64_t step = request.first_step; step < end; step += stride) {
    const std::optional<int> slot = acquire(request.pass);
    if (!slot) break;
    if (!pass.schedule.positions(step).empty()) {
      start_batch(*slot, pass, step);
    } else {
      publish_all();
      publish_empty(*slot, request, pass.schedule, step);
    }
  }
  publish_all();
}

std::optional<int> Pipeline::acquire(uint64_t pass) {
  std::optional<int> slot;
  publish_until([&] { return (slot = publisher_.try_acquire(pass)).has_value(); });
  return slot || is_over_ ? slot : publisher_.acquire(pass);
}

void Pipeline::demand_offered(const SeedSet& set, const channel::Request& request) const {
  const auto refuse = [](const char* expected, const char* found) {
    throw base::Error({"seeds", expected, found, ""});
  };
  if (request.plane_a != 0 && graph_.rows_in == channel::RowsIn::kTable) {
    refuse("exact rows, where rows are in a table", "plane A of rows");
  }
  if (set.times.empty()) return;
  if (!is_disjoint(request)) refuse("disjoint batches, for seeds with times", "shared nodes");
  if (!graph_.has_edge_times()) refuse("no times, for edges without times", "times");
}

Query Pipeline::query(Pass& pass, uint64_t step) {
  const base::PhiloxKey key = batch_key(options_.seed, pass.request.epoch, step);
  const PairSeeds* pairs = pass.of_pairs() ? &pass.pairs.make(pass.schedule, step) : nullptr;
  return {.seeds = pairs ? pairs->seeds() : pass.schedule.seeds(step),
          .fanout = fanout_of(pass.request),
          .key = key,
          .edge_ids = remembers_edges(),
          .last_hop_global = leaves_last_hop_global(pass.request),
          .exclusions = pairs ? pairs->exclusions() : std::span<const Exclusions>(),
          .trees = {.disjoint = is_disjoint(pass.request),
                    .times = pairs ? pairs->times() : pass.schedule.times(step),
                    .latest = pass.request.sharing == channel::Sharing::kDisjointLatest},
          .replace = pass.request.replace != 0};
}

std::span<const int32_t> Pipeline::fanout_of(const channel::Request& request) const {
  return std::span(request.fanout).first(graph_.relations.size() * static_cast<std::size_t>(request.num_hops));
}

bool Pipeline::remembers_edges() const {
  return options_.edge_ids || graph_.has_edge_weights() || graph_.has_edge_rows();
}

bool Pipeline::leaves_last_hop_global(const channel::Request& request) const {
  return request.last_hop_global != 0 && graph_.rows_in == channel::RowsIn::kTable && !remembers_edges() &&
         !is_disjoint(request);
}

BatchSizes Pipeline::sample(const Query& query, uint64_t step) {
  const base::ProfilerRange range("sample", step);
  return backend_.sample(query);
}

void Pipeline::sample_ahead(Pass& pass, uint64_t step) {
  if (backend_.most_fetches() == 1 || pass.schedule.positions(step).empty()) return;
  pass.ahead = std::async(std::launch::async, [this, &pass, step] {
    backend_.enter_thread();
    return sample(query(pass, step), step);
  });
}

// The link has no pause between two batches: the next is looked up, and waits on the GPU, while the last comes.
void Pipeline::start_batch(int slot, Pass& pass, uint64_t step) {
  const channel::Request& request = pass.request;
  const uint64_t number = publisher_.next_sequence() + writing_.size();
  publisher_.set_stage(Stage::kSampling, number);
  if (pass.ahead.valid()) publish_until([&] { return pass.ahead.wait_for(0s) == std::future_status::ready; });
  BatchSizes counts = pass.ahead.valid() ? pass.ahead.get() : sample(query(pass, step), step);

  publisher_.set_stage(Stage::kFetching, number);
  channel::Batch batch = describe(request, pass.schedule, step, counts, leaves_last_hop_global(request));
  if (pass.of_pairs()) {
    batch.num_pairs = std::ssize(pass.schedule.positions(step));
    batch.num_endpoints = std::ssize(pass.pairs.now().input_id()) - batch.num_pairs;
  }
  base::require(num_local_edges(batch) == counts.num_local_edges, "as many local edges as the backend has");
  channel::BatchShape shape = shape_of(request);
  shape.num_nodes = counts.num_nodes;
  shape.num_edges = counts.num_edges;
  shape.num_seeds = batch.num_seeds;
  shape.num_pairs = batch.num_pairs;
  shape.num_endpoints = batch.num_endpoints;
  shape.num_offsets = num_offsets(graph_, batch, counts);
  shape.num_local_edges = counts.num_local_edges;
  std::unique_ptr<channel::TypedBatch> typed = describe_types(graph_, request, counts);
  std::size_t bytes = lay_out(shape, batch);
  if (typed) bytes = lay_out_tables(table_bytes(graph_, counts), edge_table_bytes(graph_, counts), bytes, *typed);
  publish_until([&] { return writing_.size() < backend_.most_fetches(); });
  if (is_over_) return;
  const bool has_pools = graph_.rows_in == channel::RowsIn::kPool, plane_a = request.plane_a != 0;
  if (std::exchange(plane_a_, plane_a) != plane_a) ++kind_;
  Pooled pooled{number, pooled_rows(counts), kind_};
  if (has_pools) make_room_in_pools(slot, pooled);
  if (is_over_) return;
  std::byte* data = publisher_.memory(slot, bytes, slot_bytes_to_ask(request, pass.of_pairs(), bytes));
  backend_.before_fetch([&](base::GpuStream stream) { publisher_.wait_drained(slot, stream); });
  if (options_.poison_slots) backend_.fill(data, bytes, 0xFF);
  Writing& writing = writing_.emplace_back();
  writing.range.emplace("fetch", step);
  writing.slot = slot;
  writing.batch = batch;
  writing.typed = std::move(typed);
  writing.counts = std::move(counts);
  SlotArrays arrays = arrays_of(data, batch, writing.typed.get(), graph_);
  arrays.number = number;
  arrays.oldest_in_use = pooled_.empty() ? number : pooled_.front().number;
  arrays.poison = options_.poison_slots;
  arrays.plane_a = plane_a;
  if (has_pools) pooled_.push_back(std::move(pooled));
  backend_.fetch(arrays, pass.of_pairs() ? pass.pairs.now().input_id() : pass.schedule.positions(step));
  sample_ahead(pass, step + request.step_stride);
}

std::vector<int64_t> Pipeline::pooled_rows(const BatchSizes& counts) const {
  std::vector<int64_t> rows;
  for (std::size_t type = 0; type < graph_.types.size(); ++type) {
    const NodeRange& nodes = graph_.types[type];  // each is there once, though trees may have it several times
    rows.push_back(nodes.rows.row_bytes > 0 ? std::min(nodes_of_type(counts, type), nodes.count) : 0);
  }
  return rows;
}

void Pipeline::grow_pools(const Pooled& batch, double most_bytes) {
  const auto bytes = [](const NodeRange& nodes, int64_t rows) {
    return static_cast<double>(nodes.rows.row_bytes * rows);
  };
  const double batches = most_bytes / std::transform_reduce(graph_.types.begin(), graph_.types.end(),
                                                            batch.rows.begin(), 1.0, std::plus<>(), bytes);
  for (std::size_t type = 0; type < graph_.types.size(); ++type) {
    const auto sizes =
        channel::pool_sizes(options_.num_slots, batch.rows[type], graph_.types[type].count, options_.reuse, batches);
    if (sizes.needed <= backend_.pool_rows(type)) continue;
    if (publish_all(); is_over_) return;
    const base::SharedGpuBytes* piece = backend_.grow_pool(type, sizes.needed, sizes.preferred);
    if (piece) publisher_.share_rows(type, *piece);
  }
}

void Pipeline::make_room_in_pools(int slot, const Pooled& batch) {
  constexpr int64_t kHeldUs = 2'000'000;
  grow_pools(batch, backend_.most_pool_bytes());
  if (is_over_) return;
  const auto fits = [&](std::size_t type) {
    // Where there is room for all rows, each has a place, unless rows of another kind are in use.
    const auto is_same = [&](const Pooled& other) { return other.kind == batch.kind; };
    const bool finds_all = options_.reuse && std::ranges::all_of(pooled_, is_same);
    int64_t rows = batch.rows[type];
    for (const Pooled& other : pooled_) rows += other.rows[type];
    return rows <= backend_.pool_rows(type) || (finds_all && backend_.pool_rows(type) >= graph_.types[type].count);
  };
  const auto all_fit = [&] {
    const uint64_t oldest = publisher_.oldest_in_use(slot);
    while (!pooled_.empty() && pooled_.front().number < oldest) pooled_.pop_front();
    bool all = true;
    for (std::size_t type = 0; type < graph_.types.size(); ++type) all = all && fits(type);
    return all;
  };
  int64_t grow_at_us = base::monotonic_us() + kHeldUs;
  while (!all_fit()) {
    publisher_.set_stage(Stage::kWaitSlot, publisher_.next_sequence());
    publish_all();
    if ((is_over_ = is_over_ || publisher_.is_over())) return;
    if (publisher_.any_ready()) grow_at_us = base::monotonic_us() + kHeldUs;
    if (base::monotonic_us() > grow_at_us) grow_pools(batch, std::numeric_limits<double>::infinity());
    std::this_thread::sleep_for(20us);
  }
}

void Pipeline::publish_until(const std::function<bool()>& enough) {
  constexpr int64_t kLookUs = 500'000;
  int64_t next_look_us = base::monotonic_us() + kLookUs;
  while (true) {
    while (!writing_.empty() && backend_.finished()) publish_oldest();
    if (writing_.empty() || enough()) return;
    std::this_thread::sleep_for(20us);
    if (base::monotonic_us() < next_look_us) continue;
    if ((is_over_ = publisher_.is_over())) return writing_.clear();
    next_look_us += kLookUs;
  }
}

void Pipeline::publish_oldest() {
  Writing& written = writing_.front();
  report(written.counts, backend_.fetched(), written.batch);
  publisher_.publish(written.slot, written.batch, written.typed.get());
  writing_.pop_front();
}

void Pipeline::publish_empty(int slot, const channel::Request& request, const Schedule& schedule, uint64_t step) {
  BatchSizes none;
  none.nodes_per_hop.assign(static_cast<std::size_t>(request.num_hops) + 1, 0);
  none.edges_per_hop.assign(static_cast<std::size_t>(request.num_hops), 0);
  publisher_.memory(slot, 1, slot_bytes_to_ask(request, schedule.set().are_pairs, 1));
  backend_.before_fetch([&](base::GpuStream stream) { publisher_.wait_drained(slot, stream); });
  const channel::Batch batch = describe(request, schedule, step, none, leaves_last_hop_global(request));
  publisher_.publish(slot, batch, describe_types(graph_, request, {}).get());
}

channel::BatchShape Pipeline::shape_of(const channel::Request& request) const {
  return {.row_bytes = slot_row_bytes(graph_),
          .label_bytes = graph_.label_bytes,
          .edge_row_bytes = graph_.is_typed ? 0 : graph_.relations[0].edge_rows.row_bytes,
          .with_e_id = options_.edge_ids || graph_.has_edge_rows(),
          .with_edge_weight = graph_.has_edge_weights(),
          .labels_of_seeds = request.labels_of_seeds != 0,
          .last_hop_global = leaves_last_hop_global(request),
          .with_place = graph_.rows_in == channel::RowsIn::kPool,
          .disjoint = is_disjoint(request)};
}

std::size_t Pipeline::slot_bytes_to_ask(const channel::Request& request, bool of_pairs,
                                        std::size_t needed_bytes) const {
  if (graph_.is_typed) return needed_bytes + needed_bytes / 4;  // as for slots whose worst case is too large
  channel::BatchShape shape = shape_of(request);
  if (of_pairs) shape.num_pairs = request.batch_size;
  if (of_pairs) shape.num_endpoints = most_endpoints(request);
  const int64_t most_seeds = of_pairs ? most_seeds_of_pairs(request) : request.batch_size;
  return std::max(needed_bytes,
                  channel::slot_bytes(shape, most_seeds, fanout_of(request), graph_.num_nodes, needed_bytes));
}

}  // namespace cohort::sampler
