#include "dataset/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/whole_file.h"
#include "dataset/encoded.h"
#include "dataset/json.h"

namespace cohort::dataset {
namespace {

using Json = nlohmann::json;

constexpr const char* kImportAgain = "import or generate the data set again";

Json parse_meta(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path.parent_path())) {
    throw base::Error({path.parent_path().string(), "the folder of a data set",
                       std::filesystem::exists(path.parent_path()) ? "a file" : "no such folder",
                       "make one with: cohort dataset import | generate"});
  }
  Json json = parse_json(path, "the description of a data set", kImportAgain);
  const std::string place = path.string();
  const auto format = member<std::string>(json, place, "format", "a string", kImportAgain);
  const auto version = member<int64_t>(json, place, "version", "an integer", kImportAgain);
  if (format == kFormatName && version >= 1 && version <= kFormatVersion) return json;
  throw base::Error({place, fmt::format("format {} version 1 to {}", kFormatName, kFormatVersion),
                     fmt::format("format {} version {}", format, version), kImportAgain});
}

template <typename T>
T member(const Json& json, const std::string& place, const char* key, const char* expected) {
  return dataset::member<T>(json, place, key, expected, kImportAgain);
}

int64_t count_member(const Json& json, const std::string& place, const char* key, int64_t least) {
  constexpr int64_t kMost = int64_t{1} << 48;  // what the arrays of a folder may hold
  const auto value = member<int64_t>(json, place, key, "an integer");
  if (value < least || value > kMost) {
    throw base::Error({place, fmt::format("\"{}\" in [{}, 2^48]", key, least), std::to_string(value), kImportAgain});
  }
  return value;
}

// A plain file name: a data set does not reach outside its folder.
std::string file_member(const Json& json, const std::string& place, const char* key) {
  auto name = member<std::string>(json, place, key, "a file name");
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
    throw base::Error({place, fmt::format("\"{}\": a file name without a folder", key), name, kImportAgain});
  }
  return name;
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
  files.splits = {file_member(*found, place, "train_ids"), file_member(*found, place, "val_ids"),
                  file_member(*found, place, "test_ids")};
  return files;
}

DType feature_dtype_member(const Json& json, const std::string& place) {
  const auto name = member<std::string>(json, place, "feature_dtype", "a string");
  const auto dtype = dtype_named(name);
  if (!dtype || !is_feature_dtype(*dtype)) {
    throw base::Error({place, "\"feature_dtype\": uint8, float16, bfloat16 or float32", name, kImportAgain});
  }
  return *dtype;
}

bool is_label_dtype(DType dtype, Task task) {
  if (task == Task::classification) return dtype == DType::int64;
  return dtype == DType::float32 || (task == Task::multilabel && dtype == DType::uint8);
}

// The members that version 2 adds.
void read_labels(const Json& json, const std::string& place, Meta& meta) {
  const auto task = member<std::string>(json, place, "task", "a string");
  const auto dtype = member<std::string>(json, place, "label_dtype", "a string");
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

// Runs one step of opening; what it throws becomes a problem.
template <typename Step>
void attempt(std::vector<Problem>& problems, Step step) {
  try {
    step();
  } catch (const base::Error& error) {
    problems.push_back(error.parts());
  }
}

// indptr must start at 0 and end at the number of edges.
void demand_ends(const MappedArray& array, int64_t num_edges) {
  const auto indptr = array.as<int64_t>();
  if (indptr.front() != 0) {
    throw base::Error({array.place() + "[0]", "0", std::to_string(indptr.front()), kImportAgain});
  }
  if (indptr.back() != num_edges) {
    throw base::Error({fmt::format("{}[{}]", array.place(), indptr.size() - 1),
                       fmt::format("{} (num_edges)", num_edges), std::to_string(indptr.back()), kImportAgain});
  }
}

// Features whose raw copy was dropped when the nodes were renumbered are in another data set.
void demand_not_moved(const std::filesystem::path& folder, const std::filesystem::path& file) {
  const std::filesystem::path renumbered = folder / kPreparedFolder;
  if (std::filesystem::exists(file) || !std::filesystem::exists(renumbered / kMetaFile)) return;
  throw base::Error({file.string(), "a .npy array", "none: its rows were renumbered, and the raw copy was dropped",
                     "use the data set " + renumbered.string()});
}

constexpr std::array<const char*, 3> kTaskNames = {"classification", "regression", "multilabel"};

}  // namespace

std::optional<Task> task_named(std::string_view name) {
  for (std::size_t i = 0; i < kTaskNames.size(); ++i) {
    if (name == kTaskNames[i]) return static_cast<Task>(i);
  }
  return std::nullopt;
}

