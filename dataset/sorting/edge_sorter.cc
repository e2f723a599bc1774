#include "dataset/sorting/edge_sorter.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "dataset/csc.h"
#include "dataset/npy_writer.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

uint64_t key_of(int64_t source, int64_t destination) {
  return static_cast<uint64_t>(destination) << 32 | static_cast<uint64_t>(source);
}

// Of both ends and a weight.
WideKey key_of(int64_t source, int64_t destination, float weight) {
  return static_cast<WideKey>(key_of(source, destination)) << 32 | std::bit_cast<uint32_t>(weight);
}

constexpr int64_t kPackedAtOnce = 1 << 17;        // edges: fewer are not worth a second thread
constexpr uint64_t kSignBit = uint64_t{1} << 63;  // flipped, bits of times ascend as times do

// Of both ends and a time between them.
WideKey key_of(int64_t source, int64_t destination, int64_t time) {
  const uint64_t ascending = static_cast<uint64_t>(time) ^ kSignBit;
  return static_cast<WideKey>(destination) << 96 | static_cast<WideKey>(ascending) << 32 |
         static_cast<uint64_t>(source);
}

// Of both ends and the number of the edge.
WideKey numbered_key_of(int64_t source, int64_t destination, int64_t number) {
  return static_cast<WideKey>(key_of(source, destination)) << 64 | static_cast<uint64_t>(number);
}

std::variant<KeySorter, WideKeySorter> sorter_for(const std::filesystem::path& folder, std::size_t memory_bytes,
                                                  const EdgeOptions& options) {
  using Sorter = std::variant<KeySorter, WideKeySorter>;
  if (options.timed) return Sorter(std::in_place_type<WideKeySorter>, folder, memory_bytes, options.dedupe);
  // Equal edges of different weights are different keys: ColumnWriter adds them up.
  if (options.weighted || options.numbered)
    return Sorter(std::in_place_type<WideKeySorter>, folder, memory_bytes, false);
  return Sorter(std::in_place_type<KeySorter>, folder, memory_bytes, options.dedupe);
}

// The columns of a graph, written edge by edge in the order of the keys.
template <typename Index>
class ColumnWriter {
 public:
  ColumnWriter(const std::filesystem::path& folder, const EdgeOptions& options)
      : options_(options),
        indptr_(folder / "indptr.npy", DType::int64),
        indices_(folder / "indices.npy", sizeof(Index) == 4 ? DType::int32 : DType::int64) {
    if (options_.weighted) weights_file_.emplace(folder / "edge_weights.npy", DType::float32);
    if (options_.timed) numbers_file_.emplace(folder / "edge_times.npy", DType::int64);
    if (options_.numbered) numbers_file_.emplace(folder / "edge_numbers.npy", DType::int64);
    const int64_t zero = 0;
    indptr_.append(std::span<const int64_t>(&zero, 1));
  }

  void take(std::span<const uint64_t> keys) {
    for (const uint64_t key : keys) take_edge(key, 0);
    flush();
  }

  void take(std::span<const WideKey> keys) {
    options_.weighted ? take_weighted(keys) : take_numbered(keys);
    flush();
  }

  void finish() {
    take_last();
    end_columns(options_.num_nodes);
    flush();
    indptr_.finish();
    indices_.finish();
    if (weights_file_) weights_file_->finish();
    if (numbers_file_) numbers_file_->finish();
  }

  int64_t num_edges() const { return num_edges_; }

 private:
  struct WeightedEdge {
    uint64_t ends;
    double weight;
  };

  // With times, or numbers.
  void take_numbered(std::span<const WideKey> keys) {
    for (const WideKey key : keys) {
      if (options_.numbered) {
        number_ = static_cast<int64_t>(key);
        take_edge(static_cast<uint64_t>(key >> 64), 0);
        continue;
      }
      number_ = static_cast<int64_t>(static_cast<uint64_t>(key >> 32) ^ kSignBit);
      take_edge(key_of(static_cast<int64_t>(key & 0xFFFFFFFFu), static_cast<int64_t>(key >> 96)), 0);
    }
  }

  void take_weighted(std::span<const WideKey> keys) {
    for (const WideKey key : keys) {
      const auto ends = static_cast<uint64_t>(key >> 32);
      const double weight = std::bit_cast<float>(static_cast<uint32_t>(key));
      if (options_.dedupe && last_ && last_->ends == ends) {
        last_->weight += weight;
        continue;
      }
      take_last();
      last_ = {ends, weight};
    }
  }

  // The edge whose like may still come.
  void take_last() {
    if (last_) take_edge(last_->ends, last_->weight);
    last_.reset();
  }

