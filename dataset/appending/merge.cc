#include "dataset/appending/merge.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file_descriptor.h"
#include "base/format.h"
#include "dataset/npy.h"
#include "dataset/npy_writer.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr int64_t kEdgesOfPiece = 1 << 18;                   // of a piece of nodes, about
constexpr std::size_t kBufferBytes = 1 << 20;                // of a piece of an array that is written
constexpr std::size_t kReleaseBytes = std::size_t{1} << 28;  // read between two looks at what memory holds
constexpr const char* kSortHint = "write the data set again with cohort dataset import, which sorts the lists";

// An array that is merged, row by row of so many bytes.
class MergedArray {
 public:
  explicit MergedArray(const ArrayOfEdges& files)
      : old_(map_npy(files.old)), added_(map_npy(files.added)), path_(files.merged) {
    row_bytes_ = row_bytes_of(old_);
    if (old_.dtype() != added_.dtype() || row_bytes_ != row_bytes_of(added_)) {
      throw base::Error(
          {files.added.string(),
           base::format("rows as of {}: {} of shape {}", old_.place(), name_of(old_.dtype()), shape_text(old_.shape())),
           base::format("{} of shape {}", name_of(added_.dtype()), shape_text(added_.shape())),
           "append edges with the same weights, times and features as the data set has"});
    }
  }

  // Makes the file; its rows are written with write().
  void create(int64_t num_rows) {
    std::vector<int64_t> shape = old_.shape();
    shape[0] = num_rows;
    const std::string header = format_npy_header(old_.dtype(), shape);
    file_ = base::FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file_) base::fail_errno(path_.string(), "a file that can be written", errno);
    base::write_all_at(file_, 0, std::as_bytes(std::span(header)), path_.string());
    start_ = header.size();
  }
  void write(int64_t row, std::span<const std::byte> bytes) const {
    base::write_all_at(file_, start_ + static_cast<std::size_t>(row) * row_bytes_, bytes, path_.string());
  }
  void close() { file_.close(path_.string()); }

  const MappedArray& old() const noexcept { return old_; }
  const MappedArray& added() const noexcept { return added_; }
  std::size_t row_bytes() const noexcept { return row_bytes_; }

 private:
  static std::size_t row_bytes_of(const MappedArray& array) {
    std::size_t bytes = size_of(array.dtype());
    for (std::size_t i = 1; i < array.shape().size(); ++i) bytes *= static_cast<std::size_t>(array.shape()[i]);
    return bytes;
  }

  MappedArray old_, added_;
  std::filesystem::path path_;
  base::FileDescriptor file_;
  std::size_t row_bytes_ = 0, start_ = 0;
};

// Writes rows of a merged array from a place on, in pieces.
class RowWriter {
 public:
  RowWriter(const MergedArray& array, int64_t row) : array_(&array), row_(row) {}

  void append(bool is_added, int64_t first, int64_t count) {
    const MappedArray& from = is_added ? array_->added() : array_->old();
    const std::size_t bytes = static_cast<std::size_t>(count) * array_->row_bytes();
    const std::byte* const begin = from.data() + static_cast<std::size_t>(first) * array_->row_bytes();
    if (buffer_.size() + bytes > kBufferBytes) flush();
    if (bytes >= kBufferBytes) {
      array_->write(row_, {begin, bytes});
      row_ += count;
      return;
    }
    buffer_.insert(buffer_.end(), begin, begin + bytes);
  }
  void flush() {
    if (buffer_.empty()) return;
    array_->write(row_, buffer_);
    row_ += static_cast<int64_t>(buffer_.size() / array_->row_bytes());
    buffer_.clear();
  }

 private:
  const MergedArray* array_;
  int64_t row_;  // where the buffer begins
  std::vector<std::byte> buffer_;
};

// A stretch of one list that is copied: from the edges that were there, or from those that come.
struct Run {
  bool is_added;
  int64_t first, count;
};

