// Nodes with arbitrary integers for names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <vector>

#include "dataset/sorting/key_sorter.h"

namespace cohort::dataset {

// Finds the node of an id. Does not own the arrays.
class IdMap {
 public:
  // ids int64 [V], strictly ascending; nodes int64 [V], the node of each, or empty when id i is node i.
  IdMap(std::span<const int64_t> ids, std::span<const int64_t> nodes);
  // -1: no such id.
  int64_t node(int64_t id) const;
  int64_t size() const noexcept { return static_cast<int64_t>(ids_.size()); }

 private:
  std::span<const int64_t> ids_, nodes_;
  int shift_ = 0;
  std::vector<int64_t> starts_;  // of each piece of the ids' range: its first place in ids
};

// Collects the distinct ids of a graph, more than memory holds.
class IdSorter {
 public:
  // `folder` gets a temporary file when there are more than memory holds.
  IdSorter(const std::filesystem::path& folder, std::size_t memory_bytes) : keys_(folder, memory_bytes, true) {}
  void add(const int64_t* ids, int64_t stride, int64_t count, const std::stop_token& stop);
  // Writes the ids, ascending, into an .npy file, int64 [V].
  void write(const std::filesystem::path& path, const std::stop_token& stop);

 private:
  KeySorter keys_;
};

}  // namespace cohort::dataset
