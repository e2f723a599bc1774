// From requests to published batches.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/profiler_range.h"
#include "channel/publisher.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/pairs.h"
#include "sampler/schedule.h"

namespace cohort::sampler {

class Pipeline {
 public:
  Pipeline(const Options& options, const GraphView& graph, Backend& backend, channel::Publisher& publisher)
      : options_(options),
        graph_(graph),
        backend_(backend),
        publisher_(publisher),
        contents_(slot_contents(graph, options.edge_ids)),
        seed_sets_(publisher.folder(), graph.num_nodes, options.communities(graph.num_nodes)),
        orders_(options.seed, options.seed_mix),
        pairs_(PairsOfPass::buffers_of(graph)) {}

  // Serves requests until the run is stopped. Throws PeerLost when the trainer has died.
  void serve();

 private:
  struct Pass;
  // A batch whose rows must stay in pools while it is in use.
  struct Pooled {
    uint64_t number;
    std::vector<int64_t> rows;  // [num_types], at most, of each type with features
    uint64_t kind;              // how often rows have changed between exact ones and plane A before
  };
  // A batch that the backend writes into its slot.
  struct Writing {
    int slot = 0;
    channel::Batch batch;
    BatchSizes counts;
    std::optional<base::ProfilerRange> range;
  };
  void serve_pass(const channel::Request& request, const SeedSet& set);
  std::optional<int> acquire(uint64_t pass);
  void start_batch(int slot, Pass& pass, uint64_t step);
  void demand_offered(const SeedSet& set, const channel::Request& request) const;
  Query query(Pass& pass, uint64_t step);
  BatchSizes sample(const Query& query, uint64_t step);
  void sample_ahead(Pass& pass, uint64_t step);
  void publish_empty(int slot, const Pass& pass, uint64_t step);
  bool remembers_edges() const;
  // Whether batches of such a pass have no ids for what only the last hop reaches.
  bool leaves_last_hop_global(const channel::Request& request) const;
  std::span<const int32_t> fanout_of(const channel::Request& request) const;
  std::span<const int64_t> windows_of(const channel::Request& request) const;
  // Of the batch's nodes of each type, how many rows the pools get at most.
  std::vector<int64_t> pooled_rows(const channel::Batch& batch) const;
  // Grows pools that have less room than they should, beside the rows of batches like this one; all together may take
  // `most_bytes`.
  void grow_pools(const Pooled& batch, double most_bytes);
  // Makes room in the pools for a batch, which is written into `slot`; waits until batches that are in use leave
  // enough. Where the trainer holds batches and none is ready for it, pools get room for those of all slots in the end.
  void make_room_in_pools(int slot, const Pooled& batch);
  channel::BatchBounds bounds_of(const channel::Request& request, bool of_pairs) const;
  // Publishes what is written, until `enough` says so or nothing is being written any more, or wanted.
  void publish_until(const std::function<bool()>& enough);
  void publish_all() {
    publish_until([] { return false; });
  }
  void publish_oldest();

  const Options& options_;
  const GraphView& graph_;
  Backend& backend_;
  channel::Publisher& publisher_;
  channel::SlotContents contents_;
  SeedSets seed_sets_;
  EpochOrders orders_;
  PairsOfPass::Buffers pairs_;   // of the batch that is sampled and of the next two, where seeds are pairs
  std::deque<Writing> writing_;  // the oldest first
  std::deque<Pooled> pooled_;    // that may be in use, the oldest first
  uint64_t kind_ = 0;            // of the last of them
  bool plane_a_ = false;         // whether its rows are plane A alone
  int sampler_sms_ = -1;         // of the pass before
  bool is_over_ = false;         // nobody wants what was being written
};

}  // namespace cohort::sampler
