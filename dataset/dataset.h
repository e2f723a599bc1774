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
inline constexpr const char* kEdgeWeightsFile = "edge_weights.npy";    // as Cohort writes it
inline constexpr const char* kEdgeFeaturesFile = "edge_features.npy";  // the same
inline constexpr const char* kImportAgain = "import or generate the data set again";
inline constexpr const char* kFormatName = "cohort-dataset";
inline constexpr int64_t kFormatVersion = 3;  // the newest: 1 is for classes, 2 for other labels
inline constexpr int64_t kTypedVersion = 3;   // several node types and relations

inline constexpr int64_t kMaxNodeTypes = 32, kMaxEdgeTypes = 128;
inline constexpr int64_t kMaxTypedNodes = (int64_t{1} << 31) - 1;  // of all types together
inline constexpr std::size_t kMaxTypeName = 64;                    // characters

// What there is to learn of a node: one of several classes, a number, or for each of several labels whether it has it.
enum class Task { classification, regression, multilabel };

inline constexpr uint8_t kUnknownLabel = 255;  // among uint8 labels; among floats NaN

std::optional<Task> task_named(std::string_view name);
const char* name_of(Task task);

// The nodes of one type, numbered from 0.
struct NodeType {
  std::string name;
  int64_t num_nodes = 0;
  int64_t feature_dim = 0;  // 0: no features
  DType feature_dtype = DType::float32;
  std::string features;         // the file, empty without features
  std::string node_times = {};  // the same: since when each node exists
};

// The edges of one relation: from nodes of the source type to nodes of the target type.
struct EdgeType {
  std::string source, name, target;
  int source_type = 0, target_type = 0;  // numbers of node types
  int64_t num_edges = 0;
  std::string indptr, indices;    // files
  int reverse_of = -1;            // the relation that it is the reverse of, or a value of dataset/reverses.h
  std::string edge_weights = {};  // the file; empty: its edges have none
  std::string edge_times = {};    // the same
  int64_t feature_dim = 0;        // of its edges; 0: they have no features
  DType feature_dtype = DType::float32;
  std::string features = {};  // the file, empty without features
};

// What meta.json says. Versions 1 and 2 have one node type "node" and one relation ("node", "to", "node"). num_nodes
// and num_edges are totals; labels and splits are those of the target type.
struct Meta {
  std::string name;
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_classes = 0;  // regression: 1; multilabel: labels a node may have
  Task task = Task::classification;
  DType label_dtype = DType::int64;
  std::string labels = "labels.npy";  // the file
  std::array<std::string, 3> splits = {"train_ids.npy", "val_ids.npy", "test_ids.npy"};
  std::vector<NodeType> node_types = {};  // in any order, which numbers them
  std::vector<EdgeType> edge_types = {};  // ascending by source_type
  int target_type = 0;                    // the type of the nodes that have labels
  bool typed = false;                     // version 3
};

// Of one node type and its relation, in files that are named as Cohort writes them.
Meta plain_meta(int64_t num_nodes, int64_t num_edges, int64_t feature_dim, DType feature_dtype);

// Nodes of the target type.
int64_t num_target_nodes(const Meta& meta);

// The shape of labels, for as many nodes: [V], multilabel [V, num_classes].
std::vector<int64_t> label_shape(const Meta& meta);

// One thing wrong with a data set, in the words of an error.
using Problem = base::Error::Parts;

// Reads <folder>/meta.json; throws base::Error when it is missing or not ours.
Meta read_meta(const std::filesystem::path& folder);

// Writes <folder>/meta.json of one node type with classes. (Python writes that of imports: dataset/meta.py.)
void write_meta(const std::filesystem::path& folder, const Meta& meta);

// The files of encoded rows of each node type and of each relation; empty for those that have none.
struct EncodedFiles {
  std::vector<std::filesystem::path> of_nodes = std::vector<std::filesystem::path>(1);
  std::vector<std::filesystem::path> of_edges = std::vector<std::filesystem::path>(1);
};

// Which feature rows to look at: kRaw leaves encoded ones alone where there are raw ones.
enum class Rows { kAny, kRaw };

