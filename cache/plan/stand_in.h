// Counts where nothing was counted, to compare with: they order the nodes, and say nothing of a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/plan/cost.h"

namespace cohort::cache {

struct StandIn {
  std::vector<uint32_t> reads;       // uint32 [nodes], of a node's row
  std::vector<uint32_t> expansions;  // uint32 [lists]: as often as the row of the node whose list it is
  std::vector<uint64_t> edges_read;  // uint64 [lists]

  Counts counts() const { return {1, reads.data(), expansions.data(), edges_read.data()}; }
};

// A node is read as often as it has out-edges. `picks`: most neighbours drawn from a list; -1: all. Throws Error for an
// index that is no node.
StandIn counts_by_degree(const std::vector<RelationLists>& relations, int64_t num_nodes, int64_t picks);

// A node is read by chance, the same in every run: a hash of its id, keyed by `seed`.
StandIn counts_at_random(const std::vector<RelationLists>& relations, int64_t num_nodes, int64_t picks,
                         uint64_t seed = 0);

// "degree" or "random", with seed 0. Throws Error for another name.
StandIn counts_of_policy(const std::string& policy, const std::vector<RelationLists>& relations, int64_t num_nodes,
                         int64_t picks);

}  // namespace cohort::cache
