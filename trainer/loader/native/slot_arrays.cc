#include "trainer/loader/native/module.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace nb = nanobind;

namespace cohort::trainer {
namespace {

using channel::Batch;

// An array inside a slot.
struct Array {
  uint64_t offset;
  std::vector<int64_t> shape;
  nb::dlpack::dtype dtype = nb::dtype<int64_t>();
  std::vector<int64_t> strides = {};  // in elements; none: rows follow each other
};

// The array as a torch tensor that keeps the slot.
nb::object view(nb::handle slot_object, const Array& array) {
  const auto& slot = nb::cast<const HeldSlot&>(slot_object);
  const std::vector<std::size_t> sizes(array.shape.begin(), array.shape.end());
  const auto [device, ordinal] = slot.dlpack_device();
  return nb::cast(nb::ndarray<nb::pytorch>(slot.data() + array.offset, sizes.size(), sizes.data(), slot_object,
                                           array.strides.empty() ? nullptr : array.strides.data(), array.dtype, device,
                                           ordinal));
}

// The property `name`: the array that find(slot, its batch) names, as a torch tensor that keeps the slot; None where
// there is none.
template <typename Find>
void bind_array(nb::class_<HeldSlot>& slot_class, const char* name, Find find, const char* doc = "") {
  const auto get = [find](nb::handle self) -> nb::object {
    auto& slot = nb::cast<HeldSlot&>(self);
    const std::optional<Array> array = find(std::as_const(slot), slot.batch());
    return array ? view(self, *array) : nb::none();
  };
  slot_class.def_prop_ro(name, get, doc);
}

void bind_edge_arrays(nb::class_<HeldSlot>& slot_class) {
  bind_array(slot_class, "edge_index", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.edge_index_offset, {2, batch.num_local_edges}};
  });
  bind_array(
      slot_class, "source_node",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.source_node_offset, {batch.last_hop_global ? batch.num_edges : 0}};
      },
      "int64 [num_edges], the node of each edge's source, where last_hop_global.");
  bind_array(slot_class, "indptr", [](const HeldSlot& slot, const Batch& batch) {
    return Array{batch.indptr_offset, {channel::num_offsets(batch, channel::target_types_of(slot.header()))}};
  });
  bind_array(
      slot_class, "e_id",
      [](const HeldSlot& slot, const Batch& batch) -> std::optional<Array> {
        if (!slot.header().with_e_id) return std::nullopt;
        return Array{batch.e_id_offset, {batch.num_edges}};
      },
      "int64 [num_edges]: where each edge stands in the data set's indices; None where nobody asked for it.");
  bind_array(
      slot_class, "edge_weight",
      [](const HeldSlot& slot, const Batch& batch) -> std::optional<Array> {
        if (!slot.header().with_edge_weight) return std::nullopt;
        return Array{batch.edge_weight_offset, {batch.num_edges}, nb::dtype<float>()};
      },
      "float32 [num_edges], as edge_index has the edges; None where nobody asked for it.");
}

void bind_node_arrays(nb::class_<HeldSlot>& slot_class) {
  bind_array(slot_class, "n_id", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.n_id_offset, {batch.num_nodes}};
  });
  bind_array(
      slot_class, "row_index",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.row_index_offset, {batch.num_nodes}};
      },
      "int64 [num_nodes], the row of each node in the table or the pool of its type, unless slots have rows.");
  bind_array(
      slot_class, "tree",
      [](const HeldSlot&, const Batch& batch) -> std::optional<Array> {
        if (!batch.disjoint) return std::nullopt;
        return Array{batch.tree_offset, {batch.num_nodes}};
      },
      "int64 [num_nodes], the seed, by its number in the batch, whose tree each node is in; None: seeds share nodes.");
  bind_array(slot_class, "y", [](const HeldSlot& slot, const Batch& batch) {
    const auto dtype = dlpack_type(slot.header().label_dtype);
    const int64_t count = batch.num_labels, width = slot.header().label_width;
    return width == 0 ? Array{batch.y_offset, {count}, dtype} : Array{batch.y_offset, {count, width}, dtype};
  });
  bind_array(
      slot_class, "endpoints",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.input_id_offset + 8 * static_cast<uint64_t>(channel::num_inputs(batch)),
                     {batch.num_endpoints}};
      },
      "Where seeds are pairs: int64, the batch-local ids of their sources, then of their targets.");
  bind_array(slot_class, "input_id", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.input_id_offset, {channel::num_inputs(batch)}};
  });
}

