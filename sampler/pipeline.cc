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

SlotArrays arrays_of(std::byte* data, const channel::Batch& batch, const GraphView& graph) {
  const auto ids = [data](uint64_t offset) { return reinterpret_cast<int64_t*>(data + offset); };
  std::vector<std::byte*> x, edge_attr;
  for (std::size_t type = 0; graph.rows_in == channel::RowsIn::kSlots && type < graph.types.size(); ++type) {
    x.push_back(data + batch.nodes[type].x_offset);
  }
  for (std::size_t relation = 0; graph.has_edge_rows() && relation < graph.relations.size(); ++relation) {
    edge_attr.push_back(data + batch.edges[relation].edge_attr_offset);
  }
  return {.n_id = ids(batch.n_id_offset),
          .y = data + batch.y_offset,
          .edge_index = ids(batch.edge_index_offset),
          .input_id = ids(batch.input_id_offset),
          .x = std::move(x),
          .indptr = ids(batch.indptr_offset),
          .e_id = batch.e_id_offset == 0 ? nullptr : ids(batch.e_id_offset),
          .edge_weight =
              batch.edge_weight_offset == 0 ? nullptr : reinterpret_cast<float*>(data + batch.edge_weight_offset),
          .num_labels = batch.num_labels,
          .source_node = batch.last_hop_global ? ids(batch.source_node_offset) : nullptr,
          .tree = batch.disjoint ? ids(batch.tree_offset) : nullptr,
          .edge_attr = std::move(edge_attr),
          .row_index = ids(batch.row_index_offset)};
}

// All but what is known once it is written.
channel::Batch describe(const channel::Request& request, const Schedule& schedule, uint64_t step,
                        const GraphView& graph, const BatchSizes& counts, bool last_hop_global) {
  channel::Batch batch{};
  batch.pass = request.pass;
  batch.step = step;
  batch.num_steps = schedule.num_steps();
  batch.num_nodes = counts.num_nodes;
  batch.num_edges = counts.num_edges;
  batch.num_local_edges = counts.num_local_edges;
  batch.num_hops = request.num_hops;
  batch.last_hop_global = last_hop_global ? 1 : 0;
  batch.disjoint = request.disjoint ? 1 : 0;
  for (std::size_t type = 0; type < counts.nodes_of_type.size(); ++type) {
    std::ranges::copy(counts.nodes_of_type[type], batch.nodes[type].per_hop);
    batch.num_seeds += batch.nodes[type].per_hop[0];
  }
  for (std::size_t relation = 0; relation < counts.edges_of_relation.size(); ++relation) {
    std::ranges::copy(counts.edges_of_relation[relation], batch.edges[relation].per_hop);
  }
  const auto labelled = static_cast<std::size_t>(graph.label_type);
  batch.num_labels = request.labels_of_seeds ? batch.nodes[labelled].per_hop[0] : nodes_of(batch, labelled);
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
  std::size_t most_slot_bytes;
  std::future<BatchSizes> ahead;  // the next batch, where it is being sampled already: from the above, so it ends first

  bool of_pairs() const { return schedule.set().are_pairs; }
};

void Pipeline::serve() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; else a sleep of 20 us takes 70
  while (const auto request = publisher_.next_request()) {
    const auto is_wanted = [&] { return !publisher_.given_up(request->pass); };
    if (!seed_sets_.has(request->seed_set)) publish_all();
    if (const SeedSet* set = seed_sets_.of(*request, is_wanted)) serve_pass(*request, *set);
  }
  publish_all();
}

void Pipeline::serve_pass(const channel::Request& request, const SeedSet& set) {
  base::require(request.num_hops >= 1 && request.num_hops <= channel::kMaxHops, "1 to kMaxHops hops");
  const uint64_t stride = request.step_stride;
  base::require(stride >= 1, "a stride of at least 1");
  if (std::exchange(sampler_sms_, request.sampler_sms) != request.sampler_sms) publish_all();
  backend_.use_sms(request.sampler_sms);
  demand_offered(set, request);
  Pass pass{request,
            Schedule(set, request.batch_size, orders_.of(set, request)),
            {pairs_, request, options_.seed},
            channel::most_slot_bytes(contents_, bounds_of(request, set.are_pairs)),
            {}};
  const uint64_t num_steps = pass.schedule.num_steps(), end = (num_steps + stride - 1) / stride * stride;
  if (!writing_.empty() && request.first_step < end) sample_ahead(pass, request.first_step);
  for (uint64_t step = request.first_step; step < end; step += stride) {
    const std::optional<int> slot = acquire(request.pass);
    if (!slot) break;
    if (!pass.schedule.positions(step).empty()) {
      start_batch(*slot, pass, step);
    } else {
      publish_all();
      publish_empty(*slot, pass, step);
    }
  }
  publish_until([&] { return publisher_.has_request(); });  // whose first batch is sampled while the last ones come
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
  if (request.plane_a && graph_.rows_in == channel::RowsIn::kTable) {
    refuse("exact rows, where rows are in a table", "plane A of rows");
  }
  if (set.times.empty()) return;
  if (!request.disjoint) refuse("disjoint batches, for seeds with times", "shared nodes");
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
          .spec = {.draw = pass.request.draw,
                   .numbers = node_numbers(options_.seed, pass.request.epoch, step, options_.dependency(),
                                           options_.layer_dependency, options_.importance_sampling),
                   .disjoint = pass.request.disjoint,
                   .times = pairs ? pairs->times() : pass.schedule.times(step),
                   .windows = windows_of(pass.request),
                   .exclusions = pairs ? pairs->exclusions() : std::span<const Exclusions>()}};
}

