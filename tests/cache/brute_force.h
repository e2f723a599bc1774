// Every placement there is, on tiny graphs: for each item (row or list) any set of GPUs.
#pragma once

#include <algorithm>
#include <limits>

#include "tests/cache/small_graph.h"

namespace cohort::cache {

inline const Counts& counts_of(const PlanInput& input, std::size_t clique) {
  return input.counts[input.counts.size() == 1 ? 0 : clique];
}

// The fewest seconds a batch, over all GPUs, that any placement within the budgets reaches; entries of the directory
// are charged to every GPU of a clique for each row that one of its GPUs holds. Independent of the planner: sums the
// costs of each item in each tier, tries all, keeps the best.
class BruteForce {
 public:
  explicit BruteForce(SmallInput& small) : small_(small), input_(small.view()), costs_(input_.sizes, input_.links) {}

  double least_seconds() {
    best_ = 0;
    for (std::size_t c = 0; c < input_.cliques.size(); ++c) {
      const auto& clique = input_.cliques[c];
      clique_ = &clique;
      counts_ = counts_of(input_, c);
      room_.clear();
      for (int gpu : clique) room_.push_back(input_.budget_bytes[static_cast<std::size_t>(gpu)] - fixed_bytes());
      clique_best_ = std::numeric_limits<double>::infinity();
      try_items(0, 0);
      best_ += clique_best_;
    }
    return best_;
  }

 private:
  int64_t fixed_bytes() const {
    return input_.index.scratch_bytes + input_.index.bitmap_bytes[0] + input_.index.bitmap_bytes[1];
  }

  void try_items(int64_t item, double seconds) {
    if (item == 2 * small_.num_nodes()) {
      clique_best_ = std::min(clique_best_, seconds);
      return;
    }
    const Kind kind = item % 2 == 0 ? Kind::kFeature : Kind::kTopology;
    if (kind == Kind::kTopology && !small_.has_lists) return try_items(item + 1, seconds);
    const auto n = static_cast<unsigned>(clique_->size());
    for (unsigned set = 0; set < 1u << n; ++set) {
      if (!take(kind, item / 2, set, 1)) continue;
      try_items(item + 1, seconds + seconds_of(kind, item / 2, set));
      take(kind, item / 2, set, -1);
    }
  }

  // Takes (1) or gives back (-1) the bytes of copies on the GPUs of `set`; false, and nothing taken, without room.
  bool take(Kind kind, int64_t node, unsigned set, int sign) {
    bool fits = true;
    for (std::size_t i = 0; i < room_.size(); ++i) {
      const int64_t bytes =
          (set >> i & 1 ? costs_.stored_bytes(kind, node) : 0) + (set != 0 ? input_.index.entry_bytes : 0);
      room_[i] -= sign * bytes;
      fits = fits && (bytes == 0 || room_[i] >= 0);
    }
    if (fits || sign < 0) return true;
    take(kind, node, set, -1);
    return false;
  }

  double seconds_of(Kind kind, int64_t node, unsigned set) const {
    double sum = 0;
    for (std::size_t i = 0; i < clique_->size(); ++i) {
      const Tier tier = set >> i & 1 ? Tier::kLocal : set != 0 ? Tier::kPeer : Tier::kHost;
      sum += costs_.uses(kind, counts_, node)[static_cast<std::size_t>(tier)].seconds;
    }
    return sum;
  }

  SmallInput& small_;
  const PlanInput& input_;
  Costs costs_;
  const std::vector<int>* clique_ = nullptr;
  Counts counts_;
  std::vector<int64_t> room_;
  double best_ = 0, clique_best_ = 0;
};

// The most seconds a batch that placing one more copy of any one item can save.
inline double most_saved_by_one_item(SmallInput& small) {
  const PlanInput& input = small.view();
  const Costs costs(input.sizes, input.links);
  double most = 0;
  for (int64_t node = 0; node < small.num_nodes(); ++node) {
    for (Kind kind : {Kind::kFeature, Kind::kTopology}) {
      for (std::size_t c = 0; c < input.cliques.size(); ++c) {
        const Costs::Saved saved = costs.saved(kind, counts_of(input, c), node);
        most =
            std::max(most, static_cast<double>(input.cliques[c].size()) * (saved.host_to_peer + saved.peer_to_local));
      }
    }
  }
  return most;
}

}  // namespace cohort::cache