template <typename Index>
class Merger {
 public:
  explicit Merger(const MergeOptions& options)
      : options_(options),
        indptr_(map_npy(options.indptr.old)),
        added_indptr_(map_npy(options.indptr.added)),
        indices_(options.indices) {
    for (const ArrayOfEdges& files : options.beside) beside_.emplace_back(files);
    if (!options.removed_indptr.empty()) {
      removed_indptr_ = map_npy(options.removed_indptr);
      removed_indices_ = map_npy(options.removed_indices);
    }
    starts_ = indptr_.as<int64_t>();
    added_starts_ = added_indptr_.as<int64_t>();
    old_ = indices_.old().as<Index>();
    added_ = indices_.added().as<Index>();
    if (options.order == EdgeOrder::kWeight) weights_ = {numbers<float>(false), numbers<float>(true)};
    if (is_timed()) times_ = {numbers<int64_t>(false), numbers<int64_t>(true)};
    base::require(added_starts_.size() >= starts_.size(), "as many nodes as before, or more");
    base::require(!removes() || removed_indptr_.size() == added_indptr_.size(), "the same nodes");
  }

  MergeResult run(const std::stop_token& stop) {
    MergeResult result;
    demand_sound(stop);
    count(stop);
    write_indptr(result, stop);
    indices_.create(result.num_edges);
    for (MergedArray& array : beside_) array.create(result.num_edges);
    const int64_t nodes_at_once = std::max<int64_t>(1, kEdgesOfPiece * num_nodes() / (result.num_edges + 1));
    for_chunks(
        num_nodes(), stop, [&](int64_t begin, int64_t end) { write_lists(begin, end); },
        std::min<int64_t>(nodes_at_once, kChunk));
    indices_.close();
    for (MergedArray& array : beside_) array.close();
    return result;
  }

 private:
  // Nothing that leads out of the arrays is used.
  void demand_sound(const std::stop_token& stop) const {
    const auto num_edges = std::ssize(old_);
    base::require(starts_.front() == 0 && starts_.back() == num_edges, "an open data set");
    for (const MergedArray& array : beside_) base::require(array.old().shape()[0] == num_edges, "a row for each edge");
    const Scan bad = scan(std::ssize(starts_) - 1, stop, [&](int64_t node) {
      return starts_[static_cast<std::size_t>(node) + 1] < starts_[static_cast<std::size_t>(node)];
    });
    if (bad.first < 0) return;
    throw base::Error({base::format("{}[{}]", indptr_.place(), bad.first + 1), "at least the value before",
                       std::to_string(starts_[static_cast<std::size_t>(bad.first) + 1]), "import the data set again"});
  }

  template <typename T>
  std::span<const T> numbers(bool is_added) const {
    return (is_added ? beside_.front().added() : beside_.front().old()).template as<T>();
  }
  bool is_timed() const { return options_.order == EdgeOrder::kTime || options_.order == EdgeOrder::kTimeAlone; }
  bool removes() const { return removed_indptr_.is_mapped(); }
  int64_t num_nodes() const { return std::ssize(added_starts_) - 1; }
  // The first of the old edges of a node, or of the nodes after the last one that was there.
  int64_t old_start(int64_t node) const { return starts_[static_cast<std::size_t>(std::min(node, last_node()))]; }
  int64_t last_node() const { return std::ssize(starts_) - 1; }
  int64_t added_start(int64_t node) const { return added_starts_[static_cast<std::size_t>(node)]; }
  std::span<const Index> removed_of(int64_t node) const {
    if (!removes()) return {};
    const auto starts = removed_indptr_.as<int64_t>().subspan(static_cast<std::size_t>(node), 2);
    return removed_indices_.as<Index>().subspan(static_cast<std::size_t>(starts[0]),
                                                static_cast<std::size_t>(starts[1] - starts[0]));
  }
  bool stays(int64_t node) const { return added_start(node) == added_start(node + 1) && removed_of(node).empty(); }

  // What the edges ascend by.
  std::pair<int64_t, int64_t> key(bool is_added, int64_t edge) const {
    const auto i = static_cast<std::size_t>(edge);
    const int64_t source = (is_added ? added_ : old_)[i];
    switch (options_.order) {
      case EdgeOrder::kSource:
        return {source, 0};
      case EdgeOrder::kWeight:
        return {source, std::bit_cast<uint32_t>((is_added ? weights_.second : weights_.first)[i])};
      case EdgeOrder::kTime:
        return {(is_added ? times_.second : times_.first)[i], source};
      case EdgeOrder::kTimeAlone:
        return {(is_added ? times_.second : times_.first)[i], 0};
    }
    return {};
  }
  bool same_edge(int64_t old, int64_t added) const {
    if (old_[static_cast<std::size_t>(old)] != added_[static_cast<std::size_t>(added)]) return false;
    return !is_timed() || times_.first[static_cast<std::size_t>(old)] == times_.second[static_cast<std::size_t>(added)];
  }