std::span<const int32_t> Pipeline::fanout_of(const channel::Request& request) const {
  return std::span(request.fanout).first(graph_.relations.size() * static_cast<std::size_t>(request.num_hops));
}

bool Pipeline::remembers_edges() const {
  return options_.edge_ids || graph_.has_edge_weights() || graph_.has_edge_rows();
}

bool Pipeline::leaves_last_hop_global(const channel::Request& request) const {
  return request.last_hop_global && graph_.rows_in == channel::RowsIn::kTable && !remembers_edges() &&
         !request.disjoint;
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
  channel::Batch batch = describe(request, pass.schedule, step, graph_, counts, leaves_last_hop_global(request));
  if (pass.of_pairs()) {
    batch.num_pairs = std::ssize(pass.schedule.positions(step));
    batch.num_endpoints = std::ssize(pass.pairs.now().input_id()) - batch.num_pairs;
  }
  const std::size_t bytes = lay_out(contents_, batch);
  publish_until([&] { return writing_.size() < backend_.most_fetches(); });
  if (is_over_) return;
  const bool has_pools = graph_.rows_in == channel::RowsIn::kPool, plane_a = request.plane_a;
  if (std::exchange(plane_a_, plane_a) != plane_a) ++kind_;
  Pooled pooled{number, pooled_rows(batch), kind_};
  if (has_pools) make_room_in_pools(slot, pooled);
  if (is_over_) return;
  std::byte* data = publisher_.memory(slot, bytes, channel::slot_bytes(pass.most_slot_bytes, bytes));
  backend_.before_fetch([&](base::GpuStream stream) { publisher_.wait_drained(slot, stream); });
  if (options_.poison_slots) backend_.fill(data, bytes, 0xFF);
  Writing& writing = writing_.emplace_back();
  writing.range.emplace("fetch", step);
  writing.slot = slot;
  writing.batch = batch;
  writing.counts = std::move(counts);
  SlotArrays arrays = arrays_of(data, batch, graph_);
  arrays.number = number;
  arrays.oldest_in_use = pooled_.empty() ? number : pooled_.front().number;
  arrays.poison = options_.poison_slots;
  arrays.plane_a = plane_a;
  if (has_pools) pooled_.push_back(std::move(pooled));
  backend_.fetch(arrays, pass.of_pairs() ? pass.pairs.now().input_id() : pass.schedule.positions(step));
  sample_ahead(pass, step + request.step_stride);
}

std::vector<int64_t> Pipeline::pooled_rows(const channel::Batch& batch) const {
  std::vector<int64_t> rows;
  for (std::size_t type = 0; type < graph_.types.size(); ++type) {
    const NodeRange& nodes = graph_.types[type];  // each is there once, though trees may have it several times
    rows.push_back(nodes.rows.row_bytes > 0 ? std::min(nodes_of(batch, type), nodes.count) : 0);
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
    // Where there is room for all rows, each stays, unless rows of another kind are in use.
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
  publisher_.publish(written.slot, written.batch);
  writing_.pop_front();
}

void Pipeline::publish_empty(int slot, const Pass& pass, uint64_t step) {
  const channel::Request& request = pass.request;
  publisher_.memory(slot, 1, channel::slot_bytes(pass.most_slot_bytes, 1));
  backend_.before_fetch([&](base::GpuStream stream) { publisher_.wait_drained(slot, stream); });
  publisher_.publish(slot, describe(request, pass.schedule, step, graph_, {}, leaves_last_hop_global(request)));
}

std::span<const int64_t> Pipeline::windows_of(const channel::Request& request) const {
  return std::span(request.time_window).first(request.has_windows ? graph_.relations.size() : 0);
}

channel::BatchBounds Pipeline::bounds_of(const channel::Request& request, bool of_pairs) const {
  static constexpr int32_t kAny[] = {-1};  // importance sampling draws more than the fanout
  return {.num_nodes = graph_.num_nodes,
          .fanout = options_.importance_sampling ? std::span(kAny) : fanout_of(request),
          .num_seeds = of_pairs ? most_seeds_of_pairs(request) : request.batch_size,
          .num_pairs = of_pairs ? request.batch_size : 0,
          .num_endpoints = of_pairs ? most_endpoints(request) : 0,
          .labels_of_seeds = request.labels_of_seeds,
          .last_hop_global = leaves_last_hop_global(request),
          .disjoint = request.disjoint};
}

}  // namespace cohort::sampler
