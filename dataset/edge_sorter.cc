#include "dataset/edge_sorter.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "dataset/csc.h"
#include "dataset/npy_writer.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

uint64_t key_of(int64_t source, int64_t destination) {
  return static_cast<uint64_t>(destination) << 32 | static_cast<uint64_t>(source);
}

// The columns of a graph, written edge by edge in the order of the keys.
template <typename Index>
class ColumnWriter {
 public:
  ColumnWriter(const std::filesystem::path& folder, const EdgeOptions& options)
      : options_(options),
        indptr_(folder / "indptr.npy", DType::int64),
        indices_(folder / "indices.npy", sizeof(Index) == 4 ? DType::int32 : DType::int64) {
    const int64_t zero = 0;
    indptr_.append(std::span<const int64_t>(&zero, 1));
  }

  void take(std::span<const uint64_t> keys) {
    for (const uint64_t key : keys) take(static_cast<int64_t>(key & 0xFFFFFFFFu), static_cast<int64_t>(key >> 32));
    flush();
  }

  void finish() {
    end_columns(options_.num_nodes);
    flush();
    indptr_.finish();
    indices_.finish();
  }

  int64_t num_edges() const { return num_edges_; }

 private:
  void take(int64_t source, int64_t destination) {
    if (destination > node_) end_columns(destination);
    if (options_.self_loops != SelfLoops::kKeep) {
      if (source == destination) return;
      if (source > destination) add_loop();
    }
    put(source);
  }

  // The loop of the column at hand, in its place among the sources, unless it is there.
  void add_loop() {
    if (options_.self_loops != SelfLoops::kAdd || has_loop_) return;
    has_loop_ = true;
    put(node_);
  }

  void put(int64_t source) {
    sources_.push_back(static_cast<Index>(source));
    ++num_edges_;
  }

  // Ends the columns of all nodes before `node`.
  void end_columns(int64_t node) {
    for (; node_ < node; ++node_) {
      add_loop();
      ends_.push_back(num_edges_);
      has_loop_ = false;
      if (ends_.size() + sources_.size() >= kBuffered) flush();
    }
  }

  void flush() {
    indices_.append(std::span<const Index>(sources_));
    indptr_.append(std::span<const int64_t>(ends_));
    sources_.clear();
    ends_.clear();
  }

  static constexpr std::size_t kBuffered = 1 << 17;
  EdgeOptions options_;
  NpyWriter indptr_, indices_;
  std::vector<Index> sources_;  // of the last edges
  std::vector<int64_t> ends_;   // of the last columns
  int64_t node_ = 0;            // whose column is at hand
  int64_t num_edges_ = 0;
  bool has_loop_ = false;
};

// Makes `value` this one when it `comes_before` what is there.
template <typename Before>
void raise_or_lower(std::atomic<int64_t>& value, int64_t candidate, Before comes_before) {
  int64_t seen = value.load();
  while (comes_before(candidate, seen) && !value.compare_exchange_weak(seen, candidate)) {
  }
}

}  // namespace

EdgeSorter::EdgeSorter(const std::filesystem::path& folder, std::size_t memory_bytes, EdgeOptions options)
    : options_(std::move(options)), keys_(folder, memory_bytes, options_.dedupe) {
  if (options_.num_nodes <= kMaxNodes) return;
  throw base::Error({options_.place, fmt::format("at most {} nodes", kMaxNodes), std::to_string(options_.num_nodes),
                     "make the data set in parts"});
}

void EdgeSorter::add(Ends sources, Ends destinations, int64_t count, const IdMap* ids, const std::stop_token& stop) {
  if (options_.transpose) std::swap(sources, destinations);
  const std::size_t copies = options_.reverse ? 2 : 1;
  while (count > 0) {
    const auto room = keys_.room(copies * static_cast<std::size_t>(count), copies, stop);
    const auto edges = static_cast<int64_t>(room.size() / copies);
    const int64_t bad = pack(sources, destinations, ids, room.first(copies * static_cast<std::size_t>(edges)), stop);
    if (bad >= 0) refuse(sources[bad], destinations[bad], edges_read_ + bad, ids);
    keys_.added(copies * static_cast<std::size_t>(edges));
    edges_read_ += edges;
    count -= edges;
    sources.first += edges * sources.stride;
    destinations.first += edges * destinations.stride;
  }
}

bool EdgeSorter::is_node(int64_t end, const IdMap* ids) const {
  const int64_t node = ids ? ids->node(end) : end;
  return node >= 0 && node < limit();
}

int64_t EdgeSorter::pack(Ends sources, Ends destinations, const IdMap* ids, std::span<uint64_t> keys,
                         const std::stop_token& stop) {
  const std::size_t copies = options_.reverse ? 2 : 1;
  const auto count = static_cast<int64_t>(keys.size() / copies);
  std::atomic<int64_t> first_bad{count}, largest{largest_};
  for_chunks(count, stop, [&](int64_t begin, int64_t end) {
    int64_t most = -1;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t source = ids ? ids->node(sources[i]) : sources[i];
      const int64_t destination = ids ? ids->node(destinations[i]) : destinations[i];
      if (std::min(source, destination) < 0 || std::max(source, destination) >= limit()) {
        raise_or_lower(first_bad, i, std::less<>());
        return;
      }
      most = std::max({most, source, destination});
      keys[copies * static_cast<std::size_t>(i)] = key_of(source, destination);
      if (copies == 2) keys[2 * static_cast<std::size_t>(i) + 1] = key_of(destination, source);
    }
    raise_or_lower(largest, most, std::greater<>());
  });
  largest_ = largest;
  return first_bad < count ? first_bad.load() : -1;
}

void EdgeSorter::refuse(int64_t source, int64_t destination, int64_t edge, const IdMap* ids) const {
  const bool in_source = !is_node(source, ids);
  const char* const end = in_source != options_.transpose ? "source" : "destination";
  const std::string place = fmt::format("{}: {} of edge {}", options_.place, end, edge);
  const std::string found = std::to_string(in_source ? source : destination);
  if (ids) {
    throw base::Error({place, "an id that the list of node ids has", found,
                       "add it to the list, or leave the list out: then every id of the edges is a node"});
  }
  throw base::Error({place, fmt::format("a node in [0, {})", limit()), found,
                     "nodes are numbered from 0 to the number of feature rows; --rename takes any integers as names"});
}

// Ids that only look like nodes would make columns by the billion.
void EdgeSorter::demand_plausible() const {
  constexpr int64_t kFew = 1 << 20, kNodesAnEdge = 64;
  if (largest_ < kFew + kNodesAnEdge * edges_read_) return;
  throw base::Error({options_.place, fmt::format("nodes numbered without large gaps, for {} edges", edges_read_),
                     fmt::format("node {}", largest_),
                     "--rename takes any integers as names; --nodes says how many nodes there really are"});
}

void EdgeSorter::write(const std::filesystem::path& folder, const std::stop_token& stop) {
  if (options_.num_nodes < 0) {
    demand_plausible();
    options_.num_nodes = largest_ + 1;
  }
  if (options_.num_nodes < kMaxInt32Nodes) {
    write_as<int32_t>(folder, stop);
  } else {
    write_as<int64_t>(folder, stop);
  }
}

template <typename Index>
void EdgeSorter::write_as(const std::filesystem::path& folder, const std::stop_token& stop) {
  ColumnWriter<Index> columns(folder, options_);
  keys_.merge(
      [&](std::span<const uint64_t> keys) {
        columns.take(keys);
        edges_written_ = columns.num_edges();
      },
      stop);
  columns.finish();
  edges_written_ = columns.num_edges();
}

}  // namespace cohort::dataset
