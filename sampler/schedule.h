// Which seeds make up which batch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "channel/layout.h"
#include "dataset/npy.h"

namespace cohort::sampler {

// Weights of the nodes of one type, by which ends of negatives are drawn. They are integers, so that the draws are the
// same on every machine: sums[i] is the sum of the weights of nodes 0 .. i. Copies share the sums.
class NodeWeights {
 public:
  NodeWeights() = default;  // none: all nodes have the same weight
  // Throws base::Error unless the sums ascend from at least 0 to at least 1. `place` is for messages.
  NodeWeights(std::vector<int64_t> sums, const std::string& place);
  // Maps a .npy file, int64 [n], and throws likewise.
  explicit NodeWeights(const std::filesystem::path& path);

  bool empty() const { return sums_.empty(); }
  int64_t size() const { return std::ssize(sums_); }
  int64_t total() const { return sums_.back(); }
  int64_t sum_of(int64_t count) const { return count == 0 ? 0 : sums_[static_cast<std::size_t>(count - 1)]; }
  // The node whose weight a number in [0, total()) belongs to; never one of weight 0.
  int64_t node_of(int64_t number) const;

 private:
  std::shared_ptr<const void> owner_;  // of the sums
  std::span<const int64_t> sums_;
};

// Times of the nodes of one type, from which on they exist. Copies share them.
class NodeTimes {
 public:
  NodeTimes() = default;  // none: all nodes exist at any time
  // [2, n]: the nodes, in the order of their times, and the time of each node. Throws base::Error for others. `place`
  // is for messages.
  NodeTimes(std::vector<int64_t> order_and_times, const std::string& place);
  // Maps a .npy file, int64 [2, n], and throws likewise.
  explicit NodeTimes(const std::filesystem::path& path);

  bool empty() const { return times_.empty(); }
  int64_t size() const { return std::ssize(times_); }
  int64_t node(int64_t rank) const { return order_[static_cast<std::size_t>(rank)]; }
  int64_t time_of(int64_t node) const { return times_[static_cast<std::size_t>(node)]; }
  // How many nodes exist at a time: the first in order.
  int64_t count_until(int64_t time) const;

 private:
  std::shared_ptr<const void> owner_;  // of both
  std::span<const int64_t> order_, times_;
};

// The communities of seeds, by which they are ordered (EpochOrders).
struct Communities {
  std::vector<int64_t> of_seed;  // int64 [n], in [0, count)
  int64_t count = 0;
};

// The community of each node, from a .npy file.
class NodeCommunities {
 public:
  NodeCommunities() = default;  // none: seeds are in no order
  // Maps the file, int32 or int64 [num_nodes], of any numbers. Throws base::Error for another.
  NodeCommunities(const std::filesystem::path& path, int64_t num_nodes);

  // Null: there are none.
  std::shared_ptr<const Communities> of(std::span<const int64_t> nodes) const;

 private:
  std::shared_ptr<const dataset::MappedArray> file_;
};

// Seeds in groups: group g has the seeds starts[g] .. starts[g + 1] - 1. Most sets are one group. A seed is a node, or
// a pair of nodes.
struct SeedSet {
  SeedSet() = default;
  SeedSet(std::vector<int64_t> ids) : seeds(std::move(ids)), starts{0, std::ssize(seeds)} {}
  SeedSet(std::vector<int64_t> ids, std::vector<int64_t> group_starts)
      : seeds(std::move(ids)), starts(std::move(group_starts)) {}

  // Of [n, 2] nodes: source and target of each pair. They may repeat.
  static SeedSet of_pairs(std::vector<int64_t> ids);
  int64_t size() const { return std::ssize(seeds) / (are_pairs ? 2 : 1); }

  std::vector<int64_t> seeds;   // int64 [n], or [n, 2]
  std::vector<int64_t> starts;  // int64 [groups + 1], the first 0, the last n, none below the one before
  std::vector<int64_t> times;   // int64 [n]; none: they have none
  bool are_pairs = false;
  std::shared_ptr<const Communities> communities;  // null: shuffles are uniform
  NodeWeights source_weights, target_weights;      // by which the ends of negatives of pairs are drawn
  NodeTimes source_times, target_times;            // of the nodes of both ends; the weights are in their order then
};

// One pass over a seed set: a shuffle keyed by (seed, epoch), cut into batches; the last may be smaller. Of G groups
// each is shuffled and cut by itself, and batch b is the next of group b mod G: with a group for each of G ranks, whose
// batches are b mod G as well, a rank sees its own seeds alone. A group that has run out gives batches without seeds.
class Schedule {
 public:
  // `set` is kept by reference; `order`: of the pass (EpochOrders); throws Error on a batch size below 1.
  Schedule(const SeedSet& set, uint32_t batch_size, std::vector<int64_t> order);

  const SeedSet& set() const { return set_; }
  uint64_t num_steps() const { return num_steps_; }

