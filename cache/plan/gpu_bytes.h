// What a GPU holds of the graph beside its cache: the sampler allocates it, plans count it.
#pragma once

#include <cstdint>

namespace cohort::cache {

// Of all nodes: labels, the first place in a batch of each node, and where its row was last.
constexpr int64_t bytes_of_nodes(int64_t num_nodes, int64_t label_bytes) {
  return num_nodes * (label_bytes + static_cast<int64_t>(sizeof(uint64_t) + sizeof(uint32_t)));
}

// What is known of each row of a pool (cache/pool_ref.h): a node and a batch.
inline constexpr int64_t kBytesOfPoolRow = 2 * sizeof(uint32_t) * 5 / 4;  // base::Scratch asks for a quarter more

// Whether the topology goes into GPU memory where the user leaves it open: at most half of what is left.
constexpr bool takes_topology(int64_t left_bytes, int64_t topology_bytes) { return topology_bytes <= left_bytes / 2; }

}  // namespace cohort::cache
