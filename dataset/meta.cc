#include <array>

#include "base/whole_file.h"
#include "dataset/meta_json.h"
#include "dataset/typed_meta.h"

namespace cohort::dataset {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 3> kTaskNames = {"classification", "regression", "multilabel"};

Json parse_meta(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path.parent_path())) {
    throw base::Error({path.parent_path().string(), "the folder of a data set",
                       std::filesystem::exists(path.parent_path()) ? "a file" : "no such folder",
                       "make one with: cohort dataset import | generate"});
  }
  Json json = parse_json(path, "the description of a data set", kImportAgain);
  const std::string place = path.string();
  const auto format = meta_member<std::string>(json, place, "format", "a string");
  const auto version = meta_member<int64_t>(json, place, "version", "an integer");
  if (format == kFormatName && version >= 1 && version <= kFormatVersion) return json;
  throw base::Error({place, fmt::format("format {} version 1 to {}", kFormatName, kFormatVersion),
                     fmt::format("format {} version {}", format, version), kImportAgain});
}

Files files_member(const Json& json, const std::string& place) {
  const auto found = json.find("files");
  if (found == json.end()) throw base::Error({place, "the key \"files\"", "none", kImportAgain});
  Files files;
  files.indptr = file_member(*found, place, "indptr");
  files.indices = file_member(*found, place, "indices");
  files.features = file_member(*found, place, "features");
  files.labels = file_member(*found, place, "labels");
  if (found->contains("edge_weights")) files.edge_weights = file_member(*found, place, "edge_weights");
  if (found->contains("edge_times")) files.edge_times = file_member(*found, place, "edge_times");
  files.splits = {file_member(*found, place, "train_ids"), file_member(*found, place, "val_ids"),
                  file_member(*found, place, "test_ids")};
  return files;
}

bool is_label_dtype(DType dtype, Task task) {
  if (task == Task::classification) return dtype == DType::int64;
  return dtype == DType::float32 || (task == Task::multilabel && dtype == DType::uint8);
}

// Versions 1 and 2, but the name.
Meta read_plain_meta(const Json& json, const std::string& place) {
  Meta meta;
  meta.num_nodes = count_member(json, place, "num_nodes", 1);
  meta.num_edges = count_member(json, place, "num_edges", 0);
  meta.feature_dim = count_member(json, place, "feature_dim", 1);
  meta.feature_dtype = feature_dtype_member(json, place, "feature_dtype");
  meta.num_classes = count_member(json, place, "num_classes", 0);
  meta.files = files_member(json, place);
  if (meta_member<int64_t>(json, place, "version", "an integer") > 1) read_labels(json, place, meta);
  meta.node_types = {{"node", meta.num_nodes, meta.feature_dim, meta.feature_dtype, meta.files.features}};
  meta.edge_types = {{.source = "node",
                      .name = "to",
                      .target = "node",
                      .num_edges = meta.num_edges,
                      .indptr = meta.files.indptr,
                      .indices = meta.files.indices,
                      .edge_weights = meta.files.edge_weights,
                      .edge_times = meta.files.edge_times}};
  read_features(json, place, "edge_features", meta.edge_types[0]);
  return meta;
}

}  // namespace

int64_t count_member(const Json& json, const std::string& place, const char* key, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 48;  // what the arrays of a folder may hold
  const auto value = meta_member<int64_t>(json, place, key, "an integer");
  if (value < least || value > kMost) {
    throw base::Error({place, fmt::format("\"{}\" in [{}, 2^48]", key, least), std::to_string(value), kImportAgain});
  }
  return value;
}

const Json& object_member(const Json& json, const std::string& place, const char* key) {
  const auto found = json.find(key);
  if (found == json.end()) throw base::Error({place, fmt::format("the key \"{}\"", key), "none", kImportAgain});
  if (!found->is_object()) {
    throw base::Error({place, fmt::format("\"{}\": an object", key), shown(*found), kImportAgain});
  }
  return *found;
}

std::string file_member(const Json& json, const std::string& place, const char* key) {
  auto name = meta_member<std::string>(json, place, key, "a file name");
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw base::Error({place, fmt::format("\"{}\": a file name without a folder", key), name, kImportAgain});
  }
  return name;
}

DType feature_dtype_member(const Json& json, const std::string& place, const char* key) {
  const auto name = meta_member<std::string>(json, place, key, "a string");
  const auto dtype = dtype_named(name);
  if (!dtype || !is_feature_dtype(*dtype)) {
    throw base::Error({place, fmt::format("\"{}\": uint8, float16, bfloat16 or float32", key), name, kImportAgain});
  }
  return *dtype;
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
                       fmt::format("{} for {}", dtype, task), kImportAgain});
  }
  meta.task = *named_task;
  meta.label_dtype = *named_dtype;
  if (meta.task == Task::classification || meta.num_classes >= 1) return;
  throw base::Error({place, fmt::format("\"num_classes\" of at least 1 for {}", task), "0", kImportAgain});
}

std::optional<Task> task_named(std::string_view name) {
  for (std::size_t i = 0; i < kTaskNames.size(); ++i) {
    if (name == kTaskNames[i]) return static_cast<Task>(i);
  }
  return std::nullopt;
}

const char* name_of(Task task) { return kTaskNames[static_cast<std::size_t>(task)]; }

int64_t num_target_nodes(const Meta& meta) {
  return meta.typed ? meta.node_types[static_cast<std::size_t>(meta.target_type)].num_nodes : meta.num_nodes;
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
  nlohmann::ordered_json json = {{"format", kFormatName},
                                 {"version", 1},
                                 {"name", meta.name},
                                 {"num_nodes", meta.num_nodes},
                                 {"num_edges", meta.num_edges},
                                 {"feature_dim", meta.feature_dim},
                                 {"feature_dtype", name_of(meta.feature_dtype)},
                                 {"num_classes", meta.num_classes},
                                 {"files",
                                  {{"indptr", meta.files.indptr},
                                   {"indices", meta.files.indices},
                                   {"features", meta.files.features},
                                   {"labels", meta.files.labels},
                                   {"train_ids", meta.files.splits[0]},
                                   {"val_ids", meta.files.splits[1]},
                                   {"test_ids", meta.files.splits[2]}}}};
  if (!meta.files.edge_weights.empty()) json["files"]["edge_weights"] = meta.files.edge_weights;
  if (!meta.files.edge_times.empty()) json["files"]["edge_times"] = meta.files.edge_times;
  if (!meta.edge_types.empty() && meta.edge_types[0].feature_dim > 0) {
    const EdgeType& edges = meta.edge_types[0];
    json["edge_features"] = {
        {"file", edges.features}, {"dim", edges.feature_dim}, {"dtype", name_of(edges.feature_dtype)}};
  }
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  base::write_whole(folder / kMetaFile, text + '\n');
}

}  // namespace cohort::dataset
