// The products of bfloat16 rows with queries, of groups of rows at first: what a search on the GPU looks at. Part of
// gpu.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cohort::ibp {

inline constexpr int64_t kGroupRows = 32;  // rows next to each other

// What the best of a group is the largest of; p is the product of a row with a query, f the query's factor, l the
// length of the row: dot: f p; cosine: f p / l, 0 of a row of zeros; l2: f p - l l.
enum class Measure : uint8_t { kDot, kCosine, kL2 };

// Rows and queries in GPU memory, each at a multiple of 16 bytes.
struct RowsAndQueries {
  const uint16_t* rows = nullptr;     // bfloat16 [num_rows, num_columns]
  const uint16_t* queries = nullptr;  // bfloat16 [num_queries, num_columns]
  int64_t num_rows = 0;               // a multiple of kGroupRows
  int64_t num_queries = 0;
  uint32_t num_columns = 0;  // a multiple of 8
};

// best[g, q]: float32 [num_rows / kGroupRows, num_queries], of the rows of group g; NaN where one of them is NaN.
// lengths: float32 [num_rows]; cosine: 1 of a row of zeros. factors: float32 [num_queries]. Products are sums in
// float32 in any order. Asynchronous, reads the rows once for 64 queries. Throws Error for sizes or addresses that do
// not fit.
void score_groups(const RowsAndQueries& given, Measure measure, const float* factors, float* best, float* lengths,
                  cudaStream_t stream);

// products[i, j]: float32 [count, kGroupRows], of row j of group groups[i] with query of_query[i], both int64 [count],
// which the caller has checked. Asynchronous. Throws Error as score_groups() does.
void score_pairs(const RowsAndQueries& given, const int64_t* of_query, const int64_t* groups, int64_t count,
                 float* products, cudaStream_t stream);

}  // namespace cohort::ibp
