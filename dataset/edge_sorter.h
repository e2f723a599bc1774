// From edges in any order, more than memory holds, to the in-neighbours of each node on disk (CSC).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>

#include "dataset/id_map.h"
#include "dataset/key_sorter.h"

namespace cohort::dataset {

// What becomes of edges from a node to itself: kAdd gives every node exactly one.
enum class SelfLoops { kKeep, kRemove, kAdd };

struct EdgeOptions {
  std::string place;       // where the edges come from, for messages
  int64_t num_nodes = -1;  // -1: as many as the largest node asks for
  bool transpose = false;  // edges point the other way
  bool reverse = false;    // the reverse of each edge, too
  bool dedupe = false;     // equal edges once
  SelfLoops self_loops = SelfLoops::kKeep;
};

// Nodes are below 2^32: an edge is one key, destination before source.
inline constexpr int64_t kMaxNodes = int64_t{1} << 32;

// One end of each of some edges: int64, `stride` elements apart.
struct Ends {
  const int64_t* first;
  int64_t stride;
  int64_t operator[](int64_t i) const { return first[i * stride]; }
};

class EdgeSorter {
 public:
  // `folder` gets a temporary file of 8 bytes an edge, when there are more edges than memory holds.
  EdgeSorter(const std::filesystem::path& folder, std::size_t memory_bytes, EdgeOptions options);

  // Takes `count` edges. With `ids` their ends are ids, else nodes. Throws base::Error for an end that is no node.
  void add(Ends sources, Ends destinations, int64_t count, const IdMap* ids, const std::stop_token& stop);

  // Writes <folder>/indptr.npy and <folder>/indices.npy. The nodes' number is known then.
  void write(const std::filesystem::path& folder, const std::stop_token& stop);

  int64_t num_nodes() const noexcept { return options_.num_nodes; }
  int64_t edges_read() const noexcept { return edges_read_; }        // edges that add() took
  int64_t edges_written() const noexcept { return edges_written_; }  // grows while write() runs, from any thread

 private:
  template <typename Index>
  void write_as(const std::filesystem::path& folder, const std::stop_token& stop);
  // Fills `keys` with those of as many edges as there is room for; returns the first edge with a bad end, or -1.
  int64_t pack(Ends sources, Ends destinations, const IdMap* ids, std::span<uint64_t> keys,
               const std::stop_token& stop);
  [[noreturn]] void refuse(int64_t source, int64_t destination, int64_t edge, const IdMap* ids) const;
  bool is_node(int64_t end, const IdMap* ids) const;
  int64_t limit() const noexcept { return options_.num_nodes >= 0 ? options_.num_nodes : kMaxNodes; }
  void demand_plausible() const;

  EdgeOptions options_;
  KeySorter keys_;
  int64_t edges_read_ = 0;
  int64_t largest_ = -1;  // node
  std::atomic<int64_t> edges_written_{0};
};

}  // namespace cohort::dataset
