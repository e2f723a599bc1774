#include "dataset/dataset.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

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
  std::ifstream file(path);
  if (!file) throw base::Error({path.string(), "the description of a data set", "no such file", kImportAgain});
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw base::Error({path.string(), "JSON", error.what(), kImportAgain});
  }
}

// A member of the given JSON type, or an error that names it.
template <typename T>
T member(const Json& json, const std::string& place, const char* key, const char* expected) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (!json.is_object() || found == json.end()) {
    throw base::Error({place, fmt::format("the key \"{}\"", key), "none", kImportAgain});
  }
  const bool fits = std::is_same_v<T, std::string> ? found->is_string() : found->is_number_integer();
  if (!fits) throw base::Error({place, fmt::format("\"{}\": {}", key, expected), found->dump(), kImportAgain});
  return found->get<T>();
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

void demand_format(const Json& json, const std::string& place) {
  const auto format = member<std::string>(json, place, "format", "a string");
  const auto version = member<int64_t>(json, place, "version", "an integer");
  if (format != kFormatName || version != kFormatVersion) {
    throw base::Error({place, fmt::format("format {} version {}", kFormatName, kFormatVersion),
                       fmt::format("format {} version {}", format, version), kImportAgain});
  }
}

Files files_member(const Json& json, const std::string& place) {
  const auto found = json.find("files");
  if (found == json.end()) throw base::Error({place, "the key \"files\"", "none", kImportAgain});
  Files files;
  files.indptr = file_member(*found, place, "indptr");
  files.indices = file_member(*found, place, "indices");
  files.features = file_member(*found, place, "features");
  files.labels = file_member(*found, place, "labels");
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

}  // namespace

Meta read_meta(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kMetaFile;
  const std::string place = path.string();
  const Json json = parse_meta(path);
  demand_format(json, place);
  Meta meta;
  meta.name = member<std::string>(json, place, "name", "a string");
  meta.num_nodes = count_member(json, place, "num_nodes", 1);
  meta.num_edges = count_member(json, place, "num_edges", 0);
  meta.feature_dim = count_member(json, place, "feature_dim", 1);
  meta.feature_dtype = feature_dtype_member(json, place);
  meta.num_classes = count_member(json, place, "num_classes", 0);
  meta.files = files_member(json, place);
  return meta;
}

void write_meta(const std::filesystem::path& folder, const Meta& meta) {
  const nlohmann::ordered_json json = {{"format", kFormatName},
                                       {"version", kFormatVersion},
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
  const std::filesystem::path path = folder / kMetaFile;
  std::ofstream file(path);
  file << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
  if (!file.flush()) throw base::Error({path.string(), "a file that can be written", "a failed write", ""});
}

Dataset Dataset::open(const std::filesystem::path& folder) {
  std::vector<Problem> problems;
  Dataset dataset = open(folder, problems);
  if (!problems.empty()) throw base::Error(problems.front());
  return dataset;
}

Dataset Dataset::open(const std::filesystem::path& folder, std::vector<Problem>& problems) {
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
  attempt(problems, [&] {
    out.features_ = map_npy(at / meta.files.features, {{meta.feature_dtype}, {meta.num_nodes, meta.feature_dim}});
  });
  attempt(problems, [&] { out.labels_ = map_npy(at / meta.files.labels, {{DType::int64}, {meta.num_nodes}}); });
  for (std::size_t i = 0; i < out.splits_.size(); ++i) {
    attempt(problems, [&] { out.splits_[i] = map_npy(at / meta.files.splits[i], {{DType::int64}, {-1}}); });
  }
  return out;
}

}  // namespace cohort::dataset
