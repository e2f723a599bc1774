// How large a slot is: what the sampler allocates, and what a plan of a GPU's memory counts (cache/native.cc).
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "channel/layout.h"

namespace cohort::channel {

// What batches of a channel have of each node, edge and target.
struct SlotContents {
  std::vector<int64_t> row_bytes = {0};       // [num_types], of a feature row in a slot
  std::vector<int64_t> edge_row_bytes = {0};  // [num_relations], the same of edges
  std::vector<int32_t> target_types = {0};    // [num_relations]
  int64_t label_bytes = 8;                    // of a node
  bool with_e_id = false;
  bool with_edge_weight = false;
  bool with_row_index = false;
};

// Sets the offsets of a batch that has counts; returns the slot bytes needed.
std::size_t lay_out(const SlotContents& contents, Batch& batch);

// The most nodes and edges that a batch can have (edges: -1 when a fanout of "all" leaves it open).
struct WorstCase {
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_targets = 0;
};
// Disjoint: each seed has its own nodes, of which there are num_nodes.
WorstCase worst_case(int64_t num_seeds, std::span<const int32_t> fanout, int64_t num_nodes, bool disjoint = false);

// What bounds the batches of a pass.
struct BatchBounds {
  int64_t num_nodes = 0;              // of the graph
  std::span<const int32_t> fanout{};  // of one relation
  int64_t num_seeds = 0;
  int64_t num_pairs = 0;  // 0: the seeds are nodes
  int64_t num_endpoints = 0;
  bool labels_of_seeds = false;
  bool last_hop_global = false;
  bool disjoint = false;
};

// Bytes of the largest batch of the pass; 0: they are more than 2 GiB, or not known: of a graph of several types or
// relations, or with a fanout of "all".
std::size_t most_slot_bytes(const SlotContents& contents, const BatchBounds& bounds);

// Bytes of a new slot for a batch that needs `needed_bytes`: most_slot_bytes(), or else 1.25 times what this one needs.
constexpr std::size_t slot_bytes(std::size_t most_bytes, std::size_t needed_bytes) {
  return most_bytes > 0 ? std::max(most_bytes, needed_bytes) : needed_bytes + needed_bytes / 4;
}

// Rows of a pool that has room for batches of so many nodes of a graph in all slots at once; `reuse`: a row that
// several of them have is there once.
constexpr int64_t pool_rows(int64_t num_slots, int64_t batch_nodes, int64_t num_nodes, bool reuse) {
  const int64_t rows = num_slots * batch_nodes;
  return reuse && rows > num_nodes ? num_nodes : rows;
}
// Nodes of a batch that a pool is made for where one of so many comes.
constexpr int64_t pool_batch_nodes(int64_t batch_nodes, int64_t num_nodes) {
  const int64_t more = batch_nodes + batch_nodes / 4;
  return more < num_nodes ? more : num_nodes;
}

// Rows of a pool.
struct PoolSizes {
  int64_t needed = 0;     // a pool that has fewer grows
  int64_t preferred = 0;  // to this, where there is memory
};
// Where a batch comes that has `batch_nodes` of a type, and there is memory for the rows of `most_batches` like it:
// room for the batches of all slots, but for no more than there is memory for, and for two of them in any case: one
// that the trainer has, and the next.
PoolSizes pool_sizes(int64_t num_slots, int64_t batch_nodes, int64_t num_nodes, bool reuse, double most_batches);

}  // namespace cohort::channel
