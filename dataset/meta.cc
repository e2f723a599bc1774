#include <array>

#include "base/whole_file.h"
#include "dataset/meta_json.h"

namespace cohort::dataset {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kTaskNames = {"classification", "regression", "multilabel"};

Json parse_meta(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  if (!std::filesystem::is_directory(folder)) {
    throw base::Error({folder.string(), "the folder of a data set",
                       std::filesystem::exists(folder) ? "a file" : "no such folder",
                       "make one with: cohort dataset import | generate"});
  }
  if (!std::filesystem::exists(path) && std::filesystem::is_regular_file(folder / "run.json")) {
    throw base::Error({folder.string(), "the folder of a data set", "the folder of a run",
                       base::format("this is a run: cohort train --resume {} continues it", folder.string())});
  }
  Json json = parse_json(path, "the description of a data set", kImportAgain);
  const std::string place = path.string();
  const auto format = meta_member<std::string>(json, place, "format", "a string");
  const auto version = meta_member<int64_t>(json, place, "version", "an integer");
  if (format == kFormatName && version >= 1 && version <= kFormatVersion) return json;
  throw base::Error({place, base::format("format {} version 1 to {}", kFormatName, kFormatVersion),
                     base::format("format {} version {}", format, version), kImportAgain});
}

bool is_label_dtype(DType dtype, Task task) {
  if (task == Task::classification) return dtype == DType::int64;
  return dtype == DType::float32 || (task == Task::multilabel && dtype == DType::uint8);
}

// Versions 1 and 2, but the name.
Meta read_plain_meta(const Json& json, const std::string& place) {
  const int64_t num_nodes = count_member(json, place, "num_nodes", 1);
  const int64_t num_edges = count_member(json, place, "num_edges", 0);
  const int64_t feature_dim = count_member(json, place, "feature_dim", 1);
  Meta meta = plain_meta(num_nodes, num_edges, feature_dim, feature_dtype_member(json, place, "feature_dtype"));
  meta.num_classes = count_member(json, place, "num_classes", 0);
  const auto files = json.find("files");
  if (files == json.end()) throw base::Error({place, "the key \"files\"", "none", kImportAgain});
  read_edge_files(*files, place, meta.edge_types[0]);
  meta.node_types[0].features = file_member(*files, place, "features");
  read_target_files(*files, place, meta);
  if (meta_member<int64_t>(json, place, "version", "an integer") > 1) read_labels(json, place, meta);
  read_features(json, place, "edge_features", meta.edge_types[0]);
  return meta;
}

}  // namespace

int64_t count_member(const Json& json, const std::string& place, const char* key, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 48;  // what the arrays of a folder may hold
  const auto value = meta_member<int64_t>(json, place, key, "an integer");
  if (value < least || value > kMost) {
    throw base::Error({place, base::format("\"{}\" in [{}, 2^48]", key, least), std::to_string(value), kImportAgain});
  }
  return value;
}

const Json& object_member(const Json& json, const std::string& place, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw base::Error({place, base::format("the key \"{}\"", key), "none", kImportAgain});
  if (!found->is_object()) {
    throw base::Error({place, base::format("\"{}\": an object", key), shown(*found), kImportAgain});
  }
  return *found;
}

std::string file_member(const Json& json, const std::string& place, const char* key) {
  auto name = meta_member<std::string>(json, place, key, "a file name");
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw base::Error({place, base::format("\"{}\": a file name without a folder", key), name, kImportAgain});
  }
  return name;
}

DType feature_dtype_member(const Json& json, const std::string& place, const char* key) {
  const auto name = meta_member<std::string>(json, place, key, "a string");
  const auto dtype = dtype_named(name);
  if (!dtype || !is_feature_dtype(*dtype)) {
    throw base::Error({place, base::format("\"{}\": uint8, float16, bfloat16 or float32", key), name, kImportAgain});
  }
  return *dtype;
}

void read_edge_files(const Json& json, const std::string& place, EdgeType& out) {
  out.indptr = file_member(json, place, "indptr");
  out.indices = file_member(json, place, "indices");
  if (json.contains("edge_weights")) out.edge_weights = file_member(json, place, "edge_weights");
  if (json.contains("edge_times")) out.edge_times = file_member(json, place, "edge_times");
}

void read_target_files(const Json& json, const std::string& place, Meta& meta) {
  meta.labels = file_member(json, place, "labels");
  meta.splits = {file_member(json, place, "train_ids"), file_member(json, place, "val_ids"),
                 file_member(json, place, "test_ids")};
}

void read_labels(const Json& json, const std::string& place, Meta& meta) {
  const auto task = meta_member<std::string>(json, place, "task", "a string");
  const auto dtype = meta_member<std::string>(json, place, "label_dtype", "a string");
  const auto named_task = task_named(task);
  const auto named_dtype = dtype_named(dtype);
  if (!named_task) throw base::Error({place, "\"task\": classification, regression or multilabel", task, kImportAgain});
  if (!named_dtype || !is_label_dtype(*named_dtype, *named_task)) {
    throw base::Error({place,
                       "\"label_dtype\": int64 for classification, float32 for regression, uint8 or float32 for "
                       "multilabel",
                       base::format("{} for {}", dtype, task), kImportAgain});
  }
  meta.task = *named_task;
  meta.label_dtype = *named_dtype;
  if (meta.task == Task::classification || meta.num_classes >= 1) return;
  throw base::Error({place, base::format("\"num_classes\" of at least 1 for {}", task), "0", kImportAgain});
}

std::optional<Task> task_named(std::string_view name) {
  for (std::size_t i = 0; i < kTaskNames.size(); ++i) {
    if (name == kTaskNames[i]) return static_cast<Task>(i);
  }
  return std::nullopt;
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
  const std::string place = path.string();
  const Json json = parse_meta(path);
  const bool typed = meta_member<int64_t>(json, place, "version", "an integer") == kTypedVersion;
  Meta meta = typed ? read_typed_meta(json, place) : read_plain_meta(json, place);
  meta.name = meta_member<std::string>(json, place, "name", "a string");
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
