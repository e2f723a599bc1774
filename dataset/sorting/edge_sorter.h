// From edges in any order, more than memory holds, to the in-neighbours of each node on disk (CSC).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <variant>

#include "dataset/sorting/id_map.h"
#include "dataset/sorting/key_sorter.h"

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
  // Each edge has a weight, which its reverse shares. Equal edges that come once get the sum of their weights, and so
  // does a loop that kAdd puts in the place of others; one that was not there gets 1. Sums are those of double, by
  // ascending bits.
  bool weighted = false;
  // Each edge has a time, which its reverse shares; it has no weight then. Columns ascend by time, then by source.
  bool timed = false;
  // Each edge has the number of its place among those that were added, which its reverse shares; it has no weight or
  // time then, and stays beside equal ones. Columns ascend by source, then by number.
  bool numbered = false;
  // Of edges between two types of nodes: how many sources there are, and the types of both ends; num_nodes are the
  // destinations then. -1: the ends have one type.
  int64_t num_sources = -1;
  std::string source_type = {}, target_type = {};
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
  // `folder` gets a temporary file of 8 bytes an edge, 16 with weights, times or numbers, when there are more edges
  // than memory holds.
  EdgeSorter(const std::filesystem::path& folder, std::size_t memory_bytes, EdgeOptions options);

  // Takes `count` edges, and weights or times [count] where edges have them. With `ids` their ends are ids, else nodes.
  // Throws base::Error for an end that is no node.
  void add(Ends sources, Ends destinations, int64_t count, const IdMap* ids, const std::stop_token& stop,
           const float* weights = nullptr, const int64_t* times = nullptr);

  // Writes <folder>/indptr.npy, <folder>/indices.npy and, with weights, times or numbers, <folder>/edge_weights.npy,
  // <folder>/edge_times.npy or <folder>/edge_numbers.npy. The nodes' number is known then.
  void write(const std::filesystem::path& folder, const std::stop_token& stop);

  // Asks whoever waits for add() in another thread to end it.
  void stop() noexcept { stopped_ = true; }
  bool stopped() const noexcept { return stopped_; }

  int64_t num_nodes() const noexcept { return options_.num_nodes; }
  int64_t edges_read() const noexcept { return edges_read_; }        // edges that add() took
  int64_t edges_written() const noexcept { return edges_written_; }  // grows while write() runs, from any thread

 private:
  template <typename Index>
  void write_as(const std::filesystem::path& folder, const std::stop_token& stop);
  // Some edges on their way into keys.
  struct Piece {
    Ends sources, destinations;
    const float* weights;
    const int64_t* times;
    const IdMap* ids;
    int64_t number;  // of the first edge, where edges have numbers; else -1
    template <typename Key>
    Key key(int64_t source, int64_t destination, int64_t edge) const;
  };
  template <typename Key>
  void add_to(BasicKeySorter<Key>& keys, Piece edges, int64_t count, const std::stop_token& stop);
  // Fills `keys` with those of as many edges as there is room for; returns the first edge with a bad end, or -1.
  template <typename Key>
  int64_t pack(const Piece& edges, std::span<Key> keys, const std::stop_token& stop);
  [[noreturn]] void refuse(int64_t source, int64_t destination, int64_t edge, const IdMap* ids) const;
  int64_t limit() const noexcept { return options_.num_nodes >= 0 ? options_.num_nodes : kMaxNodes; }
  int64_t source_limit() const noexcept { return options_.num_sources >= 0 ? options_.num_sources : limit(); }
  void demand_plausible() const;

  EdgeOptions options_;
  std::variant<KeySorter, WideKeySorter> keys_;
  int64_t edges_read_ = 0;
  int64_t largest_ = -1;  // node
  std::atomic<int64_t> edges_written_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace cohort::dataset
