// Counts where nothing was counted, to compare with: they order the nodes, and say nothing of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/csc_ref.h"
#include "cache/plan/cost.h"

namespace cohort::cache {

struct StandIn {
  std::vector<uint32_t> reads;       // uint32 [V], of a node's row and of its list alike
  std::vector<uint64_t> edges_read;  // uint64 [V]

  Counts counts() const { return {1, reads.data(), reads.data(), edges_read.data()}; }
};

// A node is read as often as it has out-edges. `picks`: most neighbours drawn from a list; -1: all. Throws Error for an
// index that is no node.
StandIn counts_by_degree(const base::CscRef& graph, int64_t picks);

// A node is read by chance, the same in every run: a hash of its id, keyed by `seed`.
StandIn counts_at_random(const base::CscRef& graph, int64_t picks, uint64_t seed = 0);

// "degree" or "random", with seed 0. Throws Error for another name.
StandIn counts_of_policy(const std::string& policy, const base::CscRef& graph, int64_t picks);

}  // namespace cohort::cache
