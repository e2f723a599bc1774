// A choice of rows of a table, as a bitmap with ranks: V / 4 bytes, and one read says whether a row is chosen, and how
// many before it are.
#pragma once

#include <cstdint>
#include <span>

#include "base/host_device.h"
#include "base/large_page_vector.h"

namespace cohort::cache {

struct RowBitsRef {
  const uint64_t* words = nullptr;  // uint64 [ceil(V / 32)]: flags of 32 rows, and above them how many are set before

  // The number of the row among the chosen ones; -1 for another row, and where nothing is chosen.
  COHORT_HOST_DEVICE int64_t find(int64_t row) const {
    if (!words) return -1;
    const uint64_t word = words[row / 32];
    const uint32_t flags = static_cast<uint32_t>(word), bit = 1u << (row % 32);
    if ((flags & bit) == 0) return -1;
#ifdef __CUDA_ARCH__
    const int before = __popc(flags & (bit - 1));
#else
    const int before = __builtin_popcount(flags & (bit - 1));
#endif
    return static_cast<int64_t>(word >> 32) + before;
  }
  // Asks for the memory that find() reads.
  void prefetch(int64_t row) const {
    if (words) __builtin_prefetch(words + row / 32);
  }
};

// In host memory. Of fewer than 2^32 chosen rows.
class RowBits {
 public:
  RowBits() = default;  // of an empty table
  explicit RowBits(int64_t num_rows) : num_rows_(num_rows), words_(static_cast<std::size_t>((num_rows + 31) / 32)) {}

  void choose(int64_t row) { words_[static_cast<std::size_t>(row / 32)] |= uint64_t{1} << (row % 32); }
  bool has(int64_t row) const { return (words_[static_cast<std::size_t>(row / 32)] >> (row % 32) & 1) != 0; }
  // To be called once, after the last choose(): ref() finds rows then.
  void count() {
    num_chosen_ = 0;
    for (uint64_t& word : words_) {
      const auto flags = static_cast<uint32_t>(word);
      word |= static_cast<uint64_t>(num_chosen_) << 32;
      num_chosen_ += __builtin_popcount(flags);
    }
  }

  int64_t num_rows() const { return num_rows_; }
  int64_t num_chosen() const { return num_chosen_; }
  RowBitsRef ref() const { return {words_.data()}; }
  std::span<const uint64_t> words() const { return words_; }

 private:
  int64_t num_rows_ = 0, num_chosen_ = 0;
  base::LargePageVector<uint64_t> words_;
};

}  // namespace cohort::cache