  // Positions of the batch's seeds in the seed set (`input_id`), int64 [num_seeds]; none from num_steps() on.
  std::span<const int64_t> positions(uint64_t step) const;

  // The batch's seeds, int64 [num_seeds], of a set of nodes, and their times where they have any. Valid until the next
  // call.
  std::span<const int64_t> seeds(uint64_t step) { return of_batch(set_.seeds, step, batch_); }
  std::span<const int64_t> times(uint64_t step) { return of_batch(set_.times, step, times_); }

 private:
  // values: int64 [n], or none.
  std::span<const int64_t> of_batch(std::span<const int64_t> values, uint64_t step, std::vector<int64_t>& out) const;

  const SeedSet& set_;
  uint64_t batch_size_;
  uint64_t num_steps_ = 0;
  std::vector<int64_t> order_;
  std::vector<int64_t> batch_, times_;
};

// The orders of passes: int64 [n], a permutation of the positions of each group. That of a pass like the one before,
// but of the next epoch, is ready when it is asked for, as it was made meanwhile.
//
// Seeds with communities are shuffled as others. The first ones, a share `mix` of all, stay in this order and are
// spread evenly over the epoch; between them come the others, sorted by community. The communities come in another
// random order each epoch. So a batch has seeds of few communities, and a share of seeds from everywhere. The order
// depends neither on the batch size nor on the number of ranks.
class EpochOrders {
 public:
  explicit EpochOrders(uint64_t seed, double mix = 1) : seed_(seed), mix_(mix) {}  // the run's
  ~EpochOrders() { unwanted_.request_stop(); }
  EpochOrders(const EpochOrders&) = delete;
  EpochOrders& operator=(const EpochOrders&) = delete;

  std::vector<int64_t> of(const SeedSet& set, const channel::Request& request);

 private:
  uint64_t seed_;
  double mix_;
  std::vector<int64_t> next_starts_;  // of the set's groups: an order depends on nothing else of a set, but on
  std::shared_ptr<const Communities> next_communities_;
  uint64_t next_epoch_ = 0;
  std::stop_source unwanted_;  // of next_, whose end is waited for where it goes
  std::future<std::vector<int64_t>> next_;
};

// Seeds of a .npy file, int64 [n]. Throws Error when it is missing or malformed, an id is out of range, or one stands
// twice, unless seeds may repeat.
std::vector<int64_t> read_seeds(const std::filesystem::path& path, int64_t num_nodes, bool may_repeat = false);

// Times of `num_seeds` seeds, of a .npy file. Throws Error when it is missing or malformed.
std::vector<int64_t> read_times(const std::filesystem::path& path, int64_t num_seeds);

// Pairs of a .npy file, int64 [n, 2]. Throws Error when it is missing or malformed, or an id is out of range.
std::vector<int64_t> read_pairs(const std::filesystem::path& path, int64_t num_nodes);

// The seed sets of a channel: files seeds-<number>.npy (int64 [n]) or pairs-<number>.npy (int64 [n, 2], see pairs.h) in
// its folder, read when first asked for. Sets of several groups have a file seeds-<number>-starts.npy (int64 [groups +
// 1]) as well, those with times seeds-<number>-times.npy (int64 [n]), and those whose negatives are drawn by weight
// weights-<number>-source.npy or weights-<number>-target.npy (NodeWeights), or both. Files
// node-times-<number>-source.npy and node-times-<number>-target.npy (NodeTimes) likewise say when nodes exist. A
// trainer that needs a set no longer removes its files, once no pass over it is under way; the set is forgotten then.
class SeedSets {
 public:
  // Seeds that are nodes get their communities.
  SeedSets(std::filesystem::path folder, int64_t num_nodes, NodeCommunities communities = {})
      : folder_(std::move(folder)), num_nodes_(num_nodes), communities_(std::move(communities)) {}

  // Valid until the next call. Throws Error as read_seeds and NodeWeights do, for starts that do not divide the seeds,
  // and for as many times as there are not.
  const SeedSet& get(uint32_t number, bool may_repeat = false);
  // The set of a request, or null where get() throws and nobody wants the pass any more, as then the set's files may
  // have been removed.
  const SeedSet* of(const channel::Request& request, const std::function<bool()>& is_wanted);
  // Whether of() need not read the set.
  bool has(uint32_t number) const { return sets_.contains(number); }

 private:
  // Of the nodes or pairs.
  std::filesystem::path file_of(uint32_t number, bool are_pairs) const;

  std::filesystem::path folder_;
  int64_t num_nodes_;
  NodeCommunities communities_;
  std::map<uint32_t, SeedSet> sets_;
};

// The numbers 0 .. size-1 in an order that depends on (seed, epoch, group) alone (Fisher-Yates); in no particular one
// once `stop` is requested.
std::vector<int64_t> shuffled(int64_t size, uint64_t seed, uint64_t epoch, uint64_t group = 0,
                              const std::stop_token& stop = {});

}  // namespace cohort::sampler
