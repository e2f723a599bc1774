// A pool of rows in host memory, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/pool_ref.h"

namespace cohort::cache {

// A pool whose places are given away one after the other.
class HostPool {
 public:
  HostPool(int64_t num_nodes, int64_t num_places, bool reuse)
      : rows_(static_cast<std::size_t>(num_places), -1),
        place_of_(static_cast<std::size_t>(num_nodes), PoolRef::kNone),
        node_of_(rows_.size(), PoolRef::kNone),
        used_by_(rows_.size(), PoolRef::kNone),
        num_places_(rows_.size()),
        reuse_(reuse) {}

  // Places of the nodes; rows that are missing are written: the number of their node, and `more`.
  std::vector<uint32_t> place(const std::vector<int64_t>& nodes, const PoolBatch& batch, int64_t more = 0) {
    const PoolRef pool{
        place_of_.data(), node_of_.data(), used_by_.data(), static_cast<uint32_t>(num_places_), reuse_, batch};
    std::vector<uint32_t> places(nodes.size());
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      places[i] = pool.find(nodes[i]);
      if (places[i] == PoolRef::kNone) missing.push_back(i);
    }
    num_missing += std::ssize(missing);
    for (std::size_t looked_at = 0; looked_at < num_places_ && !missing.empty(); ++looked_at) {
      hand_ = (hand_ + 1) % num_places_;
      if (!pool.is_free(static_cast<uint32_t>(hand_))) continue;
      places[missing.back()] = static_cast<uint32_t>(hand_);
      pool.give(static_cast<uint32_t>(hand_), nodes[missing.back()]);
      rows_[hand_] = nodes[missing.back()] + more;
      missing.pop_back();
    }
    num_without_place += std::ssize(missing);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (places[i] == PoolRef::kPending) places[i] = place_of_[static_cast<std::size_t>(nodes[i])];
    }
    return places;
  }
  void forget() { std::ranges::fill(place_of_, PoolRef::kNone); }
  int64_t row(uint32_t place) const { return rows_[place]; }
  // Places are there from the beginning, and given away from now on.
  void grow(int64_t num_places) { num_places_ = static_cast<std::size_t>(num_places); }
  int64_t num_places() const { return static_cast<int64_t>(num_places_); }

  int64_t num_missing = 0, num_without_place = 0;

 private:
  std::vector<int64_t> rows_;
  std::vector<uint32_t> place_of_, node_of_, used_by_;
  std::size_t num_places_, hand_ = 0;
  bool reuse_;
};

}  // namespace cohort::cache
