#include "cache/row_bits.h"

namespace cohort::cache {

void RowBits::count() {
  num_chosen_ = 0;
  for (uint64_t& word : words_) {
    const auto flags = static_cast<uint32_t>(word);
    word |= static_cast<uint64_t>(num_chosen_) << 32;
    num_chosen_ += __builtin_popcount(flags);
  }
}

}  // namespace cohort::cache
