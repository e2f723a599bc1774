// Disjoint batches: each seed is the root of a tree of its own, and a node that several trees reach is another node in
// each of them. Trees are numbered as the batch's query has their seeds.
//
// Of edges with times, a tree has those alone whose time is in the span of its seed: no later than the seed, and no
// older than the window of their relation allows. Lists ascend by time, so these stand side by side in each list:
// uniform draws are those of draw.h from a list that begins and ends there, the latest are its last.
#pragma once

#include <cstdint>
#include <vector>

#include "base/host_device.h"
#include "sampler/draw.h"

namespace cohort::sampler {

inline constexpr int kNodeBits = 40;                    // of a key
inline constexpr int64_t kMaxTrees = int64_t{1} << 23;  // of a batch
inline constexpr int64_t kMaxTreeNodes = INT32_MAX;     // of all trees of a batch, and their edges
inline constexpr uint64_t kNoTreeNode = ~uint64_t{0};   // no key

// What stands for a node in a tree: among draws, where the first tree has the draws of batches without trees, and in
// maps.
COHORT_HOST_DEVICE constexpr int64_t node_in_tree(int64_t tree, int64_t node) { return tree << kNodeBits | node; }

// Where a map of 2^bits entries begins to look for a key.
COHORT_HOST_DEVICE constexpr uint64_t bucket_of_key(uint64_t key, int bits) {
  return key * 0x9E3779B97F4A7C15ull >> (64 - bits);
}

// Edges of a list that a draw chooses from: so many that are not excluded, from a position in the graph's indices on.
struct Candidates {
  int64_t first;
  int64_t count;
};

// The times of edges that a tree may have, both ends included.
struct TimeSpan {
  int64_t first;
  int64_t last;
};

// Edges up to the time of a seed, at most `window` older; a window below 0: of any age.
COHORT_HOST_DEVICE constexpr TimeSpan span_until(int64_t time, int64_t window) {
  return {window < 0 || time < INT64_MIN + window ? INT64_MIN : time - window, time};
}

// times: int64 [E], of all lists; [begin, end): the list; `excluded`: positions in it.
COHORT_HOST_DEVICE constexpr Candidates candidates_in(const int64_t* times, int64_t begin, int64_t end, TimeSpan span,
                                                      Draw draw, Picks picks, const ExcludedRef& excluded) {
  const int64_t first = span.first == INT64_MIN ? begin : base::first_not_before(begin, end, [&](int64_t edge) {
    return times[edge] < span.first;
  });
  const int64_t last = base::first_not_before(first, end, [&](int64_t edge) { return times[edge] <= span.last; });
  const auto left_out = [&](int64_t edge) {  // of those before
    return base::first_not_before(0, excluded.count, [&](int64_t i) { return excluded.positions[i] < edge - begin; });
  };
  const int64_t left_in = last - begin - left_out(last);  // from the list's begin on
  const int64_t count = left_in - (first - begin - left_out(first));
  if (draw != Draw::kLast) return {first, count};
  const int64_t drawn = picks.of(count);
  return {begin + pass_over(excluded, left_in - drawn), drawn};
}

// Throws Error for a batch of more nodes or trees than there may be.
void demand_tree_nodes(int64_t count);
void demand_trees(int64_t count);

// The local ids of nodes, or of nodes in trees, in a map with open addressing.
class TreeIds {
 public:
  void clear();
  // The id that the key has; one that is new gets `next`.
  int32_t find_or_add(uint64_t key, int32_t next);

 private:
  struct Entry {
    uint64_t key = kNoTreeNode;  // there is none
    int32_t id = 0;
  };
  void grow();
  Entry& entry_for(uint64_t key);

  int bits_ = 0;
  std::size_t num_keys_ = 0;
  std::vector<Entry> entries_;  // [2^bits]
};

}  // namespace cohort::sampler