const char* name_of(Task task) { return kTaskNames[static_cast<std::size_t>(task)]; }

std::vector<int64_t> label_shape(const Meta& meta) {
  if (meta.task == Task::multilabel) return {meta.num_nodes, meta.num_classes};
  return {meta.num_nodes};
}

std::size_t Dataset::label_row_bytes() const {
  const auto width = static_cast<std::size_t>(meta_.task == Task::multilabel ? meta_.num_classes : 1);
  return width * size_of(meta_.label_dtype);
}

bool Dataset::has_label(int64_t node) const {
  const std::byte* row = labels_.data() + static_cast<std::size_t>(node) * label_row_bytes();
  const auto width = label_row_bytes() / size_of(meta_.label_dtype);
  if (meta_.label_dtype == DType::int64) return *reinterpret_cast<const int64_t*>(row) >= 0;
  if (meta_.label_dtype == DType::uint8) {
    return std::any_of(row, row + width, [](std::byte label) { return label != std::byte{kUnknownLabel}; });
  }
  const auto* const labels = reinterpret_cast<const float*>(row);
  return std::any_of(labels, labels + width, [](float label) { return !std::isnan(label); });
}

Meta read_meta(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kMetaFile;
  const std::string place = path.string();
  const Json json = parse_meta(path);
  Meta meta;
  meta.name = member<std::string>(json, place, "name", "a string");
  meta.num_nodes = count_member(json, place, "num_nodes", 1);
  meta.num_edges = count_member(json, place, "num_edges", 0);
  meta.feature_dim = count_member(json, place, "feature_dim", 1);
  meta.feature_dtype = feature_dtype_member(json, place);
  meta.num_classes = count_member(json, place, "num_classes", 0);
  meta.files = files_member(json, place);
  if (member<int64_t>(json, place, "version", "an integer") > 1) read_labels(json, place, meta);
  return meta;
}

void write_meta(const std::filesystem::path& folder, const Meta& meta) {
  const bool plain = meta.task == Task::classification;
  nlohmann::ordered_json json = {{"format", kFormatName},
                                 {"version", plain ? 1 : kFormatVersion},
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
  if (!plain) {
    json["task"] = name_of(meta.task);
    json["label_dtype"] = name_of(meta.label_dtype);
  }
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  base::write_whole(folder / kMetaFile, text + '\n');
}

Dataset Dataset::open(const std::filesystem::path& folder, Rows rows) {
  std::vector<Problem> problems;
  Dataset dataset = open(folder, problems, rows);
  if (!problems.empty()) throw base::Error(problems.front());
  return dataset;
}

Dataset Dataset::open(const std::filesystem::path& folder, std::vector<Problem>& problems, Rows rows) {
  Dataset out;
  out.folder_ = folder.lexically_normal();
  if (!out.folder_.has_filename() && out.folder_.has_relative_path()) out.folder_ = out.folder_.parent_path();
  attempt(problems, [&] { out.meta_ = read_meta(out.folder_); });
  if (!problems.empty()) return out;
  const Meta& meta = out.meta_;
  const std::filesystem::path& at = out.folder_;
  attempt(problems, [&] {
    MappedArray indptr = map_npy(at / meta.files.indptr, {{DType::int64}, {meta.num_nodes + 1}});
    demand_ends(indptr, meta.num_edges);
    out.indptr_ = std::move(indptr);
  });
  attempt(problems, [&] {
    out.indices_ = map_npy(at / meta.files.indices, {{DType::int32, DType::int64}, {meta.num_edges}});
  });
  if (!meta.files.edge_weights.empty()) {
    attempt(problems, [&] {
      out.edge_weights_ = map_npy(at / meta.files.edge_weights, {{DType::float32}, {meta.num_edges}});
    });
  }
  const std::filesystem::path file = at / meta.files.features;
  const bool has_raw = std::filesystem::exists(file);
  if (!has_raw || rows == Rows::kAny) attempt(problems, [&] { out.encoded_rows_ = find_encoded_rows(at); });
  attempt(problems, [&] {
    if (!out.encoded_rows_.empty() && !has_raw) return;
    demand_not_moved(at, file);
    out.features_ = map_npy(file, {{meta.feature_dtype}, {meta.num_nodes, meta.feature_dim}});
  });
  attempt(problems, [&] { out.labels_ = map_npy(at / meta.files.labels, {{meta.label_dtype}, label_shape(meta)}); });
  for (std::size_t i = 0; i < out.splits_.size(); ++i) {
    attempt(problems, [&] { out.splits_[i] = map_npy(at / meta.files.splits[i], {{DType::int64}, {-1}}); });
  }
  return out;
}

}  // namespace cohort::dataset
