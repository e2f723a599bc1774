// Batches of pairs of nodes, for link prediction: the seeds are the endpoints of pairs.
//
// Source and target of negative number n of a batch are drawn by Philox, keyed by (batch key, n, end, attempt)
// (draw_endpoint in draw.h). A negative that is an edge of the graph is drawn again, with the next attempt, at most
// `redraws` times; the last attempt is kept even if it is an edge. A negative of a triplet has the source of its pair,
// and only its target is drawn. Where the seed set has weights for an end, nodes are drawn in proportion to them, with
// replacement, otherwise uniformly.
//
// A negative in the batch is a triplet, too. Its target is that of another pair of the batch, each with the same
// probability; it is also drawn again where it is the target of its own pair. The only pair of a batch has negatives of
// triplets instead.
//
// In disjoint batches, every endpoint of every pair is the root of a tree of its own, even if several pairs have the
// same node as an endpoint. The time of a root is that of its pair. Negative number n has the time of pair n modulo the
// number of pairs; a negative of a triplet has the time of its pair, and a tree of its own even if it is in the
// batch.
//
// In other batches, the different endpoints are the seeds. Neighbours of seeds are drawn in hop 0 alone, so it is
// enough that hop 0 passes over the positions of the excluded edges. In disjoint batches, all hops of all trees do.
//
// Where the seed set has times of nodes, the nodes of a negative exist: they are drawn from those whose time is at most
// that of the negative (and whose weight is positive); where there is none, from the earliest. A negative in the batch
// is likewise drawn from the targets of other pairs that exist, and where there is none, from all nodes that do.
//
// The pairs belong to one relation: the sources of pairs and of negatives have its source type, the targets its target
// type. Reverse edges are in the relations that have its edges in the other direction (dataset/reverses.h); other
// relations that have its edges are excluded with them. Unrelated pairs are no edges: none is excluded for them, and a
// negative is drawn again only where it is in the batch and has the target of its own pair.
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
#include "dataset/reverses.h"
#include "sampler/backend.h"
#include "sampler/schedule.h"
#include "sampler/trees.h"

namespace cohort::sampler {

// The number of negatives that are drawn for `num_pairs` pairs.
int64_t num_negatives(const channel::Request& request, int64_t num_pairs);
// The largest number of endpoints that the pairs and negatives of a batch can have.
int64_t most_endpoints(const channel::Request& request);
// The largest number of seeds that a batch of pairs can have.
int64_t most_seeds_of_pairs(const channel::Request& request);

// Makes the seeds of one batch after the other. The spans that it returns are valid until the next make().
class PairSeeds {
 public:
  // Keeps references to the arrays of `graph`.
  explicit PairSeeds(const GraphView& graph)
      : types_(graph.types),
        relations_(graph.relations),
        lists_ascend_(std::make_shared<std::vector<std::optional<bool>>>(relations_.size())),
        reverses_(std::make_shared<std::vector<int>>()) {}

  // Makes the seeds of a batch from the pairs of `set` at `positions`. `key`: the key of the batch.
  void make(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
            base::PhiloxKey key);

  // int64 [num_seeds]: the different endpoints, in the order of their first occurrence in input_id(); in disjoint
  // batches all endpoints.
  std::span<const int64_t> seeds() const { return seeds_; }
  // int64 [positions + endpoints]: the positions, then the batch-local ids (within their node type) of all sources,
  // then of all targets; among each of these, negatives come last. Negatives of triplets have no sources of their own.
  std::span<const int64_t> input_id() const { return input_id_; }
  // The edges that hop 0 does not draw, see Query.
  std::span<const Exclusions> exclusions() const { return exclusions_; }
  // int64 [num_seeds]: the time of each seed, in disjoint batches of pairs with times; otherwise empty.
  std::span<const int64_t> times() const { return times_; }

