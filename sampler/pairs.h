// Batches of pairs of nodes, for link prediction: the seeds are the endpoints of pairs.
//
// Negative number n of a batch has the source and the target Philox(batch key, n, stream, attempt) (draw_endpoint in
// draw.h). One that is an edge of the graph is drawn again, with the next attempt, at most `redraws` times; the last
// attempt stays as it is.
//
// Every endpoint is a seed, and only hop 0 draws neighbours of seeds. So a batch has none of the edges that are not to
// be drawn when hop 0 passes over their positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/csc_ref.h"
#include "base/random.h"
#include "channel/layout.h"
#include "sampler/schedule.h"

namespace cohort::sampler {

// That are drawn for so many pairs.
int64_t num_negatives(const channel::Request& request, int64_t num_pairs);
// The most endpoints of the pairs of a batch.
int64_t most_endpoints(const channel::Request& request);

// Makes the seeds of one batch after the other. What it shows is valid until the next make().
class PairSeeds {
 public:
  // The graph has one type; its arrays are kept by reference.
  explicit PairSeeds(const base::CscRef& graph) : graph_(graph) {}

  // Of the pairs of `set` at these positions. `key`: of the batch.
  void make(const SeedSet& set, std::span<const int64_t> positions, const channel::Request& request,
            base::PhiloxKey key);

  // int64 [num_seeds]: the different endpoints, in the order of their first occurrence in input_id().
  std::span<const int64_t> seeds() const { return seeds_; }
  // int64 [positions + endpoints]: the positions, then the batch-local ids of all sources, then of all targets,
  // negatives last. Triplets have no sources of negatives.
  std::span<const int64_t> input_id() const { return input_id_; }
  // What is not drawn in hop 0, as Query has it. Empty where all is.
  std::span<const int64_t> excluded_starts() const { return excluded_starts_; }
  std::span<const int64_t> excluded() const { return excluded_; }

 private:
  void draw_negatives(const channel::Request& request, base::PhiloxKey key);
  void add_endpoint(int64_t node);
  void exclude(bool reverse, std::size_t num_pairs);
  // Appends the positions of `source` in the list of `target`, ascending.
  void find(int64_t source, int64_t target, std::vector<int64_t>& positions);
  bool is_edge(int64_t source, int64_t target);
  bool lists_ascend();

  base::CscRef graph_;
  std::optional<bool> lists_ascend_;  // of all nodes; known once somebody has asked
  std::vector<int64_t> sources_, targets_;
  std::vector<int64_t> seeds_, input_id_, excluded_starts_, excluded_;
  std::unordered_map<int64_t, int64_t> local_id_;
  std::vector<std::pair<int64_t, int64_t>> edges_;  // not to be drawn: batch-local target, source
  std::vector<int64_t> found_;
};

}  // namespace cohort::sampler