  void take_edge(uint64_t ends, double weight) {
    const auto source = static_cast<int64_t>(ends & 0xFFFFFFFFu), destination = static_cast<int64_t>(ends >> 32);
    if (destination > node_) end_columns(destination);
    if (options_.self_loops != SelfLoops::kKeep) {
      if (source == destination) {
        loop_weight_ = loop_weight_.value_or(0) + weight;
        return;
      }
      if (source > destination) add_loop();
    }
    put(source, weight);
  }

  // The loop of the column at hand, in its place among the sources, unless it is there.
  void add_loop() {
    if (options_.self_loops != SelfLoops::kAdd || has_loop_) return;
    has_loop_ = true;
    put(node_, loop_weight_.value_or(1));
  }

  void put(int64_t source, double weight) {
    sources_.push_back(static_cast<Index>(source));
    if (weights_file_) weights_.push_back(static_cast<float>(weight));
    if (numbers_file_) numbers_.push_back(number_);
    ++num_edges_;
  }

  // Ends the columns of all nodes before `node`.
  void end_columns(int64_t node) {
    for (; node_ < node; ++node_) {
      add_loop();
      ends_.push_back(num_edges_);
      has_loop_ = false;
      loop_weight_.reset();
      if (ends_.size() + sources_.size() >= kBuffered) flush();
    }
  }

  void flush() {
    indices_.append(std::span<const Index>(sources_));
    indptr_.append(std::span<const int64_t>(ends_));
    if (weights_file_) weights_file_->append(std::span<const float>(weights_));
    if (numbers_file_) numbers_file_->append(std::span<const int64_t>(numbers_));
    weights_.clear();
    numbers_.clear();
    sources_.clear();
    ends_.clear();
  }

  static constexpr std::size_t kBuffered = 1 << 17;
  EdgeOptions options_;
  NpyWriter indptr_, indices_;
  std::optional<NpyWriter> weights_file_, numbers_file_;  // the second has times or numbers
  std::vector<Index> sources_;                            // of the last edges
  std::vector<float> weights_;                            // of the same
  std::vector<int64_t> numbers_;                          // of the same, or their times
  std::vector<int64_t> ends_;                             // of the last columns
  int64_t node_ = 0;                                      // whose column is at hand
  int64_t num_edges_ = 0;
  bool has_loop_ = false;
  std::optional<double> loop_weight_;  // of the loops that the column at hand had
  std::optional<WeightedEdge> last_;
  int64_t number_ = 0;  // of the edge at hand, or its time
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
    : options_(std::move(options)), keys_(sorter_for(folder, memory_bytes, options_)) {
  base::require(options_.timed + options_.weighted + options_.numbered <= 1, "edges with weights, times or numbers");
  base::require(!options_.numbered || (!options_.dedupe && options_.self_loops != SelfLoops::kAdd),
                "edges with numbers are neither merged nor added");
  if (options_.timed && options_.self_loops == SelfLoops::kAdd) {
    throw base::Error({options_.place, "self loops kept or removed, for edges with times", "--self-loops add",
                       "a loop that is added has no time"});
  }
  if (options_.num_nodes <= kMaxNodes) return;
  throw base::Error({options_.place, base::format("at most {} nodes", kMaxNodes), std::to_string(options_.num_nodes),
                     "make the data set in parts"});
}

void EdgeSorter::add(Ends sources, Ends destinations, int64_t count, const IdMap* ids, const std::stop_token& stop,
                     const float* weights, const int64_t* times) {
  base::require(count == 0 || (weights != nullptr) == options_.weighted, "one weight for each edge, or for none");
  base::require(count == 0 || (times != nullptr) == options_.timed, "one time for each edge, or for none");
  if (options_.transpose) std::swap(sources, destinations);
  const Piece edges{sources, destinations, weights, times, ids, options_.numbered ? edges_read_ : -1};
  std::visit([&](auto& keys) { add_to(keys, edges, count, stop); }, keys_);
}

template <typename Key>
void EdgeSorter::add_to(BasicKeySorter<Key>& keys, Piece piece, int64_t count, const std::stop_token& stop) {
  const std::size_t copies = options_.reverse ? 2 : 1;
  while (count > 0) {
    const auto room = keys.room(copies * static_cast<std::size_t>(count), copies, stop);
    const auto edges = static_cast<int64_t>(room.size() / copies);
    const int64_t bad = pack<Key>(piece, room.first(copies * static_cast<std::size_t>(edges)), stop);
    if (bad >= 0) refuse(piece.sources[bad], piece.destinations[bad], edges_read_ + bad, piece.ids);
    keys.added(copies * static_cast<std::size_t>(edges));
    edges_read_ += edges;
    count -= edges;
    piece.sources.first += edges * piece.sources.stride;
    piece.destinations.first += edges * piece.destinations.stride;
    if (piece.weights) piece.weights += edges;
    if (piece.times) piece.times += edges;
    if (piece.number >= 0) piece.number += edges;
  }
}

template <typename Key>
Key EdgeSorter::Piece::key(int64_t source, int64_t destination, int64_t edge) const {
  if constexpr (sizeof(Key) == sizeof(uint64_t)) {
    return key_of(source, destination);
  } else {
    if (number >= 0) return numbered_key_of(source, destination, number + edge);
    return times ? key_of(source, destination, times[edge]) : key_of(source, destination, weights[edge]);
  }
}

template <typename Key>
int64_t EdgeSorter::pack(const Piece& edges, std::span<Key> keys, const std::stop_token& stop) {
  const IdMap* const ids = edges.ids;
  const std::size_t copies = options_.reverse ? 2 : 1;
  const auto count = static_cast<int64_t>(keys.size() / copies);
  std::atomic<int64_t> first_bad{count}, largest{largest_};
  const auto pack_some = [&](int64_t begin, int64_t end) {
    int64_t most = -1;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t source = ids ? ids->node(edges.sources[i]) : edges.sources[i];
      const int64_t destination = ids ? ids->node(edges.destinations[i]) : edges.destinations[i];
      if (std::min(source, destination) < 0 || source >= source_limit() || destination >= limit()) {
        raise_or_lower(first_bad, i, std::less<>());
        return;
      }
      most = std::max({most, source, destination});
      keys[copies * static_cast<std::size_t>(i)] = edges.template key<Key>(source, destination, i);
      if (copies == 2) keys[2 * static_cast<std::size_t>(i) + 1] = edges.template key<Key>(destination, source, i);
    }
    raise_or_lower(largest, most, std::greater<>());
  };
  for_chunks(count, stop, pack_some, kPackedAtOnce);
  largest_ = largest;
  return first_bad < count ? first_bad.load() : -1;
}

