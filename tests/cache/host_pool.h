// A pool of rows in host memory, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cache/pool_ref.h"

namespace cohort::cache {

// A pool whose rows are assigned one after the other.
class HostPool {
 public:
  HostPool(int64_t num_nodes, int64_t num_rows, bool reuse)
      : rows_(static_cast<std::size_t>(num_rows), -1),
        row_of_(static_cast<std::size_t>(num_nodes), PoolRef::kNone),
        node_of_(rows_.size(), PoolRef::kNone),
        used_by_(rows_.size(), PoolRef::kNone),
        num_rows_(rows_.size()),
        reuse_(reuse) {}

  // Rows that the nodes have; those that are missing are written: the number of their node, and `more`.
  std::vector<uint32_t> assign(const std::vector<int64_t>& nodes, const PoolBatch& batch, int64_t more = 0) {
    const PoolRef pool{row_of_.data(), node_of_.data(), used_by_.data(), static_cast<uint32_t>(num_rows_), reuse_,
                       batch};
    std::vector<uint32_t> row_index(nodes.size());
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      row_index[i] = pool.find(nodes[i]);
      if (row_index[i] == PoolRef::kNone) missing.push_back(i);
    }
    num_missing += std::ssize(missing);
    for (std::size_t looked_at = 0; looked_at < num_rows_ && !missing.empty(); ++looked_at) {
      hand_ = (hand_ + 1) % num_rows_;
      if (!pool.is_free(static_cast<uint32_t>(hand_))) continue;
      row_index[missing.back()] = static_cast<uint32_t>(hand_);
      pool.give(static_cast<uint32_t>(hand_), nodes[missing.back()]);
      rows_[hand_] = nodes[missing.back()] + more;
      missing.pop_back();
    }
    num_without_row += std::ssize(missing);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (row_index[i] == PoolRef::kPending) row_index[i] = row_of_[static_cast<std::size_t>(nodes[i])];
    }
    return row_index;
  }
  void forget() { std::ranges::fill(row_of_, PoolRef::kNone); }
  int64_t row(uint32_t row) const { return rows_[row]; }
  // Rows are there from the beginning, and assigned from now on.
  void grow(int64_t num_rows) { num_rows_ = static_cast<std::size_t>(num_rows); }
  int64_t num_rows() const { return static_cast<int64_t>(num_rows_); }

  int64_t num_missing = 0, num_without_row = 0;

 private:
  std::vector<int64_t> rows_;
  std::vector<uint32_t> row_of_, node_of_, used_by_;
  std::size_t num_rows_, hand_ = 0;
  bool reuse_;
};

}  // namespace cohort::cache
