// A random block and rows for the tests of reductions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

// kMixed: rows of 0 to 19 edges, some of several hundred, in whose pieces a row's edges come to lie anywhere. kShort:
// without those, but for one of up to 300. kFew: rows of 0 or 1 edge, and that one.
enum class Lists { kMixed, kShort, kFew };

struct RandomBlock {
  std::vector<int64_t> offsets{0};
  std::vector<int64_t> index;

  RandomBlock(int64_t num_rows, int64_t num_sources, uint64_t seed, Lists lists = Lists::kMixed) {
    const base::PhiloxKey key = base::key_of(seed);
    for (int64_t row = 0; row < num_rows; ++row) {
      const auto at = static_cast<uint64_t>(row);
      const uint64_t kind = base::random_below(10, key, at, 0);
      const uint64_t longest = lists == Lists::kMixed ? (kind == 1 ? 700 : 20) : row == 9 ? 300 : 20;
      const uint64_t most = lists == Lists::kFew && row != 9 ? 2 : kind == 0 ? 1 : longest;
      const uint64_t degree = base::random_below(most, key, at, 1);
      for (uint64_t j = 0; j < degree; ++j) {
        index.push_back(static_cast<int64_t>(base::random_below(static_cast<uint64_t>(num_sources), key, at, 2 + j)));
      }
      offsets.push_back(static_cast<int64_t>(index.size()));
    }
  }
  int64_t num_rows() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_edges() const { return static_cast<int64_t>(index.size()); }
  BlockRef ref() const {
    return {offsets.data(), num_rows() + 1, index.data(), nullptr, num_edges(), num_rows(), false};
  }
};

// A block of the rows [first, end) alone.
inline BlockRef part_of(BlockRef block, int64_t first, int64_t end) {
  block.offsets += first;
  block.num_offsets -= first;
  block.num_rows = end - first;
  return block;
}

// Where each source has its row among `num_rows`; nowhere, -1, every 5th that no edge brings.
inline std::vector<int64_t> random_row_index(const RandomBlock& block, int64_t num_sources, int64_t num_rows) {
  std::vector<int64_t> row_index(static_cast<std::size_t>(num_sources));
  for (std::size_t i = 0; i < row_index.size(); ++i) {
    const auto row = base::random_below(static_cast<uint64_t>(num_rows), base::key_of(7), i, 0);
    const bool is_brought = std::ranges::find(block.index, static_cast<int64_t>(i)) != block.index.end();
    row_index[i] = i % 5 == 0 && !is_brought ? -1 : static_cast<int64_t>(row);
  }
  return row_index;
}

// Small numbers, each as an element; every 7th is 0.
template <typename T>
constexpr Dtype kDtype = std::is_same_v<T, float>      ? Dtype::kFloat32
                         : std::is_same_v<T, Bfloat16> ? Dtype::kBfloat16
                         : std::is_same_v<T, Float16>  ? Dtype::kFloat16
                                                       : Dtype::kFloat64;

template <typename T>
std::vector<T> random_elements(int64_t count, uint64_t seed) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto number = static_cast<int64_t>(base::random_below(2001, base::key_of(seed), i, 0)) - 1000;
    values[i] = narrow<T>(static_cast<Sum<T>>(i % 7 == 0 ? 0 : number) / 500);
  }
  return values;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace cohort::trainer
