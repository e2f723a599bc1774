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

std::size_t lay_out(const BatchShape& shape, Batch& batch) {
  std::size_t end = 0;
  const auto place = [&end](int64_t bytes) { return append(bytes, end); };
  batch.x_offset = place(shape.row_bytes * shape.num_nodes);
  batch.n_id_offset = place(8 * shape.num_nodes);
  batch.place_offset = shape.with_place ? place(8 * shape.num_nodes) : batch.n_id_offset;
  batch.input_id_offset = place(8 * ((shape.num_pairs > 0 ? shape.num_pairs : shape.num_seeds) + shape.num_endpoints));
  batch.y_offset = place(shape.label_bytes * (shape.labels_of_seeds ? shape.num_seeds : shape.num_nodes));
  batch.edge_index_offset = place(16 * (shape.last_hop_global ? shape.num_local_edges : shape.num_edges));
  batch.source_node_offset = shape.last_hop_global ? place(8 * shape.num_edges) : 0;
  batch.indptr_offset = place(8 * shape.num_offsets);
  batch.e_id_offset = shape.with_e_id ? place(8 * shape.num_edges) : 0;
  batch.edge_weight_offset = shape.with_edge_weight ? place(4 * shape.num_edges) : 0;
  batch.tree_offset = shape.disjoint ? place(8 * shape.num_nodes) : 0;
  batch.edge_attr_offset = shape.edge_row_bytes > 0 ? place(shape.edge_row_bytes * shape.num_edges) : 0;
  return end;
}

std::size_t lay_out_tables(std::span<const int64_t> bytes_of_type, std::span<const int64_t> bytes_of_relation,
                           std::size_t end, TypedBatch& typed) {
  for (std::size_t type = 0; type < bytes_of_type.size(); ++type) {
    typed.x_offset[type] = append(bytes_of_type[type], end);
  }
  for (std::size_t relation = 0; relation < bytes_of_relation.size(); ++relation) {
    typed.edge_attr_offset[relation] = append(bytes_of_relation[relation], end);
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

std::size_t slot_bytes(BatchShape shape, int64_t num_seeds, std::span<const int32_t> fanout, int64_t num_nodes,
                       std::size_t needed_bytes) {
  constexpr std::size_t kMostForWorstCase = std::size_t{2} << 30;
  const WorstCase bound = worst_case(num_seeds, fanout, num_nodes, shape.disjoint);
  if (bound.num_edges >= 0) {
    shape.num_nodes = bound.num_nodes;
    shape.num_edges = shape.num_local_edges = bound.num_edges;
    shape.num_seeds = num_seeds;
    shape.num_offsets = bound.num_targets + 1;
    Batch unused{};
    const std::size_t worst = lay_out(shape, unused);
    if (worst <= kMostForWorstCase) return worst;
  }
  return needed_bytes + needed_bytes / 4;
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
