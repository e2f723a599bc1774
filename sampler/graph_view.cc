// What a GraphView tells of itself, whatever the number of its types.
#include <algorithm>

#include "sampler/backend.h"
#include "sampler/draw_weights.h"

namespace cohort::sampler {

std::vector<NodeRange> types_of(const GraphView& graph) {
  if (graph.is_typed()) return graph.types;
  const int64_t row_bytes = graph.rows_in == channel::RowsIn::kTable ? 0 : graph.row_bytes;
  return {{0, graph.num_nodes, graph.features, row_bytes, graph.encoded, graph.row_shape}};
}

bool GraphView::has_edge_weights() const {
  return edge_weights || std::ranges::any_of(relations, [](const Relation& each) { return each.edge_weights; });
}

bool GraphView::has_edge_times() const {
  return edge_times || std::ranges::any_of(relations, [](const Relation& each) { return each.edge_times; });
}

bool GraphView::has_draw_weights() const {
  return draw_weights ||
         std::ranges::any_of(relations, [](const Relation& each) { return each.draw_weights != nullptr; });
}

bool GraphView::has_edge_rows() const {
  return edge_rows.row_bytes > 0 ||
         std::ranges::any_of(relations, [](const Relation& each) { return each.edge_rows.row_bytes > 0; });
}

void GraphView::leave_draw_weights() {
  draw_weights.reset();
  for (Relation& relation : relations) relation.draw_weights.reset();
}

std::vector<Relation> relations_of(const GraphView& graph) {
  if (graph.is_typed()) return graph.relations;
  return {{.lists = graph,
           .reverse = 0,
           .edge_weights = graph.edge_weights,
           .edge_times = graph.edge_times,
           .draw_weights = graph.draw_weights,
           .edge_rows = graph.edge_rows}};
}

std::vector<cache::FeatureRows> feature_rows(const GraphView& graph) {
  if (!graph.is_typed()) return {{graph.row_shape, graph.row_bytes, graph.features, graph.encoded}};
  std::vector<cache::FeatureRows> rows;
  for (const NodeRange& type : graph.types) rows.push_back({type.shape, type.row_bytes, type.features, type.encoded});
  return rows;
}

std::vector<cache::RelationLists> numbered_lists(const GraphView& graph) {
  const std::vector<NodeRange> types = types_of(graph);
  const auto first_of = [&](int type) { return types[static_cast<std::size_t>(type)].first; };
  std::vector<cache::RelationLists> lists;
  for (const Relation& relation : relations_of(graph)) {
    lists.push_back(
        {relation.lists, cache::end_of(lists), first_of(relation.source_type), first_of(relation.target_type)});
  }
  return lists;
}

}  // namespace cohort::sampler
