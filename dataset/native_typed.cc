#include "dataset/native_typed.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::dataset {
namespace {

DType dtype_of(const char* place, const std::string& name) {
  const auto dtype = dtype_named(name);
  if (!dtype) throw base::Error({place, "the name of a type of numbers", name, ""});
  return *dtype;
}

NodeType node_type(const std::string& name, int64_t num_nodes, int64_t feature_dim, const std::string& feature_dtype,
                   const std::string& features) {
  return {name, num_nodes, feature_dim, dtype_of("feature_dtype", feature_dtype), features};
}

EdgeType edge_type(const std::array<std::string, 3>& type, int64_t num_edges, const std::string& indptr,
                   const std::string& indices, int reverse_of) {
  return {.source = type[0],
          .name = type[1],
          .target = type[2],
          .num_edges = num_edges,
          .indptr = indptr,
          .indices = indices,
          .reverse_of = reverse_of};
}

void write_typed(const std::filesystem::path& folder, const std::string& name, const std::vector<NodeType>& nodes,
                 const std::vector<EdgeType>& edges, int target_type, const std::string& task,
                 const std::string& label_dtype, int64_t num_classes, const std::array<std::string, 4>& files) {
  const auto named_task = task_named(task);
  if (!named_task) throw base::Error({"task", "classification, regression or multilabel", task, ""});
  Meta meta;
  meta.typed = true;
  meta.name = name;
  meta.node_types = nodes;
  meta.edge_types = edges;
  meta.target_type = target_type;
  meta.task = *named_task;
  meta.label_dtype = dtype_of("label_dtype", label_dtype);
  meta.num_classes = num_classes;
  meta.files.labels = files[0];
  meta.files.splits = {files[1], files[2], files[3]};
  write_meta(folder, meta);
}

}  // namespace

nb::dict describe_types(const Dataset& data) {
  const Meta& meta = data.meta();
  nb::dict out;
  nb::list encoded, raw;
  for (int type = 0; type < static_cast<int>(meta.node_types.size()); ++type) {
    encoded.append(data.encoded_rows_of(type).string());  // empty when there are none
    raw.append(data.features_of(type).is_mapped());
  }
  out["encoded_rows"] = encoded;
  out["has_raw_features"] = raw;
  out["name"] = meta.name;
  out["nodes"] = meta.node_types;
  out["edges"] = meta.edge_types;
  out["target"] = meta.node_types[static_cast<std::size_t>(meta.target_type)].name;
  out["task"] = name_of(meta.task);
  out["num_classes"] = meta.num_classes;
  out["labels"] = meta.files.labels;
  out["splits"] = meta.files.splits;
  return out;
}

void register_types(nb::module_& m) {
  nb::class_<NodeType>(m, "NodeType", "The nodes of one type; feature_dim 0: no features.")
      .def(nb::new_(&node_type), "name"_a, "num_nodes"_a, "feature_dim"_a, "feature_dtype"_a, "features"_a)
      .def_ro("name", &NodeType::name)
      .def_ro("num_nodes", &NodeType::num_nodes)
      .def_ro("feature_dim", &NodeType::feature_dim)
      .def_prop_ro("feature_dtype", [](const NodeType& type) { return name_of(type.feature_dtype); })
      .def_ro("features", &NodeType::features, "The file.");
  nb::class_<EdgeType>(m, "EdgeType", "The edges of one relation: (source type, name, target type).")
      .def(nb::new_(&edge_type), "type"_a, "num_edges"_a, "indptr"_a, "indices"_a, "reverse_of"_a)
      .def_prop_ro("type", [](const EdgeType& type) { return nb::make_tuple(type.source, type.name, type.target); })
      .def_ro("num_edges", &EdgeType::num_edges)
      .def_ro("indptr", &EdgeType::indptr, "The file.")
      .def_ro("indices", &EdgeType::indices, "The file.")
      .def_ro("reverse_of", &EdgeType::reverse_of, "The number of a relation, or -1.");
  m.def("write_typed_meta", &write_typed, "folder"_a, nb::kw_only(), "name"_a, "nodes"_a, "edges"_a, "target_type"_a,
        "task"_a, "label_dtype"_a, "num_classes"_a, "files"_a,
        "Writes meta.json; files are those of labels and of the three splits.");
}

}  // namespace cohort::dataset
