// What a GraphView tells of all its relations, and what a Query may ask of them.
#include <algorithm>

#include "base/check.h"
#include "sampler/backend.h"
#include "sampler/draw_weights.h"

namespace cohort::sampler {

bool GraphView::has_edge_weights() const {
  return std::ranges::any_of(relations, [](const Relation& each) { return each.edge_weights; });
}

bool GraphView::has_edge_times() const {
  return std::ranges::any_of(relations, [](const Relation& each) { return each.edge_times; });
}

bool GraphView::has_draw_weights() const {
  return std::ranges::any_of(relations, [](const Relation& each) { return each.draw_weights != nullptr; });
}

bool GraphView::has_edge_rows() const {
  return std::ranges::any_of(relations, [](const Relation& each) { return each.edge_rows.row_bytes > 0; });
}

void Query::check(std::size_t num_relations, bool is_homogeneous, bool has_times, bool has_weights) const {
  base::require(fanout.size() % num_relations == 0, "a fanout for each relation and hop");
  base::require(!last_hop_global || is_homogeneous, "local ids in all hops of several relations");
  base::require(!last_hop_global || !spec.disjoint, "no trees with global ids");
  base::require(spec.times.empty() || (spec.disjoint && has_times), "trees, edge times");
  base::require(spec.numbers.dependency == 0 || (spec.draw == Draw::kUniform && !spec.disjoint && !has_weights),
                "layer sampling of uniform draws from lists without weights, for seeds that share nodes");
  base::require(!spec.numbers.importance || spec.numbers.dependency > 0, "importance sampling of layers");
  base::require(!has_weights || (!spec.disjoint && spec.draw == Draw::kUniform), "draws by weight alone");
}

void GraphView::leave_draw_weights() {
  for (Relation& relation : relations) relation.draw_weights.reset();
}

channel::SlotContents slot_contents(const GraphView& graph, bool edge_ids) {
  channel::SlotContents contents{.row_bytes = {}, .edge_row_bytes = {}, .target_types = {}};
  for (const NodeRange& type : graph.types) {
    contents.row_bytes.push_back(graph.rows_in == channel::RowsIn::kSlots ? type.rows.row_bytes : 0);
  }
  for (const Relation& relation : graph.relations) {
    contents.edge_row_bytes.push_back(relation.edge_rows.row_bytes);
    contents.target_types.push_back(relation.target_type);
  }
  contents.label_bytes = graph.label_bytes;
  contents.with_e_id = edge_ids || graph.has_edge_rows();
  contents.with_edge_weight = graph.with_shares || graph.has_edge_weights();
  contents.with_row_index = graph.rows_in == channel::RowsIn::kPool;
  return contents;
}

std::vector<cache::RelationLists> numbered_lists(const GraphView& graph) {
  const auto first_of = [&](int type) { return graph.types[static_cast<std::size_t>(type)].first; };
  std::vector<cache::RelationLists> lists;
  for (const Relation& relation : graph.relations) {
    lists.push_back(
        {relation.lists, cache::end_of(lists), first_of(relation.source_type), first_of(relation.target_type)});
  }
  return lists;
}

}  // namespace cohort::sampler
