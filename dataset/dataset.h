// A data set on disk, mapped into memory: FORMAT.md says what the folder holds.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "dataset/dtype.h"
#include "dataset/npy.h"

namespace cohort::dataset {

inline constexpr const char* kMetaFile = "meta.json";
inline constexpr const char* kEdgeWeightsFile = "edge_weights.npy";  // as Cohort writes it
inline constexpr const char* kFormatName = "cohort-dataset";
inline constexpr int64_t kFormatVersion = 2;  // of data sets whose labels are no classes; others are of version 1

// What there is to learn of a node: one of several classes, a number, or for each of several labels whether it has it.
enum class Task { classification, regression, multilabel };

inline constexpr uint8_t kUnknownLabel = 255;  // among uint8 labels; among floats NaN

std::optional<Task> task_named(std::string_view name);
const char* name_of(Task task);

// Names of the arrays' files inside the folder.
struct Files {
  std::string indptr = "indptr.npy";
  std::string indices = "indices.npy";
  std::string features = "features.npy";
  std::string labels = "labels.npy";
  std::string edge_weights;  // empty: edges have none
  std::array<std::string, 3> splits = {"train_ids.npy", "val_ids.npy", "test_ids.npy"};
};

// What meta.json says.
struct Meta {
  std::string name;
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t feature_dim = 0;
  DType feature_dtype = DType::float32;
  int64_t num_classes = 0;  // regression: 1; multilabel: labels a node may have
  Task task = Task::classification;
  DType label_dtype = DType::int64;
  Files files;
};

// The shape of labels, for as many nodes: [V], multilabel [V, num_classes].
std::vector<int64_t> label_shape(const Meta& meta);

// One thing wrong with a data set, in the words of an error.
using Problem = base::Error::Parts;

// Reads <folder>/meta.json; throws base::Error when it is missing or not ours.
Meta read_meta(const std::filesystem::path& folder);

// Writes <folder>/meta.json.
void write_meta(const std::filesystem::path& folder, const Meta& meta);

// Which feature rows to look at: kRaw leaves encoded ones alone where there are raw ones.
enum class Rows { kAny, kRaw };

// The mapped arrays. Opening makes the cheap checks: existence, dtype, shape, size, and the two ends of indptr.
class Dataset {
 public:
  // Throws base::Error for the first thing wrong.
  static Dataset open(const std::filesystem::path& folder, Rows rows = Rows::kAny);
  // Opens what can be opened and appends what is wrong to `problems`; arrays with a problem stay unmapped.
  static Dataset open(const std::filesystem::path& folder, std::vector<Problem>& problems, Rows rows = Rows::kAny);

  const Meta& meta() const noexcept { return meta_; }
  const std::filesystem::path& folder() const noexcept { return folder_; }
  const std::string& name() const noexcept { return meta_.name; }
  int64_t num_nodes() const noexcept { return meta_.num_nodes; }
  int64_t num_edges() const noexcept { return meta_.num_edges; }
  int64_t feature_dim() const noexcept { return meta_.feature_dim; }
  DType feature_dtype() const noexcept { return meta_.feature_dtype; }
  int64_t num_classes() const noexcept { return meta_.num_classes; }
  std::size_t feature_row_bytes() const { return static_cast<std::size_t>(feature_dim()) * size_of(feature_dtype()); }

  std::span<const int64_t> indptr() const { return indptr_.as<int64_t>(); }   // int64 [V + 1]
  const MappedArray& indices() const noexcept { return indices_; }            // int32 or int64 [E]
  const MappedArray& edge_weights() const noexcept { return edge_weights_; }  // float32 [E]; not mapped: none
  const MappedArray& features() const noexcept { return features_; }          // feature_dtype [V, D], see below
  std::span<const int64_t> labels() const { return labels_.as<int64_t>(); }   // classification: int64 [V], -1: none
  std::size_t label_row_bytes() const;
  // Whether a node has a label: a class from 0, a number, or an answer for one label at least.
  bool has_label(int64_t node) const;
  std::span<const int64_t> train_ids() const { return splits_[0].as<int64_t>(); }  // int64 [any]
  std::span<const int64_t> val_ids() const { return splits_[1].as<int64_t>(); }    // int64 [any]
  std::span<const int64_t> test_ids() const { return splits_[2].as<int64_t>(); }   // int64 [any]

  // The file of encoded rows (cohort dataset prepare), empty when there is none; features() may be unmapped when there
  // is one, as the raw copy may have been dropped.
  const std::filesystem::path& encoded_rows() const noexcept { return encoded_rows_; }
  bool has_raw_features() const noexcept { return features_.is_mapped(); }

  // The arrays as files, for checks: one is not mapped when opening it was a problem.
  const MappedArray& indptr_array() const noexcept { return indptr_; }
  const MappedArray& labels_array() const noexcept { return labels_; }  // label_dtype, of label_shape()
  const std::array<MappedArray, 3>& split_arrays() const noexcept { return splits_; }

 private:
  std::filesystem::path folder_, encoded_rows_;
  Meta meta_;
  MappedArray indptr_, indices_, edge_weights_, features_, labels_;
  std::array<MappedArray, 3> splits_;  // train, val, test
};

}  // namespace cohort::dataset
