// Scores of bfloat16 rows with queries, of groups of rows at first: what a search looks at.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cohort::ibp {

inline constexpr int64_t kScoreRows = 32;  // rows next to each other

// What the best of a group is the largest of; p is the product of a row with a query, f the query's factor, l the
// length of the row: dot: f p; cosine: f p / l, 0 of a row of zeros; l2: f p - l l.
enum class Measure : uint8_t { kDot, kCosine, kL2 };

// Rows and queries in GPU memory, each at a multiple of 16 bytes.
struct RowsAndQueries {
  const uint16_t* rows = nullptr;     // bfloat16 [num_rows, num_columns]
  const uint16_t* queries = nullptr;  // bfloat16 [num_queries, num_columns]
  int64_t num_rows = 0;               // a multiple of kScoreRows
  int64_t num_queries = 0;
  uint32_t num_columns = 0;  // a multiple of 8
};

// Bounds of scores, as ScoreBounds of ibp/uses/topk/search.py has them. The score of a pair of a row and a query is
// that of Measure; for l2 it is -sqrt(max(0, squares - this)). The radius of a row of length l is slope (l stretch +
// least), or slope for cosine; a row of a length that is not below `largest`, for cosine also of one not above
// `smallest`, has an infinite radius.
struct ScoreBoundsRef {
  Measure measure = Measure::kDot;
  const float* factors = nullptr;  // float32 [num_queries]
  const float* squares = nullptr;  // float32 [num_queries]
  float slope = 0, stretch = 0, least = 0;
  float smallest = 0, largest = 0;
};

// The best score of each group's rows with each query, before the step that l2 has at last.
struct GroupScoresRef {
  float* best = nullptr;     // float32 [num_rows / kScoreRows, num_queries]; NaN where a row's score is NaN
  float* lengths = nullptr;  // float32 [num_rows]; cosine: 1 of a row of zeros
  float* widest = nullptr;   // float32 [num_rows / kScoreRows]: the largest radius of the group's rows
};

// Where a kernel puts what it finds, in any order. It counts all, but puts no more than there is room for.
struct FoundRef {
  int64_t* count = nullptr;  // int64 [1], added to
  int64_t room = 0;
};

// Pairs of a query and a row, and the upper bound of their score; infinite: nothing is known. Each [room].
struct PairsRef {
  int64_t* of_query = nullptr;
  int64_t* row = nullptr;
  float* high = nullptr;
};

// Products are sums in float32 in any order. Asynchronous, reads the rows once for 64 queries. Throws Error for sizes
// or addresses that do not fit.
void score_groups(const RowsAndQueries& given, const ScoreBoundsRef& bounds, const GroupScoresRef& scores,
                  cudaStream_t stream);

// Finds the pairs of a query and a group whose upper bound is not below least[query], float64 [num_queries]. Puts
// query * number of groups + group to `pairs`, int64 [found.room]. Asynchronous.
void find_pairs(const RowsAndQueries& given, const ScoreBoundsRef& bounds, const GroupScoresRef& scores,
                const double* least, int64_t* pairs, const FoundRef& found, cudaStream_t stream);

// Finds the rows of the pairs of find_pairs() whose upper bound is not below least[query]. Asynchronous. Throws Error
// as score_groups() does.
void score_pairs(const RowsAndQueries& given, const ScoreBoundsRef& bounds, const float* lengths, const double* least,
                 const int64_t* pairs, const FoundRef& found_pairs, const PairsRef& to, const FoundRef& found,
                 cudaStream_t stream);

}  // namespace cohort::ibp