void EdgeSorter::refuse(int64_t source, int64_t destination, int64_t edge, const IdMap* ids) const {
  const int64_t source_node = ids ? ids->node(source) : source;
  const bool in_source = source_node < 0 || source_node >= source_limit();
  const char* const end = in_source != options_.transpose ? "source" : "destination";
  const std::string place = base::format("{}: {} of edge {}", options_.place, end, edge);
  const std::string found = std::to_string(in_source ? source : destination);
  if (ids) {
    throw base::Error({place, "an id that the list of node ids has", found,
                       "add it to the list, or leave the list out: then every id of the edges is a node"});
  }
  if (options_.num_sources >= 0) {
    const std::string& type = in_source ? options_.source_type : options_.target_type;
    const int64_t count = in_source ? source_limit() : limit();
    throw base::Error({place, base::format("a node of type {} in [0, {})", type, count), found,
                       base::format("nodes of a type are numbered from 0, and there are {} of type {}", count, type)});
  }
  throw base::Error({place, base::format("a node in [0, {})", limit()), found,
                     "nodes are numbered from 0, one per feature row; --node-ids FILE says the id of each row; "
                     "--rename takes any integers of edges without rows"});
}

// Ids that only look like nodes would make columns by the billion.
void EdgeSorter::demand_plausible() const {
  constexpr int64_t kFew = 1 << 20, kNodesAnEdge = 64;
  if (largest_ < kFew + kNodesAnEdge * edges_read_) return;
  throw base::Error({options_.place, base::format("nodes numbered without large gaps, for {} edges", edges_read_),
                     base::format("node {}", largest_),
                     "--rename takes any integers as names; --nodes says how many nodes there really are"});
}

void EdgeSorter::write(const std::filesystem::path& folder, const std::stop_token& stop) {
  if (options_.num_nodes < 0) {
    demand_plausible();
    options_.num_nodes = largest_ + 1;
  }
  if (std::max(options_.num_nodes, options_.num_sources) < kMaxInt32Nodes) {
    write_as<int32_t>(folder, stop);
  } else {
    write_as<int64_t>(folder, stop);
  }
}

template <typename Index>
void EdgeSorter::write_as(const std::filesystem::path& folder, const std::stop_token& stop) {
  ColumnWriter<Index> columns(folder, options_);
  const auto take = [&](const auto& keys) {
    columns.take(keys);
    edges_written_ = columns.num_edges();
  };
  std::visit([&](auto& keys) { keys.merge(take, stop); }, keys_);
  columns.finish();
  edges_written_ = columns.num_edges();
}

}  // namespace cohort::dataset
