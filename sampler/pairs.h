// Batches of pairs of nodes, for link prediction: the seeds are the endpoints of pairs.
//
// Negative number n of a batch has the source and the target Philox(batch key, n, stream, attempt) (draw_endpoint in
// draw.h). One that is an edge of the graph is drawn again, with the next attempt, at most `redraws` times; the last
// attempt stays as it is.
//
// In disjoint batches every endpoint of every pair is the root of a tree, also where a node is the end of several, with
// the time of its pair; negative number n has that of pair n modulo the pairs, a triplet's that of its source's pair.
// They have no edges that are not to be drawn.
//
// Else every endpoint is a seed, and only hop 0 draws neighbours of seeds. So a batch has none of the edges that are
// not to be drawn when hop 0 passes over their positions.
//
// The pairs belong to one relation: their sources are of its source type, their targets of its target type, and so are
// those of negatives. Reverse edges are those of the relation's reverse, if it has one.
#pragma once

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "channel/layout.h"
#include "sampler/backend.h"
#include "sampler/schedule.h"

namespace cohort::sampler {

// That are drawn for so many pairs.
int64_t num_negatives(const channel::Request& request, int64_t num_pairs);
// The most endpoints of the pairs of a batch.
int64_t most_endpoints(const channel::Request& request);

// Makes the seeds of one batch after the other. What it shows is valid until the next make().
class PairSeeds {
 public:
  // The graph's arrays are kept by reference.
  explicit PairSeeds(const GraphView& graph)
      : types_(types_of(graph)),
        relations_(relations_of(graph)),
        lists_ascend_(std::make_shared<std::vector<std::optional<bool>>>(relations_.size())) {}

  // Of the pairs of `set` at these positions. `key`: of the batch.
  void make(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
            base::PhiloxKey key);

  // int64 [num_seeds]: the different endpoints, in the order of their first occurrence in input_id(); disjoint: all.
  std::span<const int64_t> seeds() const { return seeds_; }
  // int64 [positions + endpoints]: the positions, then the batch-local ids, within their type, of all sources, then of
  // all targets, negatives last. Triplets have no sources of negatives.
  std::span<const int64_t> input_id() const { return input_id_; }
  // What is not drawn in hop 0, as Query has it.
  std::span<const Exclusions> exclusions() const { return exclusions_; }
  // int64 [num_seeds], of disjoint batches of pairs that have times.
  std::span<const int64_t> times() const { return times_; }

 private:
  // Of one relation, what Exclusions shows.
  struct Excluded {
    std::vector<int64_t> starts, positions;
  };
  // Of nodes and their numbers, of which none is taken out: places of a table are tried one after the other.
  class Numbers {
   public:
    // Forgets all; room for so many nodes.
    void clear(std::size_t count);
    // The node's number, and whether it is `number` because it had none.
    std::pair<int64_t, bool> add(int64_t node, int64_t number);

   private:
    struct Entry {
      int64_t node, number;
    };
    std::vector<Entry> table_;
    int shift_ = 0;  // of a hash: its upper bits are a place
  };
  const NodeRange& type(int number) const { return types_[static_cast<std::size_t>(number)]; }
  void draw_negatives(const channel::Request& request, base::PhiloxKey key);
  void number_endpoints();
  void add_endpoint(int64_t node, int64_t first);
  void find_times(const SeedSet& set, std::span<const int64_t> positions, bool triplets);
  void exclude(channel::Exclude which, std::size_t num_pairs);
  // edges_ from the lists of the relation, whose target type has the seeds `targets`.
  void exclude_edges(int relation, std::span<const int64_t> targets, Excluded& excluded);
  // Appends the positions of `source` in the relation's list of `target`, ascending.
  void find(int relation, int64_t source, int64_t target, std::vector<int64_t>& positions);
  bool is_edge(int64_t source, int64_t target);
  bool lists_ascend(int relation);

  std::vector<NodeRange> types_;
  std::vector<Relation> relations_;
  // [num_relations], all lists of it; known once somebody has asked, also to copies of this.
  std::shared_ptr<std::vector<std::optional<bool>>> lists_ascend_;
  int relation_ = 0;                        // of the pairs
  std::vector<int64_t> sources_, targets_;  // of the pairs, then of negatives
  std::vector<int64_t> seeds_, input_id_, times_;
  int64_t first_target_ = 0;  // of seeds_ that is of the target type
  Numbers local_id_;
  std::vector<std::pair<int64_t, int64_t>> edges_;  // not to be drawn: batch-local target, source
  Excluded forward_, backward_;                     // of the relation, and of its reverse where that is another
  std::vector<Exclusions> exclusions_;
  std::vector<int64_t> found_, lists_;  // lists_: the nodes whose lists have edges_
};

// The seeds of a pass's batches of pairs, one batch after the other. Those of the next batch are made meanwhile, on a
// thread of its own: that takes longer than a GPU needs to sample.
class PairsOfPass {
 public:
  using Buffers = std::array<PairSeeds, 2>;

  // `seed`: of the run. All are kept by reference.
  PairsOfPass(Buffers& buffers, const channel::Request& request, uint64_t seed)
      : buffers_(buffers), request_(request), seed_(seed) {}

  // Those of batch `step` of the schedule, which is kept by reference; valid until the next are asked for.
  const PairSeeds& make(const Schedule& schedule, uint64_t step);
  // The last.
  const PairSeeds& now() const { return *now_; }

 private:
  PairSeeds& buffer_of(uint64_t step) { return buffers_[step / request_.step_stride % buffers_.size()]; }
  void make_batch(const Schedule& schedule, uint64_t step);

  Buffers& buffers_;
  const channel::Request& request_;
  uint64_t seed_;
  const PairSeeds* now_ = nullptr;
  std::future<void> making_;  // the next batch; the last member: it uses the others
};

}  // namespace cohort::sampler