  // An added edge that is there already, or a loop of a node that has one: equal to old edge `old` of the node.
  bool comes_again(int64_t node, int64_t old, int64_t added) const {
    const bool is_loop = options_.has_loops && added_[static_cast<std::size_t>(added)] == node;
    return (options_.dedupe || is_loop) && same_edge(old, added);
  }

  // Calls use(Run) for the list of a node that changes, in order; returns how many old edges were taken out.
  template <typename Use>
  int64_t merge(int64_t node, Use use) const {
    const int64_t old_end = old_start(node + 1), added_end = added_start(node + 1);
    const std::span<const Index> removed = removed_of(node);
    std::vector<bool> found(removed.size());
    int64_t begin = old_start(node), i = begin, j = added_start(node), num_removed = 0;
    const auto end_run = [&](int64_t next) {
      if (i > begin) use(Run{false, begin, i - begin});
      begin = next;
    };
    while (i < old_end || j < added_end) {
      if (i == old_end) {
        end_run(i);
        use(Run{true, j, added_end - j});
        break;
      }
      if (i > old_start(node) && key(false, i) < key(false, i - 1)) refuse_order(i);
      if (const int64_t place = place_of(removed, old_[static_cast<std::size_t>(i)]); place >= 0) {
        found[static_cast<std::size_t>(place)] = true;
        end_run(i + 1);
        ++num_removed;
        ++i;
      } else if (j < added_end && comes_again(node, i, j)) {
        if (options_.order == EdgeOrder::kWeight) refuse_again(node, j);
        ++j;
      } else if (j < added_end && key(true, j) < key(false, i)) {
        end_run(i);
        use(Run{true, j, 1});
        ++j;
      } else {
        ++i;
      }
    }
    end_run(i);
    const auto missing = std::find(found.begin(), found.end(), false);
    if (missing != found.end()) refuse_missing(node, removed[static_cast<std::size_t>(missing - found.begin())]);
    return num_removed;
  }

  static int64_t place_of(std::span<const Index> ascending, Index value) {
    const auto found = std::lower_bound(ascending.begin(), ascending.end(), value);
    return found == ascending.end() || *found != value ? -1 : found - ascending.begin();
  }

  // The number of edges of each node, and whether its list is another than before.
  void count(const std::stop_token& stop) {
    counts_.resize(static_cast<std::size_t>(num_nodes()));
    changes_.resize(static_cast<std::size_t>(num_nodes()));
    constexpr int64_t kNodesAtOnce = 1 << 12;
    const bool all_stay_and_come = !options_.dedupe && !options_.has_loops && !removes();
    for_chunks(
        num_nodes(), stop,
        [&](int64_t begin, int64_t end) {
          for (int64_t node = begin; node < end; ++node) {
            const auto i = static_cast<std::size_t>(node);
            const int64_t before = old_start(node + 1) - old_start(node);
            const int64_t added = added_start(node + 1) - added_start(node);
            counts_[i] = before + added;
            changes_[i] = added > 0;
            if (stays(node) || all_stay_and_come) continue;
            int64_t now = 0;
            const int64_t removed = merge(node, [&](const Run& run) { now += run.count; });
            counts_[i] = now;
            changes_[i] = removed > 0 || now != before;
            note_read(static_cast<std::size_t>(before) * indices_.row_bytes());
          }
        },
        kNodesAtOnce);
  }

  // Counts become starts; says which lists change.
  void write_indptr(MergeResult& result, const std::stop_token& stop) {
    struct Piece {
      int64_t edges = 0, changed = 0;
    };
    std::vector<Piece> before(static_cast<std::size_t>((num_nodes() + kChunk - 1) / kChunk));
    for_chunks(num_nodes(), stop, [&](int64_t begin, int64_t end) {
      Piece& piece = before[static_cast<std::size_t>(begin / kChunk)];
      for (auto node = static_cast<std::size_t>(begin); node < static_cast<std::size_t>(end); ++node) {
        piece.edges += counts_[node];
        piece.changed += changes_[node];
      }
    });
    Piece all;
    for (Piece& piece : before) {
      const Piece own = std::exchange(piece, all);
      all = {all.edges + own.edges, all.changed + own.changed};
    }
    result.num_edges = all.edges;
    result.changed.resize(static_cast<std::size_t>(all.changed));
    for_chunks(num_nodes(), stop, [&](int64_t begin, int64_t end) {
      auto [start, changed] = before[static_cast<std::size_t>(begin / kChunk)];
      for (auto node = static_cast<std::size_t>(begin); node < static_cast<std::size_t>(end); ++node) {
        start += std::exchange(counts_[node], start);
        if (changes_[node]) result.changed[static_cast<std::size_t>(changed++)] = static_cast<int64_t>(node);
      }
    });
    NpyWriter indptr(options_.indptr.merged, DType::int64);
    indptr.append(std::span<const int64_t>(counts_));
    indptr.append(std::span<const int64_t>(&all.edges, 1));
    indptr.finish();
  }

