#include "dataset/dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "dataset/encoded.h"

namespace cohort::dataset {
namespace {

// What another folder of the same name does not have; zeros: there is none.
std::pair<dev_t, ino_t> identity_of(const std::filesystem::path& folder) {
  struct stat status {};
  if (stat(folder.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
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
void demand_ends(const MappedArray& array, int64_t num_edges, const char* key) {
  const auto indptr = array.as<int64_t>();
  if (indptr.front() != 0) {
    throw base::Error({array.place() + "[0]", "0", std::to_string(indptr.front()), kImportAgain});
  }
  if (indptr.back() != num_edges) {
    throw base::Error({base::format("{}[{}]", array.place(), indptr.size() - 1),
                       base::format("{} ({})", num_edges, key), std::to_string(indptr.back()), kImportAgain});
  }
}

// Features whose raw copy was dropped when the nodes were renumbered are in another data set.
void demand_not_moved(const std::filesystem::path& folder, const std::filesystem::path& file) {
  const std::filesystem::path renumbered = folder / kPreparedFolder;
  if (std::filesystem::exists(file) || !std::filesystem::exists(renumbered / kMetaFile)) return;
  throw base::Error({file.string(), "a .npy array", "none: its rows were renumbered, and the raw copy was dropped",
                     "use the data set " + renumbered.string()});
}

// The raw rows of a node type or of a relation; not mapped where there are none, or where encoded ones are the only
// ones.
template <typename Type>
MappedArray map_features(const std::filesystem::path& folder, const Type& type, int64_t num_rows,
                         const std::filesystem::path& encoded) {
  const std::filesystem::path file = folder / type.features;
  if (type.feature_dim == 0 || (!encoded.empty() && !std::filesystem::exists(file))) return {};
  demand_not_moved(folder, file);
  return map_npy(file, {{type.feature_dtype}, {num_rows, type.feature_dim}});
}

}  // namespace

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

void Dataset::find_rows(Rows rows) {
  encoded_rows_.of_nodes.resize(meta_.node_types.size());
  encoded_rows_.of_edges.resize(meta_.edge_types.size());
  const auto has_raw = [this](const auto& type) {
    return type.feature_dim == 0 || std::filesystem::exists(folder_ / type.features);
  };
  const bool all_raw = std::ranges::all_of(meta_.node_types, has_raw) && std::ranges::all_of(meta_.edge_types, has_raw);
  if (rows == Rows::kAny || !all_raw) encoded_rows_ = find_encoded_rows(folder_, meta_);
}

void Dataset::map_types(std::vector<Problem>& problems) {
  edges_.resize(meta_.edge_types.size());
  features_.resize(meta_.node_types.size());
  node_times_.resize(meta_.node_types.size());
  for (std::size_t i = 0; i < meta_.edge_types.size(); ++i) {
    const EdgeType& type = meta_.edge_types[i];
    EdgeArrays& edges = edges_[i];
    const int64_t num_targets = meta_.node_types[static_cast<std::size_t>(type.target_type)].num_nodes;
    attempt(problems, [&] {
      MappedArray indptr = map_npy(folder_ / type.indptr, {{DType::int64}, {num_targets + 1}});
      demand_ends(indptr, type.num_edges, meta_.typed ? "count" : "num_edges");
      edges.indptr = std::move(indptr);
    });
    attempt(problems, [&] {
      edges.indices = map_npy(folder_ / type.indices, {{DType::int32, DType::int64}, {type.num_edges}});
    });
    attempt(problems, [&] { edges.features = map_features(folder_, type, type.num_edges, encoded_rows_.of_edges[i]); });
    const auto map_beside = [&](const std::string& file, DType dtype, MappedArray& array) {
      if (!file.empty()) attempt(problems, [&] { array = map_npy(folder_ / file, {{dtype}, {type.num_edges}}); });
    };
    map_beside(type.edge_weights, DType::float32, edges.weights);
    map_beside(type.edge_times, DType::int64, edges.times);
  }
  for (std::size_t i = 0; i < meta_.node_types.size(); ++i) {
    const NodeType& type = meta_.node_types[i];
    attempt(problems, [&] { features_[i] = map_features(folder_, type, type.num_nodes, encoded_rows_.of_nodes[i]); });
    if (type.node_times.empty()) continue;
    attempt(problems, [&] { node_times_[i] = map_npy(folder_ / type.node_times, {{DType::int64}, {type.num_nodes}}); });
  }
}

Dataset Dataset::open(const std::filesystem::path& folder, Rows rows) {
  std::vector<Problem> problems;
  Dataset dataset = open(folder, problems, rows);
  if (!problems.empty()) throw base::Error(problems.front());
  return dataset;
}

Dataset Dataset::open(const std::filesystem::path& folder, std::vector<Problem>& problems, Rows rows) {
  while (true) {
    const auto before = identity_of(folder);
    std::vector<Problem> seen;
    Dataset out = open_once(folder, seen, rows);
    if (identity_of(folder) != before) continue;  // replaced meanwhile: files of two data sets are none
    problems.insert(problems.end(), seen.begin(), seen.end());
    return out;
  }
}

Dataset Dataset::open_once(const std::filesystem::path& folder, std::vector<Problem>& problems, Rows rows) {
  Dataset out;
  out.folder_ = folder.lexically_normal();
  if (!out.folder_.has_filename() && out.folder_.has_relative_path()) out.folder_ = out.folder_.parent_path();
  attempt(problems, [&] { out.meta_ = read_meta(out.folder_); });
  if (!problems.empty()) return out;
  const Meta& meta = out.meta_;
  const std::filesystem::path& at = out.folder_;
  attempt(problems, [&] { out.find_rows(rows); });
  out.map_types(problems);
  attempt(problems, [&] { out.labels_ = map_npy(at / meta.labels, {{meta.label_dtype}, label_shape(meta)}); });
  for (std::size_t i = 0; i < out.splits_.size(); ++i) {
    attempt(problems, [&] { out.splits_[i] = map_npy(at / meta.splits[i], {{DType::int64}, {-1}}); });
  }
  return out;
}

}  // namespace cohort::dataset
