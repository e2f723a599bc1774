// meta.json: versions 1 and 2 have one node type and one edge type without names, version 3 has several.
#include <algorithm>
#include <array>
#include <cctype>

#include "base/whole_file.h"
#include "dataset/dataset.h"
#include "dataset/json.h"
#include "dataset/reverses.h"

namespace cohort::dataset {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kTaskNames = {"classification", "regression", "multilabel"};

[[noreturn]] void refuse(const std::string& place, const std::string& expected, const std::string& found,
                         const std::string& hint = kImportAgain) {
  throw base::Error({place, expected, found, hint});
}

// An object of the file, and where it is.
struct Object {
  const Json& json;
  std::string place;

  std::string text(const char* key, const char* expected = "a string") const {
    return member<std::string>(json, place, key, expected, kImportAgain);
  }
  int64_t integer(const char* key, const char* expected = "an integer") const {
    return member<int64_t>(json, place, key, expected, kImportAgain);
  }

  const Json& at(const char* key) const {
    if (!json.is_object() || !json.contains(key)) refuse(place, base::format("the key \"{}\"", key), "none");
    return json[key];
  }

  Object object(const char* key) const {
    const Json& found = at(key);
    if (!found.is_object()) refuse(place, base::format("\"{}\": an object", key), shown(found));
    return {found, place + ": " + key};
  }

  const Json& list(const char* key, int64_t most) const {
    const Json& found = at(key);
    const auto size = static_cast<int64_t>(found.size());
    const std::string expected = base::format("\"{}\": a list of 1 to {}", key, most);
    if (!found.is_array()) refuse(place, expected, shown(found));
    if (size < 1 || size > most) refuse(place, expected, std::to_string(size));
    return found;
  }

  // An integer in [least, 2^48], the most that the arrays of a folder may hold.
  int64_t count(const char* key, int64_t least) const {
    constexpr int64_t kMost = int64_t{1} << 48;
    const int64_t value = integer(key);
    if (value >= least && value <= kMost) return value;
    refuse(place, base::format("\"{}\" in [{}, 2^48]", key, least), std::to_string(value));
  }

  // A plain file name: a data set does not reach outside its folder.
  std::string file(const char* key) const {
    std::string name = text(key, "a file name");
    const bool is_plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
    if (!is_plain) refuse(place, base::format("\"{}\": a file name without a folder", key), name);
    return name;
  }

  DType feature_dtype(const char* key) const {
    const std::string name = text(key);
    const auto dtype = dtype_named(name);
    if (dtype && is_feature_dtype(*dtype)) return *dtype;
    refuse(place, base::format("\"{}\": uint8, float16, bfloat16 or float32", key), name);
  }

  // A name of a node type or of a relation, which is a part of the names of files.
  void demand_name(const std::string& name) const {
    const bool fits = !name.empty() && name.size() <= kMaxTypeName && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
    });
    if (!fits) refuse(place, base::format("\"type\": names of 1 to {} letters, digits, _ and -", kMaxTypeName), name);
  }
};

// --- what all versions have ---

Json parse_meta(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  if (!std::filesystem::is_directory(folder)) {
    refuse(folder.string(), "the folder of a data set", std::filesystem::exists(folder) ? "a file" : "no such folder",
           "make one with: cohort dataset import | generate");
  }
  if (!std::filesystem::exists(path) && std::filesystem::is_regular_file(folder / "run.json")) {
    refuse(folder.string(), "the folder of a data set", "the folder of a run",
           base::format("this is a run: cohort train --resume {} continues it", folder.string()));
  }
  Json json = parse_json(path, "the description of a data set", kImportAgain);
  const Object meta{json, path.string()};
  const std::string format = meta.text("format");
  const int64_t version = meta.integer("version");
  if (format == kFormatName && version >= 1 && version <= kFormatVersion) return json;
  refuse(meta.place, base::format("format {} version 1 to {}", kFormatName, kFormatVersion),
         base::format("format {} version {}", format, version));
}

// The member `key`, the features of a node type or of a relation; without it there are none.
template <typename Type>
void read_features(const Object& object, const char* key, Type& out) {
  if (!object.json.contains(key)) return;
  const Object features = object.object(key);
  out.features = features.file("file");
  out.feature_dim = features.count("dim", 1);
  out.feature_dtype = features.feature_dtype("dtype");
}

void read_edge_files(const Object& object, EdgeType& out) {
  out.indptr = object.file("indptr");
  out.indices = object.file("indices");
  if (object.json.contains("edge_weights")) out.edge_weights = object.file("edge_weights");
  if (object.json.contains("edge_times")) out.edge_times = object.file("edge_times");
}

void read_target_files(const Object& object, Meta& meta) {
  meta.labels = object.file("labels");
  meta.splits = {object.file("train_ids"), object.file("val_ids"), object.file("test_ids")};
}

