#include <omp.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "trainer/nn/native/host_rows.h"
#include "trainer/nn/native/transpose.h"

namespace cohort::trainer {
namespace {

// Puts the edges of columns [begin, end) into their places.
void place_edges(const TransposeCall& call, int64_t begin, int64_t end) {
  std::vector<int64_t> next(call.offsets + begin, call.offsets + end);
  for (int64_t row = 0; row < call.block.num_rows; ++row) {
    for (int64_t e = call.block.first(row); e < call.block.first(row + 1); ++e) {
      const int64_t column = call.block.index[e];
      if (column < begin || column >= end) continue;
      const int64_t at = next[static_cast<std::size_t>(column - begin)]++;
      call.index[at] = row;
      call.edge[at] = static_cast<int32_t>(e);
    }
  }
}

}  // namespace

// Each thread looks at all edges, and has some of the columns: as many as each other first, then those of as many
// edges.
void run_on_host(const TransposeCall& call) {
  const BlockRef& block = call.block;
  const int64_t num_edges = block.first(block.num_rows), num_columns = call.num_columns;
  int64_t* const offsets = call.offsets;
#pragma omp parallel if (num_edges > kFewElements)
  {
    const int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    const int64_t begin = num_columns * thread / threads, end = num_columns * (thread + 1) / threads;
    std::fill(offsets + begin + (thread > 0), offsets + end + 1, 0);
    for (int64_t e = 0; e < num_edges; ++e) {
      const int64_t column = block.index[e];
      if (column >= begin && column < end) ++offsets[column + 1];
    }
#pragma omp barrier
#pragma omp single
    std::partial_sum(offsets, offsets + num_columns + 1, offsets);
    const auto first_of = [&](int64_t edge) {
      return std::lower_bound(offsets, offsets + num_columns, edge) - offsets;
    };
    place_edges(call, first_of(num_edges * thread / threads),
                thread + 1 == threads ? num_columns : first_of(num_edges * (thread + 1) / threads));
  }
  for (int64_t e = num_edges; e < block.num_edges; ++e) {
    call.index[e] = 0;
    call.edge[e] = static_cast<int32_t>(e);
  }
}

}  // namespace cohort::trainer