// The mapped arrays. Opening makes the cheap checks: existence, dtype, shape, size, and the two ends of indptr.
class Dataset {
 public:
  // Throws base::Error for the first thing wrong.
  static Dataset open(const std::filesystem::path& folder, Rows rows = Rows::kAny);
  // Opens what can be opened and appends what is wrong to `problems`; arrays with a problem stay unmapped. Opens again
  // where the folder was replaced meanwhile.
  static Dataset open(const std::filesystem::path& folder, std::vector<Problem>& problems, Rows rows = Rows::kAny);

  const Meta& meta() const noexcept { return meta_; }
  const std::filesystem::path& folder() const noexcept { return folder_; }
  int64_t num_nodes() const noexcept { return meta_.num_nodes; }
  int64_t num_edges() const noexcept { return meta_.num_edges; }
  int64_t num_classes() const noexcept { return meta_.num_classes; }

  // Several node types and relations, version 3 of the format. The arrays of each, with the numbers of meta(); data
  // sets of one type have type 0 and relation 0.
  bool is_typed() const noexcept { return meta_.typed; }
  const MappedArray& features_of(int type) const { return features_.at(index_of(type)); }  // unmapped: none, or encoded
  const MappedArray& node_times_of(int type) const { return node_times_.at(index_of(type)); }  // int64; unmapped: none
  // The file of encoded rows (cohort dataset prepare); empty: none. features_of() may be unmapped when there is one, as
  // the raw copy may have been dropped.
  const std::filesystem::path& encoded_rows_of(int type) const { return encoded_rows_.of_nodes.at(index_of(type)); }
  std::span<const int64_t> indptr_of(int relation) const { return indptr_array(relation).as<int64_t>(); }
  const MappedArray& indices_of(int relation) const { return edges_.at(index_of(relation)).indices; }
  // float32, in the order of the indices; not mapped: none.
  const MappedArray& edge_weights_of(int relation) const { return edges_.at(index_of(relation)).weights; }
  // int64, in the order of the indices, ascending in each list; not mapped: none.
  const MappedArray& edge_times_of(int relation) const { return edges_.at(index_of(relation)).times; }
  // Rows of the edges, in the order of the indices; as features_of() and encoded_rows_of().
  const MappedArray& edge_features_of(int relation) const { return edges_.at(index_of(relation)).features; }
  const std::filesystem::path& encoded_edge_rows_of(int relation) const {
    return encoded_rows_.of_edges.at(index_of(relation));
  }

  // Of the target type.
  int64_t num_target_nodes() const { return dataset::num_target_nodes(meta_); }
  std::span<const int64_t> labels() const { return labels_.as<int64_t>(); }  // classification: int64 [V], -1: none
  std::size_t label_row_bytes() const;
  // Whether a node has a label: a class from 0, a number, or an answer for one label at least.
  bool has_label(int64_t node) const;
  std::span<const int64_t> train_ids() const { return splits_[0].as<int64_t>(); }  // int64 [any]
  std::span<const int64_t> val_ids() const { return splits_[1].as<int64_t>(); }    // int64 [any]
  std::span<const int64_t> test_ids() const { return splits_[2].as<int64_t>(); }   // int64 [any]

  // The arrays as files, for checks: one is not mapped when opening it was a problem.
  const MappedArray& indptr_array(int relation) const { return edges_.at(index_of(relation)).indptr; }
  const MappedArray& labels_array() const noexcept { return labels_; }  // label_dtype, of label_shape()
  const std::array<MappedArray, 3>& split_arrays() const noexcept { return splits_; }

 private:
  static std::size_t index_of(int number) { return static_cast<std::size_t>(number); }
  static Dataset open_once(const std::filesystem::path& folder, std::vector<Problem>& problems, Rows rows);
  void find_rows(Rows rows);
  void map_types(std::vector<Problem>& problems);

  std::filesystem::path folder_;
  Meta meta_;
  struct EdgeArrays {
    MappedArray indptr, indices, features, weights, times;
  };
  std::vector<EdgeArrays> edges_ = std::vector<EdgeArrays>(1);       // of each relation
  std::vector<MappedArray> features_ = std::vector<MappedArray>(1);  // of each node type
  std::vector<MappedArray> node_times_ = std::vector<MappedArray>(1);
  EncodedFiles encoded_rows_;
  MappedArray labels_;
  std::array<MappedArray, 3> splits_;  // train, val, test
};

}  // namespace cohort::dataset
