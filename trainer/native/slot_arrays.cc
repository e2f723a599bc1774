#include "trainer/native/module.h"

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
    return Array{batch.edge_index_offset, {2, channel::num_local_edges(batch)}};
  });
  bind_array(
      slot_class, "source_node",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.source_node_offset, {batch.last_hop_global ? batch.num_edges : 0}};
      },
      "int64 [num_edges], the node of each edge's source, where last_hop_global.");
  bind_array(slot_class, "indptr", [](const HeldSlot& slot, const Batch& batch) {
    const auto count = [&] { return batch.num_nodes - batch.nodes_per_hop[batch.num_hops] + 1; };
    return Array{batch.indptr_offset, {slot.typed() ? slot.num_offsets() : count()}};
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
  bind_array(
      slot_class, "edge_attr",
      [](const HeldSlot& slot, const Batch& batch) -> std::optional<Array> {
        const channel::Table& table = slot.header().edge_tables[0];
        if (slot.typed() || table.feature_dim == 0) return std::nullopt;
        return Array{batch.edge_attr_offset, {batch.num_edges, table.feature_dim}, dlpack_type(table.feature_dtype)};
      },
      "Of a graph of one type: feature rows of the edges, as edge_index has them; None where batches have none.");
}

void bind_node_arrays(nb::class_<HeldSlot>& slot_class) {
  bind_array(slot_class, "x", [](const HeldSlot& slot, const Batch& batch) {
    slot.require_rows();
    const channel::ChannelHeader& header = slot.header();
    return Array{batch.x_offset, {batch.num_nodes, header.feature_dim}, dlpack_type(header.feature_dtype)};
  });
  bind_array(slot_class, "n_id", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.n_id_offset, {batch.num_nodes}};
  });
  bind_array(
      slot_class, "place",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.place_offset, {batch.num_nodes}};
      },
      "int64 [num_nodes], the row of each node in the table or the pool, unless slots have rows.");
  bind_array(
      slot_class, "tree",
      [](const HeldSlot&, const Batch& batch) -> std::optional<Array> {
        if (!batch.disjoint) return std::nullopt;
        return Array{batch.tree_offset, {batch.num_nodes}};
      },
      "int64 [num_nodes], the seed, by its number in the batch, whose tree each node is in; None: seeds share nodes.");
  bind_array(slot_class, "y", [](const HeldSlot& slot, const Batch& batch) {
    const auto dtype = dlpack_type(slot.header().label_dtype);
    const int64_t of_all_types = batch.labels_of_seeds ? batch.num_seeds : batch.num_nodes;
    const int64_t count = slot.typed() ? slot.typed()->num_labels : of_all_types, width = slot.header().label_width;
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
template <std::size_t kWidth>
std::vector<std::vector<int64_t>> by_hop(const int64_t (*sizes)[kWidth], int count, int num_hops) {
  std::vector<std::vector<int64_t>> all;
  for (int which = 0; which < count; ++which) all.push_back(first_of(sizes[which], num_hops));
  return all;
}

// Feature rows of the nodes of a type.
nb::object table_of(nb::handle self, int type) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  base::require(type >= 0 && type < slot.header().num_types, "a type of the graph");
  const channel::Table& table = slot.header().tables[type];
  if (table.feature_dim == 0) return nb::none();
  slot.require_rows();
  const int64_t count = channel::nodes_of(slot.batch(), typed, type);
  return view(self, {typed.x_offset[type], {count, table.feature_dim}, dlpack_type(table.feature_dtype)});
}

// The part of place.
nb::object places_of(nb::handle self, int type) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  const Batch& batch = slot.batch();
  base::require(type >= 0 && type < slot.header().num_types, "a type of the graph");
  int64_t first = 0;
  for (int before = 0; before < type; ++before) first += channel::nodes_of(batch, typed, before);
  return view(self, {batch.place_offset + 8 * static_cast<uint64_t>(first), {channel::nodes_of(batch, typed, type)}});
}

// The part of indptr.
nb::object offsets_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  base::require(relation >= 0 && relation < slot.header().num_relations, "a relation of the graph");
  const auto count = [&](int which) { return channel::targets_of(slot.header(), slot.batch(), typed, which) + 1; };
  int64_t first = 0;
  for (int before = 0; before < relation; ++before) first += count(before);
  return view(self, {slot.batch().indptr_offset + 8 * static_cast<uint64_t>(first), {count(relation)}});
}

// Feature rows of the edges of a relation.
nb::object edge_table_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  base::require(relation >= 0 && relation < slot.header().num_relations, "a relation of the graph");
  const channel::Table& table = slot.header().edge_tables[relation];
  if (table.feature_dim == 0) return nb::none();
  const int64_t count = channel::edges_of(slot.batch(), typed, relation);
  return view(self, {typed.edge_attr_offset[relation], {count, table.feature_dim}, dlpack_type(table.feature_dtype)});
}

// Columns of edge_index.
nb::object edges_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  const Batch& batch = slot.batch();
  base::require(relation >= 0 && relation < slot.header().num_relations, "a relation of the graph");
  const auto count = [&](int which) { return channel::edges_of(batch, typed, which); };
  uint64_t first = 0;
  for (int before = 0; before < relation; ++before) first += static_cast<uint64_t>(count(before));
  return view(self,
              {batch.edge_index_offset + 8 * first, {2, count(relation)}, nb::dtype<int64_t>(), {batch.num_edges, 1}});
}

void bind_typed_arrays(nb::class_<HeldSlot>& slot_class) {
  slot_class
      .def_prop_ro(
          "nodes_of_types",
          [](const HeldSlot& slot) {
            return by_hop(slot.require_types().nodes_per_hop, slot.header().num_types, slot.batch().num_hops + 1);
          },
          "Of a typed graph: num_sampled_nodes of each node type. n_id has the nodes of one type after the other.")
      .def_prop_ro(
          "edges_of_relations",
          [](const HeldSlot& slot) {
            return by_hop(slot.require_types().edges_per_hop, slot.header().num_relations, slot.batch().num_hops);
          },
          "Of a typed graph: num_sampled_edges of each relation. edge_index, indptr and e_id have the edges of one "
          "relation after the other.")
      .def("table", &table_of, nb::arg("type"),
           "Of a typed graph: feature rows of the nodes of a type; None where the type has none.")
      .def("places", &places_of, nb::arg("type"),
           "Of a typed graph: the part of place that is the type's, int64 [nodes].")
      .def("edge_table", &edge_table_of, nb::arg("relation"),
           "Of a typed graph: feature rows of the edges of a relation; None where batches have none.")
      .def("offsets", &offsets_of, nb::arg("relation"),
           "Of a typed graph: the part of indptr that is the relation's, int64 [targets + 1].")
      .def("edges", &edges_of, nb::arg("relation"),
           "Of a typed graph: the columns of edge_index that are the relation's, int64 [2, edges].");
}

}  // namespace

void bind_arrays(nb::class_<HeldSlot>& slot_class) {
  bind_edge_arrays(slot_class);
  bind_node_arrays(slot_class);
  bind_typed_arrays(slot_class);
}

}  // namespace cohort::trainer