// int64 sizes by hop of each of `count` types or relations.
template <typename Part>
std::vector<std::vector<int64_t>> by_hop(const Part* parts, int count, int num_hops) {
  std::vector<std::vector<int64_t>> all;
  for (int which = 0; which < count; ++which) all.emplace_back(parts[which].per_hop, parts[which].per_hop + num_hops);
  return all;
}

std::size_t checked_type(const HeldSlot& slot, int type) {
  base::require(type >= 0 && type < slot.header().num_types, "a type of the graph");
  return static_cast<std::size_t>(type);
}

std::size_t checked_relation(const HeldSlot& slot, int relation) {
  base::require(relation >= 0 && relation < slot.header().num_relations, "a relation of the graph");
  return static_cast<std::size_t>(relation);
}

// The bytes of int64 arrays of the parts before one.
template <typename Count>
uint64_t bytes_before(std::size_t part, Count count) {
  int64_t sum = 0;
  for (std::size_t before = 0; before < part; ++before) sum += count(before);
  return 8 * static_cast<uint64_t>(sum);
}

// Feature rows of the nodes of a type.
nb::object table_of(nb::handle self, int type) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const std::size_t at = checked_type(slot, type);
  const channel::Table& table = slot.header().tables[at];
  if (table.feature_dim == 0) return nb::none();
  slot.require_rows();
  const int64_t count = channel::nodes_of(slot.batch(), at);
  return view(self, {slot.batch().nodes[at].x_offset, {count, table.feature_dim}, dlpack_type(table.feature_dtype)});
}

// The part of row_index.
nb::object row_index_of(nb::handle self, int type) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const std::size_t at = checked_type(slot, type);
  const auto count = [&](std::size_t which) { return channel::nodes_of(slot.batch(), which); };
  return view(self, {slot.batch().row_index_offset + bytes_before(at, count), {count(at)}});
}

// The part of indptr.
nb::object offsets_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const std::size_t at = checked_relation(slot, relation);
  const auto types = channel::target_types_of(slot.header());
  const auto count = [&](std::size_t which) { return channel::num_offsets(slot.batch(), types.subspan(which, 1)); };
  return view(self, {slot.batch().indptr_offset + bytes_before(at, count), {count(at)}});
}

// Feature rows of the edges of a relation.
nb::object edge_table_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const std::size_t at = checked_relation(slot, relation);
  const channel::Table& table = slot.header().edge_tables[at];
  if (table.feature_dim == 0) return nb::none();
  const int64_t count = channel::edges_of(slot.batch(), at);
  const uint64_t offset = slot.batch().edges[at].edge_attr_offset;
  return view(self, {offset, {count, table.feature_dim}, dlpack_type(table.feature_dtype)});
}

// Columns of edge_index.
nb::object edges_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const std::size_t at = checked_relation(slot, relation);
  const Batch& batch = slot.batch();
  const auto count = [&](std::size_t which) { return channel::edges_of(batch, which); };
  const int64_t local = batch.last_hop_global ? batch.num_local_edges : count(at);  // of the only relation, or all
  return view(self, {batch.edge_index_offset + bytes_before(at, count),
                     {2, local},
                     nb::dtype<int64_t>(),
                     {batch.num_local_edges, 1}});
}

void bind_parts(nb::class_<HeldSlot>& slot_class) {
  slot_class
      .def_prop_ro(
          "nodes_of_types",
          [](const HeldSlot& slot) {
            return by_hop(slot.batch().nodes, slot.header().num_types, slot.batch().num_hops + 1);
          },
          "Nodes by hop of each node type. n_id has the nodes of one type after the other.")
      .def_prop_ro(
          "edges_of_relations",
          [](const HeldSlot& slot) {
            return by_hop(slot.batch().edges, slot.header().num_relations, slot.batch().num_hops);
          },
          "Edges by hop of each relation. edge_index, indptr and e_id have the edges of one relation after the other.")
      .def("table", &table_of, nb::arg("type"), "Feature rows of the nodes of a type; None where the type has none.")
      .def("row_index_of", &row_index_of, nb::arg("type"), "The part of row_index that is the type's, int64 [nodes].")
      .def("edge_table", &edge_table_of, nb::arg("relation"),
           "Feature rows of the edges of a relation; None where batches have none.")
      .def("offsets", &offsets_of, nb::arg("relation"),
           "The part of indptr that is the relation's, int64 [targets + 1].")
      .def("edges", &edges_of, nb::arg("relation"),
           "The columns of edge_index that are the relation's, int64 [2, edges].");
}

}  // namespace

void bind_arrays(nb::class_<HeldSlot>& slot_class) {
  bind_edge_arrays(slot_class);
  bind_node_arrays(slot_class);
  bind_parts(slot_class);
}

}  // namespace cohort::trainer