 private:
  // Some of edges_ that stand together: the positions of the first, of the next, ..., and where those of each end.
  struct Found {
    std::vector<int64_t> positions, ends;
  };
  // The arrays behind the spans of one relation's Exclusions.
  struct Excluded {
    std::vector<int64_t> starts, positions, nodes;
  };
  const NodeRange& type(int number) const { return types_[static_cast<std::size_t>(number)]; }
  void draw_negatives(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
                      base::PhiloxKey key);
  // Of both ends of the pairs.
  const NodeRange& sources_type() const { return type(source_type_); }
  const NodeRange& targets_type() const { return type(target_type_); }
  void number_endpoints();
  void add_endpoint(int64_t node, int64_t first);
  void find_times(const SeedSet& set, std::span<const int64_t> positions, bool triplets);
  // in_trees: by nodes, not by the local ids of seeds.
  void exclude(channel::Exclude which, std::size_t num_pairs, bool in_trees);
  // Where the edges of the pairs' relation are.
  std::vector<dataset::SameEdges> same_edges();
  // Finds the positions of edges_ in the lists of the relation. `targets`: the seeds of the relation's target type.
  void exclude_edges(int relation, std::span<const int64_t> targets, bool in_trees, Excluded& excluded);
  // The positions of edges_, which are in the lists of lists_, into parts_.
  void find_edges(int relation);
  // Appends the positions of `source` in the relation's list of `target`, ascending.
  void find(int relation, int64_t source, int64_t target, std::vector<int64_t>& positions);
  bool is_edge(int64_t source, int64_t target);
  bool lists_ascend(int relation);

  std::vector<NodeRange> types_;
  std::vector<Relation> relations_;
  // [num_relations]: whether all lists of the relation ascend; empty until it is asked for. Copies of this object share
  // the answers.
  std::shared_ptr<std::vector<std::optional<bool>>> lists_ascend_;
  std::shared_ptr<std::vector<int>> reverses_;  // [num_relations], as dataset::find_reverses has them; likewise
  int relation_ = 0;                            // of the pairs, unless they are unrelated
  int source_type_ = 0, target_type_ = 0;       // of both ends of the pairs
  std::vector<int64_t> sources_, targets_;      // of the pairs, then of negatives
  std::vector<int64_t> seeds_, input_id_, times_;
  int64_t first_target_ = 0;  // index in seeds_ of the first seed of the target type
  TreeIds local_id_;
  std::vector<std::pair<int64_t, int64_t>>
      edges_;                       // excluded: batch-local id of the target, or in trees itself; source
  std::vector<Excluded> excluded_;  // of each of exclusions_
  std::vector<Exclusions> exclusions_;
  std::array<Found, 4> parts_;
  std::size_t edges_of_part_ = 1;
  std::vector<int64_t> found_, lists_;  // lists_: the nodes whose lists have edges_
};

// The seeds of the batches of a pass over pairs, one batch after the other. Two threads make the seeds of the next two
// batches while the current batch is sampled, because making seeds takes longer than sampling on a GPU.
class PairsOfPass {
 public:
  static constexpr uint64_t kAhead = 2;  // batches
  using Buffers = std::array<PairSeeds, kAhead + 1>;
  static Buffers buffers_of(const GraphView& graph) {
    const PairSeeds one(graph);
    return {one, one, one};
  }

  // `seed`: the seed of the run. Keeps references to `buffers` and `request`.
  PairsOfPass(Buffers& buffers, const channel::Request& request, uint64_t seed)
      : buffers_(buffers), request_(request), seed_(seed) {}

  // The seeds of batch `step` of the schedule, valid until the next call. Keeps a reference to `schedule`.
  const PairSeeds& make(const Schedule& schedule, uint64_t step);
  // The result of the last make().
  const PairSeeds& now() const { return *now_; }

 private:
  std::size_t buffer_of(uint64_t step) const { return step / request_.step_stride % (kAhead + 1); }
  void make_batch(const Schedule& schedule, uint64_t step);

  Buffers& buffers_;
  const channel::Request& request_;
  uint64_t seed_;
  const PairSeeds* now_ = nullptr;
  std::array<std::future<void>, kAhead + 1> making_;  // of each buffer; the last member: they use the others
};

}  // namespace cohort::sampler
