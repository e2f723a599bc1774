#include <algorithm>
#include <cmath>
#include <limits>

#include "dataset/parallel.h"
#include "dataset/partitioning/partition.h"

namespace cohort::dataset {
namespace {

constexpr int kPasses = 10;
constexpr double kGamma = 1.5;
// Of alpha, in the first pass and from pass to pass. With these, planted communities are found that a constant alpha
// leaves torn between parts: a part that is a little too full can give a whole community away.
constexpr double kFirstAlpha = 3, kAlphaGrowth = 1.2;
constexpr int64_t kBlocksAtLeast = 256, kMostNodesAtOnce = 4096;
constexpr int32_t kNone = -1;

// What parts hold, and which of them a node should join.
class Parts {
 public:
  Parts(int64_t num_nodes, int64_t num_edges, int64_t num_train, int64_t num_parts)
      : nodes_(static_cast<std::size_t>(num_parts)), train_nodes_(static_cast<std::size_t>(num_parts)) {
    const auto parts = static_cast<double>(num_parts), nodes = static_cast<double>(num_nodes);
    alpha_ = kFirstAlpha * std::sqrt(parts) * static_cast<double>(num_edges) / std::pow(nodes, kGamma);
    most_nodes_ = most_of(num_nodes, num_parts);
    most_train_nodes_ = most_of(num_train, num_parts);
  }

  void grow_alpha() { alpha_ *= kAlphaGrowth; }

  void leave(int32_t part, bool train) {
    --nodes_[static_cast<std::size_t>(part)];
    train_nodes_[static_cast<std::size_t>(part)] -= train;
  }

  // The best part for a node; counts int32 [parts]: its neighbours in each. Where each part is full of nodes or of
  // training nodes, the one with the fewest nodes.
  int32_t join(const int32_t* counts, bool train) {
    auto best = static_cast<std::size_t>(std::min_element(nodes_.begin(), nodes_.end()) - nodes_.begin());
    double best_score = -std::numeric_limits<double>::infinity();
    for (std::size_t part = 0; part < nodes_.size(); ++part) {
      if (nodes_[part] >= most_nodes_ || (train && train_nodes_[part] >= most_train_nodes_)) continue;
      const double score = counts[part] - alpha_ * kGamma * std::sqrt(static_cast<double>(nodes_[part]));
      if (score <= best_score) continue;
      best = part;
      best_score = score;
    }
    ++nodes_[best];
    train_nodes_[best] += train;
    return static_cast<int32_t>(best);
  }

 private:
  static int64_t most_of(int64_t count, int64_t num_parts) {
    const double mean = static_cast<double>(count) / static_cast<double>(num_parts);
    return static_cast<int64_t>(std::ceil(mean * kMostOfMean));
  }

  std::vector<int64_t> nodes_, train_nodes_;
  int64_t most_nodes_, most_train_nodes_;
  double alpha_;
};

class StreamingPartition {
 public:
  StreamingPartition(std::span<const NumberedLists> relations, std::span<const uint8_t> train,
                     const PartitionOptions& options)
      : relations_(relations),
        train_(train),
        num_parts_(static_cast<std::size_t>(options.num_parts)),
        part_of_(train.size(), kNone),
        parts_(std::ssize(train), num_edges_of(relations), std::ranges::count(train, 1), options.num_parts) {}

  std::vector<int32_t> run(const std::stop_token& stop) {
    const auto num_nodes = static_cast<int64_t>(part_of_.size());
    const int64_t block = std::clamp<int64_t>(num_nodes / kBlocksAtLeast, 1, kMostNodesAtOnce);
    counts_.resize(static_cast<std::size_t>(block) * num_parts_);
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int64_t begin = 0; begin < num_nodes; begin += block) place(begin, std::min(num_nodes, begin + block), stop);
      parts_.grow_alpha();
    }
    return std::move(part_of_);
  }

 private:
  // Counts the neighbours of a block's nodes side by side, as they were before it, and then places them in turn.
  void place(int64_t begin, int64_t end, const std::stop_token& stop) {
    for_chunks(
        end - begin, stop,
        [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) count_neighbours(begin + i, row(i));
        },
        64);
    for (int64_t i = 0; i < end - begin; ++i) {
      const auto node = static_cast<std::size_t>(begin + i);
      const bool train = train_[node] != 0;
      if (part_of_[node] != kNone) parts_.leave(part_of_[node], train);
      part_of_[node] = parts_.join(row(i), train);
    }
  }

  void count_neighbours(int64_t node, int32_t* counts) const {
    std::fill_n(counts, num_parts_, 0);
    for (const NumberedLists& relation : relations_) {
      if (!relation.has_target(node)) continue;
      const int64_t* row = relation.lists.indptr + (node - relation.first_target);
      for (int64_t i = row[0]; i < row[1]; ++i) {
        const int64_t neighbour = relation.source(i);
        const int32_t part = part_of_[static_cast<std::size_t>(neighbour)];
        if (part != kNone && neighbour != node) ++counts[part];
      }
    }
  }

  int32_t* row(int64_t i) { return counts_.data() + static_cast<std::size_t>(i) * num_parts_; }

  std::span<const NumberedLists> relations_;
  std::span<const uint8_t> train_;
  std::size_t num_parts_;
  std::vector<int32_t> part_of_;  // int32 [V], kNone: not placed yet
  std::vector<int32_t> counts_;   // int32 [block, parts]
  Parts parts_;
};

}  // namespace

std::vector<int32_t> partition_streaming(std::span<const NumberedLists> lists, std::span<const uint8_t> train,
                                         const PartitionOptions& options, const std::stop_token& stop) {
  return StreamingPartition(lists, train, options).run(stop);
}

}  // namespace cohort::dataset