bool is_label_dtype(DType dtype, Task task) {
  if (task == Task::classification) return dtype == DType::int64;
  return dtype == DType::float32 || (task == Task::multilabel && dtype == DType::uint8);
}

// Reads task and label_dtype; num_classes is in `meta`.
void read_labels(const Object& object, Meta& meta) {
  const std::string task = object.text("task"), dtype = object.text("label_dtype");
  const auto named_task = task_named(task);
  const auto named_dtype = dtype_named(dtype);
  if (!named_task) refuse(object.place, "\"task\": classification, regression or multilabel", task);
  if (!named_dtype || !is_label_dtype(*named_dtype, *named_task)) {
    refuse(object.place,
           "\"label_dtype\": int64 for classification, float32 for regression, uint8 or float32 for multilabel",
           base::format("{} for {}", dtype, task));
  }
  meta.task = *named_task;
  meta.label_dtype = *named_dtype;
  if (meta.task == Task::classification || meta.num_classes >= 1) return;
  refuse(object.place, base::format("\"num_classes\" of at least 1 for {}", task), "0");
}

// --- versions 1 and 2 ---

Meta read_of_one_type(const Object& object) {
  const int64_t num_nodes = object.count("num_nodes", 1), num_edges = object.count("num_edges", 0);
  const int64_t feature_dim = object.count("feature_dim", 1);
  Meta meta = plain_meta(num_nodes, num_edges, feature_dim, object.feature_dtype("feature_dtype"));
  meta.num_classes = object.count("num_classes", 0);
  const Object files{object.at("files"), object.place};
  read_edge_files(files, meta.edge_types[0]);
  meta.node_types[0].features = files.file("features");
  if (files.json.contains("node_times")) meta.node_types[0].node_times = files.file("node_times");
  read_target_files(files, meta);
  if (object.integer("version") > 1) read_labels(object, meta);
  read_features(object, "edge_features", meta.edge_types[0]);
  return meta;
}

// --- version 3 ---

void read_node_types(const Object& object, Meta& meta) {
  const Json& list = object.list("nodes", kMaxNodeTypes);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Object of_type{list[i], base::format("{}: nodes[{}]", object.place, i)};
    NodeType type;
    type.name = of_type.text("type");
    of_type.demand_name(type.name);
    type.num_nodes = of_type.count("count", 1);
    read_features(of_type, "features", type);
    if (of_type.json.contains("node_times")) type.node_times = of_type.file("node_times");
    for (const NodeType& before : meta.node_types) {
      if (before.name == type.name) refuse(of_type.place, "a type that is named once", type.name + " again");
    }
    meta.num_nodes += type.num_nodes;
    meta.node_types.push_back(std::move(type));
  }
  if (meta.num_nodes <= kMaxTypedNodes) return;
  refuse(object.place, base::format("at most {} nodes of all types together", kMaxTypedNodes),
         std::to_string(meta.num_nodes), "leave nodes out: a data set of several types has fewer than 2^31");
}

// The number of the node type of this name.
int type_named(const Meta& meta, const std::string& name, const std::string& place) {
  const auto found = std::find_if(meta.node_types.begin(), meta.node_types.end(),
                                  [&](const NodeType& type) { return type.name == name; });
  if (found == meta.node_types.end()) refuse(place, "\"type\": the name of a type in \"nodes\"", name);
  return static_cast<int>(found - meta.node_types.begin());
}

EdgeType read_edge_type(const Object& object, const Meta& meta) {
  const Json& type = object.at("type");
  const bool three = type.is_array() && type.size() == 3 &&
                     std::all_of(type.begin(), type.end(), [](const Json& name) { return name.is_string(); });
  if (!three) refuse(object.place, "\"type\": a list of source type, name and target type", shown(type));
  EdgeType out;
  out.source = type[0].get<std::string>();
  out.name = type[1].get<std::string>();
  out.target = type[2].get<std::string>();
  object.demand_name(out.name);
  out.source_type = type_named(meta, out.source, object.place);
  out.target_type = type_named(meta, out.target, object.place);
  out.num_edges = object.count("count", 0);
  if (object.json.contains("position")) object.count("position", 0);  // Python alone reads it
  read_edge_files(object, out);
  read_features(object, "features", out);
  return out;
}

bool is_same(const EdgeType& a, const EdgeType& b) {
  return a.name == b.name && a.source_type == b.source_type && a.target_type == b.target_type;
}