  // The lists of nodes [begin, end) of all arrays. Lists that stay, side by side, are one stretch.
  void write_lists(int64_t begin, int64_t end) {
    std::vector<RowWriter> writers{{indices_, counts_[static_cast<std::size_t>(begin)]}};
    for (const MergedArray& array : beside_) writers.emplace_back(array, counts_[static_cast<std::size_t>(begin)]);
    int64_t first = old_start(begin);  // of the stretch that stays
    const auto copy = [&](const Run& run) {
      if (run.count == 0) return;
      for (RowWriter& writer : writers) writer.append(run.is_added, run.first, run.count);
    };
    for (int64_t node = begin; node < end; ++node) {
      if (stays(node)) continue;
      copy({false, first, old_start(node) - first});
      merge(node, copy);
      first = old_start(node + 1);
    }
    copy({false, first, old_start(end) - first});
    for (RowWriter& writer : writers) writer.flush();
    std::size_t edge_bytes = indices_.row_bytes();
    for (const MergedArray& array : beside_) edge_bytes += array.row_bytes();
    note_read(static_cast<std::size_t>(old_start(end) - old_start(begin)) * edge_bytes);
  }

  // Gives pages that were read back once there are many.
  void note_read(std::size_t bytes) {
    if (read_.fetch_add(bytes) % kReleaseBytes + bytes < kReleaseBytes) return;
    indices_.old().release();
    for (const MergedArray& array : beside_) array.old().release();
  }

  int64_t target_of(std::span<const int64_t> starts, int64_t edge) const {
    return std::upper_bound(starts.begin(), starts.end(), edge) - starts.begin() - 1;
  }
  [[noreturn]] void refuse_order(int64_t edge) const {
    const int64_t node = target_of(starts_, edge);
    const std::string by = is_timed() ? "(time, source)" : "source";
    throw base::Error({base::format("{}[{}]", indices_.old().place(), edge),
                       base::format("the in-neighbours of node {} in ascending order of their {}", node, by),
                       "another order", kSortHint});
  }
  [[noreturn]] void refuse_again(int64_t node, int64_t added) const {
    throw base::Error(
        {options_.place,
         "edges that the data set does not have yet, as it keeps equal edges once with the sum of their "
         "weights, which the data set has rounded",
         base::format("edge {} -> {}", added_[static_cast<std::size_t>(added)], node),
         "import all edges again, or take it out before: --remove-edges, then append it with the weight that it shall "
         "have"});
  }
  [[noreturn]] void refuse_missing(int64_t node, Index source) const {
    throw base::Error(
        {"--remove-edges", "edges that the data set has", base::format("edge {} -> {}", source, node), "leave it out"});
  }

  MergeOptions options_;
  MappedArray indptr_, added_indptr_, removed_indptr_, removed_indices_;
  MergedArray indices_;
  std::vector<MergedArray> beside_;
  std::span<const int64_t> starts_, added_starts_;
  std::span<const Index> old_, added_;
  std::pair<std::span<const float>, std::span<const float>> weights_;    // old, added
  std::pair<std::span<const int64_t>, std::span<const int64_t>> times_;  // old, added
  std::vector<int64_t> counts_;                                          // of each node; then where its list begins
  std::vector<uint8_t> changes_;                                         // of each node: its list is another
  std::atomic<std::size_t> read_{0};
};

}  // namespace

MergeResult merge_edges(const MergeOptions& options, const std::stop_token& stop) {
  const DType dtype = map_npy(options.indices.old).dtype();
  if (dtype == DType::int64) return Merger<int64_t>(options).run(stop);
  return Merger<int32_t>(options).run(stop);
}

}  // namespace cohort::dataset
