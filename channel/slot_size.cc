#include "channel/slot_size.h"

#include <algorithm>

namespace cohort::channel {
namespace {

// Appends an array to a slot of which `end` bytes are in use; returns its offset.
std::size_t append(int64_t bytes, std::size_t& end) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t offset = end;
  end += (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

}  // namespace

std::size_t lay_out(const SlotContents& contents, Batch& batch) {
  std::size_t end = 0;
  const auto add = [&end](int64_t bytes) { return append(bytes, end); };
  for (std::size_t type = 0; type < contents.row_bytes.size(); ++type) {
    batch.nodes[type].x_offset = add(contents.row_bytes[type] * nodes_of(batch, type));
  }
  batch.n_id_offset = add(8 * batch.num_nodes);
  batch.row_index_offset = contents.with_row_index ? add(8 * batch.num_nodes) : batch.n_id_offset;
  batch.input_id_offset = add(8 * (num_inputs(batch) + batch.num_endpoints));
  batch.y_offset = add(contents.label_bytes * batch.num_labels);
  batch.edge_index_offset = add(16 * batch.num_local_edges);
  batch.source_node_offset = batch.last_hop_global ? add(8 * batch.num_edges) : 0;
  batch.indptr_offset = add(8 * num_offsets(batch, contents.target_types));
  batch.e_id_offset = contents.with_e_id ? add(8 * batch.num_edges) : 0;
  batch.edge_weight_offset = contents.with_edge_weight ? add(4 * batch.num_edges) : 0;
  batch.tree_offset = batch.disjoint ? add(8 * batch.num_nodes) : 0;
  for (std::size_t relation = 0; relation < contents.edge_row_bytes.size(); ++relation) {
    batch.edges[relation].edge_attr_offset = add(contents.edge_row_bytes[relation] * edges_of(batch, relation));
  }
  return end;
}

WorstCase worst_case(int64_t num_seeds, std::span<const int32_t> fanout, int64_t num_nodes, bool disjoint) {
  if (disjoint) {
    const WorstCase tree = worst_case(1, fanout, num_nodes);
    if (tree.num_edges < 0 || tree.num_edges > INT64_MAX / std::max<int64_t>(num_seeds, 1)) return {0, -1, 0};
    return {num_seeds * tree.num_nodes, num_seeds * tree.num_edges, num_seeds * tree.num_targets};
  }
  WorstCase bound{std::min(num_seeds, num_nodes), 0, 0};
  int64_t frontier = bound.num_nodes;
  for (const int64_t picks : fanout) {
    if (picks < 0) return {num_nodes, -1, num_nodes};
    const int64_t edges = frontier * picks;  // below 2^31 * 2^31
    bound.num_edges += edges;
    bound.num_targets = bound.num_nodes;
    frontier = std::min(edges, num_nodes - bound.num_nodes);
    bound.num_nodes += frontier;
  }
  return bound;
}

std::size_t most_slot_bytes(const SlotContents& contents, const BatchBounds& bounds) {
  constexpr std::size_t kMostForWorstCase = std::size_t{2} << 30;
  if (contents.row_bytes.size() > 1 || contents.target_types.size() > 1) return 0;
  const WorstCase most = worst_case(bounds.num_seeds, bounds.fanout, bounds.num_nodes, bounds.disjoint);
  if (most.num_edges < 0) return 0;
  Batch worst{};
  worst.num_nodes = most.num_nodes;
  worst.num_edges = worst.num_local_edges = most.num_edges;
  worst.num_seeds = bounds.num_seeds;
  worst.num_pairs = bounds.num_pairs;
  worst.num_endpoints = bounds.num_endpoints;
  worst.num_labels = bounds.labels_of_seeds ? bounds.num_seeds : most.num_nodes;
  worst.last_hop_global = bounds.last_hop_global ? 1 : 0;
  worst.disjoint = bounds.disjoint ? 1 : 0;
  worst.num_hops = 1;  // instead of all
  worst.nodes[0].per_hop[0] = most.num_targets;
  worst.nodes[0].per_hop[1] = most.num_nodes - most.num_targets;
  worst.edges[0].per_hop[0] = most.num_edges;
  const std::size_t bytes = lay_out(contents, worst);
  return bytes <= kMostForWorstCase ? bytes : 0;
}

PoolSizes pool_sizes(int64_t num_slots, int64_t batch_nodes, int64_t num_nodes, bool reuse, double most_batches) {
  constexpr double kSlack = 0.125;  // pools do not grow for batches that are a little larger
  const auto within = [&](int64_t rows, int64_t least, double batches) {
    const double most = batches * static_cast<double>(batch_nodes);
    return std::max(least, most < static_cast<double>(rows) ? static_cast<int64_t>(most) : rows);
  };
  const auto room = [&](int64_t batches, int64_t nodes) { return pool_rows(batches, nodes, num_nodes, reuse); };
  const int64_t two = std::min<int64_t>(num_slots, 2), larger = pool_batch_nodes(batch_nodes, num_nodes);
  const int64_t little_larger = std::min(batch_nodes + batch_nodes / 16, num_nodes);
  return {within(room(num_slots, batch_nodes), room(two, batch_nodes), most_batches * (1 - kSlack)),
          within(room(num_slots, larger), room(two, little_larger), most_batches)};
}

}  // namespace cohort::channel
