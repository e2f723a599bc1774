// Random tables of learned rows, some of them hot, and the lookups of a batch, for tests.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/trainer/nn/native/random_block.h"
#include "trainer/nn/native/learned_rows.h"

namespace cohort::trainer {

// Which rows are hot; `share` of them in tenths.
struct HotIndex {
  std::vector<uint32_t> bits;
  std::vector<int32_t> before;
  std::vector<int64_t> ids;

  HotIndex(int64_t num_rows, uint64_t share) : bits((num_rows + 31) / 32), before(bits.size()) {
    for (int64_t id = 0; id < num_rows; ++id) {
      if (id % 32 == 0) before[id / 32] = static_cast<int32_t>(ids.size());
      if (base::random_below(10, base::key_of(9), static_cast<uint64_t>(id), 0) >= share) continue;
      bits[id / 32] |= uint32_t{1} << (id % 32);
      ids.push_back(id);
    }
  }
};

// A table; the rows of hot ids among `rows` are not those of the table.
struct RandomTable {
  std::vector<float> rows, hot;

  RandomTable(int64_t num_rows, int64_t dim, const HotIndex& index, uint64_t seed, bool positive = false)
      : rows(random_elements<float>(num_rows * dim, seed)) {
    if (positive) std::ranges::transform(rows, rows.begin(), [](float value) { return value < 0 ? -value : value; });
    for (const int64_t id : index.ids) {
      const auto from = rows.begin() + id * dim;
      hot.insert(hot.end(), from, from + dim);
      std::fill(from, from + dim, 1e9f);
    }
  }
  LearnedRows ref(const HotIndex& index) {
    return {rows.data(), hot.empty() ? nullptr : hot.data(), index.bits.data(), index.before.data()};
  }
};

// Ids of a batch, ascending, many of them several times, with the indices of their gradients; the first and the last
// are out of range.
struct RandomLookups {
  std::vector<int64_t> ids, row_index;

  RandomLookups(int64_t count, int64_t num_rows) : ids(count), row_index(count) {
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<uint64_t>(i);
      ids[i] = static_cast<int64_t>(base::random_below(static_cast<uint64_t>(num_rows), base::key_of(5), at, 0));
      if (base::random_below(4, base::key_of(5), at, 1) == 0) ids[i] = 3;
    }
    ids[0] = -2;
    ids[count - 1] = num_rows;
    std::iota(row_index.begin(), row_index.end(), int64_t{0});
    std::ranges::stable_sort(row_index, [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
    std::ranges::sort(ids);
  }
};

inline UpdateRowsCall update_call(RowRule rule, int64_t num_rows, int64_t dim, const RandomLookups& lookups) {
  UpdateRowsCall call;
  call.rule = rule;
  call.num_rows = num_rows;
  call.dim = dim;
  call.count = static_cast<int64_t>(lookups.ids.size());
  call.ids = lookups.ids.data();
  call.row_index = lookups.row_index.data();
  call.rate = 0.1f;
  call.eps = 1e-6f;
  call.weight_decay = 0.01f;
  call.share1 = 0.1f;
  call.share2 = 0.001f;
  return call;
}

}  // namespace cohort::trainer
