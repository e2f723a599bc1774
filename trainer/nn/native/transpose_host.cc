#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/nn/native/transpose.h"

namespace cohort::trainer {

void run_on_host(const TransposeCall& call) {
  const BlockRef& block = call.block;
  const int64_t end = block.first(block.num_rows);
  std::fill(call.offsets, call.offsets + call.num_columns + 1, 0);
  for (int64_t e = 0; e < end; ++e) ++call.offsets[block.index[e] + 1];
  std::partial_sum(call.offsets, call.offsets + call.num_columns + 1, call.offsets);
  std::vector<int64_t> next(call.offsets, call.offsets + call.num_columns);
  for (int64_t row = 0; row < block.num_rows; ++row) {
    for (int64_t e = block.first(row); e < block.first(row + 1); ++e) {
      const int64_t at = next[static_cast<std::size_t>(block.index[e])]++;
      call.index[at] = row;
      call.edge[at] = static_cast<int32_t>(e);
    }
  }
  for (int64_t e = end; e < block.num_edges; ++e) {
    call.index[e] = 0;
    call.edge[e] = static_cast<int32_t>(e);
  }
}

}  // namespace cohort::trainer