// Members of a relation that speak of the relations around it.
void read_neighbours(const Object& object, Meta& meta, std::size_t relation) {
  EdgeType& edges = meta.edge_types[relation];
  for (std::size_t before = 0; before < relation; ++before) {
    if (!is_same(edges, meta.edge_types[before])) continue;
    refuse(object.place, "a relation that is named once",
           base::format("{}, {}, {} again", edges.source, edges.name, edges.target));
  }
  if (relation > 0 && edges.source_type < meta.edge_types[relation - 1].source_type) {
    refuse(object.place, "relations in the order of their source types",
           base::format("source type {} (nodes[{}]) after {} (nodes[{}])", edges.source, edges.source_type,
                        meta.edge_types[relation - 1].source, meta.edge_types[relation - 1].source_type));
  }
  if (!object.json.contains("reverse_of")) return;
  if (object.json["reverse_of"].is_null()) {
    edges.reverse_of = kNoReverse;
    return;
  }
  const int64_t of = object.integer("reverse_of", "an integer or null");
  const std::string expected = base::format(
      "\"reverse_of\": the number of a relation with edges from {} to {}, or null", edges.target, edges.source);
  if (of < 0 || of >= static_cast<int64_t>(meta.edge_types.size())) {
    refuse(object.place, expected, std::to_string(of));
  }
  const EdgeType& forward = meta.edge_types[static_cast<std::size_t>(of)];
  if (forward.source_type != edges.target_type || forward.target_type != edges.source_type) {
    refuse(object.place, expected, base::format("{}: edges from {} to {}", of, forward.source, forward.target));
  }
  edges.reverse_of = static_cast<int>(of);
}

Meta read_of_types(const Object& object) {
  Meta meta;
  meta.typed = true;
  read_node_types(object, meta);
  const Json& list = object.list("edges", kMaxEdgeTypes);
  const auto at = [&](std::size_t i) { return Object{list[i], base::format("{}: edges[{}]", object.place, i)}; };
  for (std::size_t i = 0; i < list.size(); ++i) {
    meta.edge_types.push_back(read_edge_type(at(i), meta));
    meta.num_edges += meta.edge_types.back().num_edges;
  }
  for (std::size_t i = 0; i < list.size(); ++i) read_neighbours(at(i), meta, i);
  const Object target = object.object("target");
  meta.target_type = type_named(meta, target.text("type"), target.place);
  meta.num_classes = target.count("num_classes", 0);
  read_labels(target, meta);
  read_target_files(target, meta);
  return meta;
}

}  // namespace

std::optional<Task> task_named(std::string_view name) {
  const auto found = std::ranges::find(kTaskNames, name);
  if (found == kTaskNames.end()) return std::nullopt;
  return static_cast<Task>(found - kTaskNames.begin());
}

const char* name_of(Task task) { return kTaskNames[static_cast<std::size_t>(task)]; }

Meta plain_meta(int64_t num_nodes, int64_t num_edges, int64_t feature_dim, DType feature_dtype) {
  Meta meta;
  meta.num_nodes = num_nodes;
  meta.num_edges = num_edges;
  meta.node_types = {{"node", num_nodes, feature_dim, feature_dtype, "features.npy"}};
  meta.edge_types = {{"node", "to", "node", 0, 0, num_edges, "indptr.npy", "indices.npy"}};
  return meta;
}

int64_t num_target_nodes(const Meta& meta) {
  return meta.node_types[static_cast<std::size_t>(meta.target_type)].num_nodes;
}

std::vector<int64_t> label_shape(const Meta& meta) {
  if (meta.task == Task::multilabel) return {num_target_nodes(meta), meta.num_classes};
  return {num_target_nodes(meta)};
}

Meta read_meta(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kMetaFile;
  const Json json = parse_meta(path);
  const Object object{json, path.string()};
  Meta meta = object.integer("version") == kTypedVersion ? read_of_types(object) : read_of_one_type(object);
  meta.name = object.text("name");
  return meta;
}

void write_meta(const std::filesystem::path& folder, const Meta& meta) {
  const NodeType& nodes = meta.node_types[0];
  const EdgeType& edges = meta.edge_types[0];
  nlohmann::ordered_json json = {{"format", kFormatName},
                                 {"version", 1},
                                 {"name", meta.name},
                                 {"num_nodes", meta.num_nodes},
                                 {"num_edges", meta.num_edges},
                                 {"feature_dim", nodes.feature_dim},
                                 {"feature_dtype", name_of(nodes.feature_dtype)},
                                 {"num_classes", meta.num_classes},
                                 {"files",
                                  {{"indptr", edges.indptr},
                                   {"indices", edges.indices},
                                   {"features", nodes.features},
                                   {"labels", meta.labels},
                                   {"train_ids", meta.splits[0]},
                                   {"val_ids", meta.splits[1]},
                                   {"test_ids", meta.splits[2]}}}};
  if (!edges.edge_weights.empty()) json["files"]["edge_weights"] = edges.edge_weights;
  if (edges.feature_dim > 0) {
    json["edge_features"] = {
        {"file", edges.features}, {"dim", edges.feature_dim}, {"dtype", name_of(edges.feature_dtype)}};
  }
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  base::write_whole(folder / kMetaFile, text + '\n');
}

}  // namespace cohort::dataset
