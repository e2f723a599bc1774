// What the nodes of negatives are drawn from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "sampler/backend.h"
#include "sampler/draw.h"
#include "sampler/schedule.h"

namespace cohort::sampler {

// Nodes that an end of negatives is drawn from.
struct EndNodes {
  EndNodes(const NodeRange& nodes, const NodeWeights& of_weights, const NodeTimes& of_times)
      : type(nodes), weights(of_weights), times(of_times) {
    demand_each("weights of negatives", weights.empty(), weights.size());
    demand_each("times of nodes", times.empty(), times.size());
  }
  void demand_each(const char* place, bool none, int64_t count) const {
    if (none || count == type.count) return;
    throw base::Error(
        {place, base::format("{}, one for each node of the type", type.count), std::to_string(count), ""});
  }
  // Of the nodes that exist at a time, if nodes have times.
  int64_t draw(base::PhiloxKey key, int64_t number, int end, uint32_t attempt, int64_t time) const {
    const int64_t bound = times.empty() ? all() : until(time);
    const int64_t drawn = draw_endpoint(key, number, end, attempt, bound);
    const int64_t rank = weights.empty() ? drawn : weights.node_of(drawn);
    return type.first + (times.empty() ? rank : times.node(rank));
  }

  const NodeRange& type;
  const NodeWeights& weights;
  const NodeTimes& times;

 private:
  int64_t all() const { return weights.empty() ? type.count : weights.total(); }
  int64_t sum_of(int64_t count) const { return weights.empty() ? count : weights.sum_of(count); }
  // The weight of the nodes that exist at a time, or else of the earliest.
  int64_t until(int64_t time) const {
    const int64_t sum = sum_of(times.count_until(time));
    if (sum > 0) return sum;
    const int64_t earliest = times.node(weights.empty() ? 0 : weights.node_of(0));
    return sum_of(times.count_until(times.time_of(earliest)));
  }
};

// The targets of a batch's pairs, among which negatives in the batch are drawn.
class TargetsOfPairs {
 public:
  // `first`: of the nodes that have the times.
  TargetsOfPairs(std::span<const int64_t> targets, const NodeTimes& times, int64_t first) {
    for (std::size_t pair = 0; pair < targets.size(); ++pair) {
      const int64_t time = times.empty() ? 0 : times.time_of(targets[pair] - first);
      by_time_.push_back({time, static_cast<int64_t>(pair)});
    }
    std::ranges::sort(by_time_);
    ranks_.resize(targets.size());
    for (std::size_t rank = 0; rank < by_time_.size(); ++rank) {
      ranks_[static_cast<std::size_t>(by_time_[rank].second)] = static_cast<int64_t>(rank);
    }
    has_times_ = !times.empty();
  }
  // How many pairs other than `pair` have targets that exist at a time.
  int64_t others(int64_t pair, int64_t time) const {
    const int64_t there = count_until(time);
    return ranks_[static_cast<std::size_t>(pair)] < there ? there - 1 : there;
  }
  // The pair with the target number `drawn` of these.
  int64_t other(int64_t pair, int64_t drawn) const {
    const int64_t rank = drawn < ranks_[static_cast<std::size_t>(pair)] ? drawn : drawn + 1;
    return by_time_[static_cast<std::size_t>(rank)].second;
  }

 private:
  int64_t count_until(int64_t time) const {
    if (!has_times_) return std::ssize(by_time_);
    return std::ranges::upper_bound(by_time_, time, {}, [](const auto& each) { return each.first; }) - by_time_.begin();
  }

  std::vector<std::pair<int64_t, int64_t>> by_time_;  // time of its target, pair
  std::vector<int64_t> ranks_;                        // [pairs], where they are in by_time_
  bool has_times_ = false;
};

}  // namespace cohort::sampler
