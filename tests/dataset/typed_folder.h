// A small data set of several types for tests: authors write papers, papers cite papers.
#pragma once

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "dataset/dataset.h"
#include "dataset/npy_header.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::dataset {

inline nlohmann::ordered_json members_of(const NodeType& type) {
  nlohmann::ordered_json out = {{"type", type.name}, {"count", type.num_nodes}};
  if (type.feature_dim == 0) return out;
  out["features"] = {{"file", type.features}, {"dim", type.feature_dim}, {"dtype", name_of(type.feature_dtype)}};
  return out;
}

inline nlohmann::ordered_json members_of(const EdgeType& type) {
  nlohmann::ordered_json out = {{"type", nlohmann::ordered_json::array({type.source, type.name, type.target})},
                                {"count", type.num_edges},
                                {"indptr", type.indptr},
                                {"indices", type.indices}};
  if (type.reverse_of >= 0) out["reverse_of"] = type.reverse_of;
  return out;
}

inline nlohmann::ordered_json typed_members(const Meta& meta) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array(), edges = nlohmann::ordered_json::array();
  for (const NodeType& type : meta.node_types) nodes.push_back(members_of(type));
  for (const EdgeType& type : meta.edge_types) edges.push_back(members_of(type));
  return {{"nodes", nodes},
          {"edges", edges},
          {"target",
           {{"type", meta.node_types.at(static_cast<std::size_t>(meta.target_type)).name},
            {"task", name_of(meta.task)},
            {"label_dtype", name_of(meta.label_dtype)},
            {"num_classes", meta.num_classes},
            {"labels", meta.labels},
            {"train_ids", meta.splits[0]},
            {"val_ids", meta.splits[1]},
            {"test_ids", meta.splits[2]}}}};
}

// Writes meta.json of several types, also one with mistakes. dataset/meta.py writes such.
inline void write_typed_meta(const std::filesystem::path& folder, const Meta& meta) {
  nlohmann::ordered_json json = {{"format", kFormatName}, {"version", kTypedVersion}, {"name", meta.name}};
  json.update(typed_members(meta));
  write_bytes(folder / kMetaFile, json.dump(2) + '\n');
}

// 3 authors without features; 4 papers with 2 features and 3 classes; 5 edges in two directions and 3 edges more.
class TypedFolder {
 public:
  explicit TypedFolder(std::filesystem::path path) : path_(std::move(path)) {
    std::filesystem::create_directory(path_);
    add<int64_t>("author.writes.paper.indptr.npy", DType::int64, {5}, {0, 2, 2, 4, 5});
    add<int32_t>("author.writes.paper.indices.npy", DType::int32, {5}, {0, 1, 0, 2, 2});
    add<int64_t>("paper.rev_writes.author.indptr.npy", DType::int64, {4}, {0, 2, 3, 5});
    add<int32_t>("paper.rev_writes.author.indices.npy", DType::int32, {5}, {0, 2, 0, 2, 3});
    add<int64_t>("paper.cites.paper.indptr.npy", DType::int64, {5}, {0, 1, 1, 3, 3});
    add<int64_t>("paper.cites.paper.indices.npy", DType::int64, {3}, {3, 0, 1});
    add<float>("paper.features.npy", DType::float32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    add<int64_t>("paper.labels.npy", DType::int64, {4}, {0, 2, -1, 1});
    add<int64_t>("paper.train_ids.npy", DType::int64, {2}, {0, 1});
    add<int64_t>("paper.val_ids.npy", DType::int64, {1}, {3});
    add<int64_t>("paper.test_ids.npy", DType::int64, {0}, {});
    write_typed_meta(path_, meta());
  }

  static Meta meta() {
    Meta out;
    out.name = "typed";
    out.typed = true;
    out.num_classes = 3;
    out.node_types = {{"author", 3, 0, DType::float32, ""}, {"paper", 4, 2, DType::float32, "paper.features.npy"}};
    out.edge_types = {{"author", "writes", "paper", 0, 1, 5, file(0, "indptr"), file(0, "indices"), -1},
                      {"paper", "rev_writes", "author", 1, 0, 5, file(1, "indptr"), file(1, "indices"), 0},
                      {"paper", "cites", "paper", 1, 1, 3, file(2, "indptr"), file(2, "indices"), -1}};
    out.target_type = 1;
    out.labels = "paper.labels.npy";
    out.splits = {"paper.train_ids.npy", "paper.val_ids.npy", "paper.test_ids.npy"};
    return out;
  }

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::pair<std::string, std::string>>& files() const { return files_; }  // names and bytes

 private:
  static std::string file(std::size_t relation, const std::string& array) {
    constexpr std::array<const char*, 3> kNames = {"author.writes.paper", "paper.rev_writes.author",
                                                   "paper.cites.paper"};
    return kNames[relation] + ("." + array) + ".npy";
  }

  template <typename T>
  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape, const std::vector<T>& values) {
    std::string bytes = format_npy_header(dtype, shape);
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    write_bytes(path_ / name, bytes);
    files_.emplace_back(name, std::move(bytes));
  }

  std::filesystem::path path_;
  std::vector<std::pair<std::string, std::string>> files_;
};

}  // namespace cohort::dataset
