// Members of meta.json that all versions read in the same way.
#pragma once

#include <cstdint>
#include <string>

#include "base/format.h"
#include "dataset/dataset.h"
#include "dataset/json.h"

namespace cohort::dataset {

inline constexpr const char* kImportAgain = "import or generate the data set again";

template <typename T>
T meta_member(const nlohmann::json& json, const std::string& place, const char* key, const char* expected) {
  return member<T>(json, place, key, expected, kImportAgain);
}

// An integer in [least, 2^48], the most that the arrays of a folder may hold.
int64_t count_member(const nlohmann::json& json, const std::string& place, const char* key, int64_t least);

// A plain file name: a data set does not reach outside its folder.
std::string file_member(const nlohmann::json& json, const std::string& place, const char* key);

// A type that features may have.
DType feature_dtype_member(const nlohmann::json& json, const std::string& place, const char* key);

// The member `key`: an object.
const nlohmann::json& object_member(const nlohmann::json& json, const std::string& place, const char* key);

// Reads the member `key`, the features of a node type or of a relation; without it there are none.
template <typename Type>
void read_features(const nlohmann::json& json, const std::string& place, const char* key, Type& out) {
  if (!json.contains(key)) return;
  const nlohmann::json& features = object_member(json, place, key);
  const std::string at = place + ": " + key;
  out.features = file_member(features, at, "file");
  out.feature_dim = count_member(features, at, "dim", 1);
  out.feature_dtype = feature_dtype_member(features, at, "dtype");
}

// Reads the names of a relation's files.
void read_edge_files(const nlohmann::json& json, const std::string& place, EdgeType& out);

// Reads the names of the files of labels and splits.
void read_target_files(const nlohmann::json& json, const std::string& place, Meta& meta);

// Reads task, label_dtype; num_classes is in `meta`.
void read_labels(const nlohmann::json& json, const std::string& place, Meta& meta);

// What meta.json of several node types and relations (version 3) says, except the name; throws base::Error for the
// first thing wrong.
Meta read_typed_meta(const nlohmann::json& json, const std::string& place);

}  // namespace cohort::dataset
