// A block of four warps multiplies tiles of 128 rows and 64 queries, 64 columns at a time, by tensor cores; each warp
// has 64 rows and 32 queries. Three stages of shared memory: one is multiplied while two are on their way. Neither
// products nor lengths of single rows need another pass over the rows.
#include "ibp/uses/topk/group_scores.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/launch.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr uint32_t kTileRows = 128, kTileQueries = 64, kScoreWarps = 4;
constexpr uint32_t kWarpRows = 64, kWarpQueries = 32;
constexpr uint32_t kChunkColumns = 64, kUnits = 8;  // of a row of a stage: units of 16 bytes
constexpr uint32_t kUnitColumns = 8, kStageLineBytes = kChunkColumns * 2;
constexpr uint32_t kStages = 3, kBlocksAnSm = 3;
constexpr int kMostScoreBlocks = 4096;  // of the kernels for groups and pairs
constexpr uint32_t kRowsBytes = kTileRows * kStageLineBytes, kStageBytes = kRowsBytes + kTileQueries * kStageLineBytes;
constexpr uint32_t kSharedBytes = kStages * kStageBytes + kTileRows * uint32_t{sizeof(float2)};
constexpr uint32_t kRowTiles = kWarpRows / 8, kQueryTiles = kWarpQueries / 16;  // of a warp, as mma has them
constexpr uint32_t kWarpGroups = kWarpRows / uint32_t{kScoreRows}, kGroupTiles = kRowTiles / kWarpGroups;

struct ScoreJob {
  RowsAndQueries given;
  ScoreBoundsRef bounds;
  GroupScoresRef scores;
  uint32_t chunks;       // of columns
  uint32_t query_tiles;  // these of a tile of rows follow each other
  uint32_t num_tiles;    // of rows and queries
};

// Where unit `unit` of line `line` of a stage is: units of eight lines next to each other lie in different banks.
__device__ inline uint32_t offset_of(uint32_t line, uint32_t unit) {
  return line * kStageLineBytes + ((unit ^ (line % kUnits)) * 16);
}

// 16 bytes to shared memory, or zeros.
__device__ inline void copy_unit(uint32_t to, const uint16_t* from, bool exists) {
  const uint32_t bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ inline void load_matrices(uint32_t from, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// sums += 16 queries times 8 rows, of 16 columns.
__device__ inline void multiply(float (&sums)[4], const uint32_t (&queries)[4], uint32_t low, uint32_t high) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(queries[0]), "r"(queries[1]), "r"(queries[2]), "r"(queries[3]), "r"(low), "r"(high));
}

// NaN if one of them is.
__device__ inline float larger(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ inline float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_of(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// The steps of a block: chunks of columns of its tiles.
struct Step {
  uint32_t tile, chunk = 0;
  __device__ void advance(const ScoreJob& job) {
    if (++chunk < job.chunks) return;
    chunk = 0;
    tile += gridDim.x;
  }
  __device__ int64_t first_row(const ScoreJob& job) const { return int64_t{tile / job.query_tiles} * kTileRows; }
  __device__ int64_t first_query(const ScoreJob& job) const { return int64_t{tile % job.query_tiles} * kTileQueries; }
};

// Asks for the columns of a step; behind the last step for nothing.
__device__ inline void ask(const ScoreJob& job, const Step& step, uint32_t stage) {
  if (step.tile < job.num_tiles) {
    const uint32_t unit = threadIdx.x % kUnits, column = step.chunk * kChunkColumns + unit * kUnitColumns;
    const bool inside = column < job.given.num_columns;
    const auto copy = [&](const uint16_t* table, int64_t first, int64_t count, uint32_t lines, uint32_t to) {
#pragma unroll 4
      for (uint32_t line = threadIdx.x / kUnits; line < lines; line += kScoreWarps * 32 / kUnits) {
        const int64_t row = first + line;
        const bool exists = inside && row < count;
        const uint16_t* from = exists ? table + row * job.given.num_columns + column : table;
        copy_unit(to + offset_of(line, unit), from, exists);
      }
    };
    copy(job.given.rows, step.first_row(job), job.given.num_rows, kTileRows, stage);
    copy(job.given.queries, step.first_query(job), job.given.num_queries, kTileQueries, stage + kRowsBytes);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// What a warp adds up: products, and the squares of half of its rows; the other half is that of the warp which has the
// same rows and other queries.
struct Sums {
  float products[kQueryTiles][kRowTiles][4] = {};
  float squares[kRowTiles / 2] = {};  // of row lane / 4 of each tile, of a fourth of the columns
  uint32_t bits[kRowTiles / 2] = {};  // which are set in any of them, without the signs
};

struct WarpPosition {
  uint32_t lane = threadIdx.x % 32;
  uint32_t rows_part = threadIdx.x / 32 / 2, queries_part = threadIdx.x / 32 % 2;
};

__device__ inline void multiply_stage(uint32_t stage, const WarpPosition& at, Sums& sums) {
#pragma unroll
  for (uint32_t part = 0; part < kChunkColumns / 16; ++part) {
    uint32_t queries[kQueryTiles][4];
#pragma unroll
    for (uint32_t i = 0; i < kQueryTiles; ++i) {
      const uint32_t line = at.queries_part * kWarpQueries + i * 16 + at.lane % 16;
      load_matrices(stage + kRowsBytes + offset_of(line, part * 2 + at.lane / 16), queries[i]);
    }
#pragma unroll
    for (uint32_t j = 0; j < kRowTiles; j += 2) {
      uint32_t rows[4];  // of tiles j and j + 1, two each
      const uint32_t line = at.rows_part * kWarpRows + j * 8 + at.lane % 8 + at.lane / 16 * 8;
      load_matrices(stage + offset_of(line, part * 2 + at.lane / 8 % 2), rows);
#pragma unroll
      for (uint32_t i = 0; i < kQueryTiles; ++i) {
        multiply(sums.products[i][j], queries[i], rows[0], rows[1]);
        multiply(sums.products[i][j + 1], queries[i], rows[2], rows[3]);
      }
      if (j / (kRowTiles / 2) != at.queries_part) continue;
#pragma unroll
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t own = (j + k / 2) % (kRowTiles / 2);
        sums.squares[own] = fmaf(low_of(rows[k]), low_of(rows[k]), sums.squares[own]);
        sums.squares[own] = fmaf(high_of(rows[k]), high_of(rows[k]), sums.squares[own]);
        sums.bits[own] |= rows[k] & 0x7fff7fffu;
      }
    }
  }
}

// The lengths of the warp's half of its rows, and into `scales` what their products are multiplied by and what is
// added.
__device__ inline void finish_rows(const ScoreJob& job, const Step& step, const WarpPosition& at, Sums& sums,
                                   float2* scales) {
#pragma unroll
  for (uint32_t i = 0; i < kRowTiles / 2; ++i) {
#pragma unroll
    for (uint32_t other = 1; other < 4; other *= 2) {
      sums.squares[i] += __shfl_xor_sync(kAllLanes, sums.squares[i], other);
      sums.bits[i] |= __shfl_xor_sync(kAllLanes, sums.bits[i], other);
    }
    if (at.lane % 4 != 0) continue;
    const uint32_t tile = at.queries_part * (kRowTiles / 2) + i;
    const uint32_t line = at.rows_part * kWarpRows + tile * 8 + at.lane / 4;
    const bool empty = job.bounds.measure == Measure::kCosine && sums.bits[i] == 0;
    const float length = empty ? 1.0f : sqrtf(sums.squares[i]);
    scales[line] = {job.bounds.measure == Measure::kCosine ? 1.0f / length : 1.0f,
                    job.bounds.measure == Measure::kL2 ? -length * length : 0.0f};
    const int64_t row = step.first_row(job) + line;
    if (step.tile % job.query_tiles == 0 && row < job.given.num_rows) job.scores.lengths[row] = length;
  }
}

// The best of each of the warp's groups with each of its queries.
__device__ inline void finish_groups(const ScoreJob& job, const Step& step, const WarpPosition& at, const Sums& sums,
                                     const float2* scales) {
  const int64_t num_groups = job.given.num_rows / kScoreRows;
#pragma unroll
  for (uint32_t i = 0; i < kQueryTiles; ++i) {
#pragma unroll
    for (uint32_t half = 0; half < 2; ++half) {
      const int64_t query = step.first_query(job) + at.queries_part * kWarpQueries + i * 16 + half * 8 + at.lane / 4;
      const float factor = query < job.given.num_queries ? __ldg(job.bounds.factors + query) : 0.0f;
#pragma unroll
      for (uint32_t g = 0; g < kWarpGroups; ++g) {
        float best = -INFINITY;
#pragma unroll
        for (uint32_t j = g * kGroupTiles; j < (g + 1) * kGroupTiles; ++j) {
#pragma unroll
          for (uint32_t k = 0; k < 2; ++k) {
            const float2 scale = scales[at.rows_part * kWarpRows + j * 8 + at.lane % 4 * 2 + k];
            best = larger(best, fmaf(sums.products[i][j][half * 2 + k] * factor, scale.x, scale.y));
          }
        }
        best = larger(best, __shfl_xor_sync(kAllLanes, best, 1));
        best = larger(best, __shfl_xor_sync(kAllLanes, best, 2));
        const int64_t group = step.first_row(job) / kScoreRows + at.rows_part * kWarpGroups + g;
        const bool mine = at.lane % 4 == half * kWarpGroups + g;
        if (mine && query < job.given.num_queries && group < num_groups) {
          job.scores.best[group * job.given.num_queries + query] = best;
        }
      }
    }
  }
}

__global__ void __launch_bounds__(kScoreWarps * 32, kBlocksAnSm)
    score_groups_kernel(const __grid_constant__ ScoreJob job) {
  extern __shared__ __align__(128) std::byte shared[];
  const auto stages = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  auto* scales = reinterpret_cast<float2*>(shared + kStages * kStageBytes);  // [kTileRows]
  const WarpPosition at;
  Step asked{blockIdx.x}, step{blockIdx.x};
  uint32_t stage = 0, next = 0;
  for (uint32_t i = 0; i + 1 < kStages; ++i, ++next, asked.advance(job)) ask(job, asked, stages + next * kStageBytes);
  Sums sums;
  while (step.tile < job.num_tiles) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // the stage is there, and the one that is asked for next has been multiplied
    ask(job, asked, stages + next * kStageBytes);
    asked.advance(job);
    multiply_stage(stages + stage * kStageBytes, at, sums);
    if (step.chunk + 1 == job.chunks) {
      finish_rows(job, step, at, sums, scales);
      __syncthreads();
      finish_groups(job, step, at, sums, scales);
      sums = {};
    }
    step.advance(job);
    stage = stage + 1 == kStages ? 0 : stage + 1;
    next = next + 1 == kStages ? 0 : next + 1;
  }
}

__device__ inline float radius_of(const ScoreBoundsRef& bounds, float length) {
  const float radius = bounds.measure == Measure::kCosine ? (length > bounds.smallest ? bounds.slope : INFINITY)
                                                          : bounds.slope * (length * bounds.stretch + bounds.least);
  return length < bounds.largest ? radius : INFINITY;
}

// The last step of a score.
__device__ inline float distance_of(const ScoreBoundsRef& bounds, float score, int64_t query) {
  return bounds.measure == Measure::kL2 ? -sqrtf(larger(bounds.squares[query] - score, 0.0f)) : score;
}

// A warp has a group.
__global__ void find_widest_kernel(ScoreBoundsRef bounds, GroupScoresRef scores, int64_t num_groups) {
  const uint32_t lane = threadIdx.x % 32;
  for (int64_t group = base::grid_first() / 32; group < num_groups; group += base::grid_step() / 32) {
    float widest = radius_of(bounds, scores.lengths[group * kScoreRows + lane]);
    for (uint32_t other = 16; other > 0; other /= 2) {
      widest = larger(widest, __shfl_xor_sync(kAllLanes, widest, other));
    }
    if (lane == 0) scores.widest[group] = widest;
  }
}

// For all lanes of a warp: where a lane that keeps something puts it.
__device__ inline int64_t position_of_kept(bool keeps, int64_t* count) {
  const uint32_t lane = threadIdx.x % 32, kept = __ballot_sync(kAllLanes, keeps);
  unsigned long long first = 0;
  if (lane == 0 && kept != 0) {
    first = atomicAdd(reinterpret_cast<unsigned long long*>(count), static_cast<unsigned long long>(__popc(kept)));
  }
  return static_cast<int64_t>(__shfl_sync(kAllLanes, first, 0)) + __popc(kept & ((1u << lane) - 1));
}

__global__ void find_pairs_kernel(RowsAndQueries given, ScoreBoundsRef bounds, GroupScoresRef scores,
                                  const double* least, int64_t* pairs, FoundRef found) {
  const int64_t num_groups = given.num_rows / kScoreRows, size = num_groups * given.num_queries;
  for (int64_t i = base::grid_first(); i - threadIdx.x % 32 < size; i += base::grid_step()) {
    const int64_t group = i / given.num_queries, query = i - group * given.num_queries;
    const bool keeps = i < size && !(distance_of(bounds, scores.best[i], query) + scores.widest[group] < least[query]);
    const int64_t position = position_of_kept(keeps, found.count);
    if (keeps && position < found.room) pairs[position] = query * num_groups + group;
  }
}

// sum + the product of eight numbers, bfloat16 and float32.
__device__ inline float add_product(float sum, const uint4& a, const float (&b)[8]) {
  const uint32_t parts[] = {a.x, a.y, a.z, a.w};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) sum = fmaf(high_of(parts[i]), b[2 * i + 1], fmaf(low_of(parts[i]), b[2 * i], sum));
  return sum;
}

// For a warp: lane j gets the product of row j of the group with the query. Four lanes read a row, eight rows at a
// time.
__device__ inline float product_of_lane(const RowsAndQueries& given, int64_t group, int64_t query) {
  constexpr uint32_t kParts = 4;
  const uint32_t lane = threadIdx.x % 32, unit = lane % 4 * kUnitColumns;
  const uint16_t* rows = given.rows + (group * kScoreRows + lane / 4) * given.num_columns;
  const uint16_t* of_query = given.queries + query * given.num_columns;
  float sums[kParts] = {};
#pragma unroll 2
  for (uint32_t column = unit; column < given.num_columns; column += 4 * kUnitColumns) {
    uint4 parts[kParts];
#pragma unroll
    for (uint32_t i = 0; i < kParts; ++i) {
      parts[i] = *reinterpret_cast<const uint4*>(rows + i * 8 * given.num_columns + column);
    }
    const uint4 packed = __ldg(reinterpret_cast<const uint4*>(of_query + column));
    const float numbers[] = {low_of(packed.x), high_of(packed.x), low_of(packed.y), high_of(packed.y),
                             low_of(packed.z), high_of(packed.z), low_of(packed.w), high_of(packed.w)};
#pragma unroll
    for (uint32_t i = 0; i < kParts; ++i) sums[i] = add_product(sums[i], parts[i], numbers);
  }
  float mine = 0;
#pragma unroll
  for (uint32_t i = 0; i < kParts; ++i) {
    for (uint32_t other = 1; other < 4; other *= 2) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], other);
    const float of_eight = __shfl_sync(kAllLanes, sums[i], lane % 8 * 4);
    if (lane / 8 == i) mine = of_eight;
  }
  return mine;
}

// A warp has a pair of a query and a group.
__global__ void score_pairs_kernel(RowsAndQueries given, ScoreBoundsRef bounds, const float* lengths,
                                   const double* least, const int64_t* pairs, FoundRef found_pairs, PairsRef to,
                                   FoundRef found) {
  const int64_t num_groups = given.num_rows / kScoreRows, count = min(*found_pairs.count, found_pairs.room);
  for (int64_t i = base::grid_first() / 32; i < count; i += base::grid_step() / 32) {
    const int64_t query = pairs[i] / num_groups, group = pairs[i] - query * num_groups;
    const int64_t row = group * kScoreRows + threadIdx.x % 32;
    const float length = lengths[row];
    float score = product_of_lane(given, group, query);
    if (bounds.measure == Measure::kCosine) score /= length;
    if (bounds.measure == Measure::kL2) score = bounds.factors[query] * score - length * length;
    const float sum = distance_of(bounds, score, query) + radius_of(bounds, length);
    const float high = isfinite(sum) ? sum : INFINITY;
    const bool keeps = high >= least[query];
    const int64_t position = position_of_kept(keeps, found.count);
    if (!keeps || position >= found.room) continue;
    to.of_query[position] = query;
    to.row[position] = row;
    to.high[position] = high;
  }
}

void check_given(const RowsAndQueries& given) {
  const auto addresses = reinterpret_cast<uintptr_t>(given.rows) | reinterpret_cast<uintptr_t>(given.queries);
  if (addresses % 16 == 0 && given.num_columns > 0 && given.num_columns % kUnitColumns == 0 &&
      given.num_rows % kScoreRows == 0) {
    return;
  }
  throw Error({"scores of groups", "rows in whole groups of 32, whole units of 16 bytes",
               std::to_string(given.num_rows) + " rows of " + std::to_string(given.num_columns) + " columns", ""});
}

}  // namespace

void score_groups(const RowsAndQueries& given, const ScoreBoundsRef& bounds, const GroupScoresRef& scores,
                  cudaStream_t stream) {
  check_given(given);
  const int64_t query_tiles = (given.num_queries + kTileQueries - 1) / kTileQueries;
  const int64_t num_tiles = (given.num_rows + kTileRows - 1) / kTileRows * query_tiles;
  if (num_tiles == 0) return;
  if (num_tiles > INT32_MAX) throw Error({"scores of groups", "fewer rows or queries", std::to_string(num_tiles), ""});
  int device = 0, num_sms = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device));
  cuda_check(cudaFuncSetAttribute(score_groups_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int{kSharedBytes}),
             "give the scores their shared memory");
  const uint32_t chunks = (given.num_columns + kChunkColumns - 1) / kChunkColumns;
  const ScoreJob job{
      given, bounds, scores, chunks, static_cast<uint32_t>(query_tiles), static_cast<uint32_t>(num_tiles)};
  const auto blocks = static_cast<uint32_t>(std::min<int64_t>(num_tiles, int64_t{num_sms} * kBlocksAnSm));
  score_groups_kernel<<<blocks, kScoreWarps * 32, kSharedBytes, stream>>>(job);
  cuda_check(cudaGetLastError(), "launch the scores of groups");
  find_widest_kernel<<<base::grid_for(given.num_rows, kMostScoreBlocks), base::kBlockThreads, 0, stream>>>(
      bounds, scores, given.num_rows / kScoreRows);
  cuda_check(cudaGetLastError(), "launch the radiuses of groups");
}

void find_pairs(const RowsAndQueries& given, const ScoreBoundsRef& bounds, const GroupScoresRef& scores,
                const double* least, int64_t* pairs, const FoundRef& found, cudaStream_t stream) {
  const int64_t size = given.num_rows / kScoreRows * given.num_queries;
  if (size == 0) return;
  find_pairs_kernel<<<base::grid_for(size, kMostScoreBlocks), base::kBlockThreads, 0, stream>>>(given, bounds, scores,
                                                                                                least, pairs, found);
  cuda_check(cudaGetLastError(), "launch the search for pairs");
}

void score_pairs(const RowsAndQueries& given, const ScoreBoundsRef& bounds, const float* lengths, const double* least,
                 const int64_t* pairs, const FoundRef& found_pairs, const PairsRef& to, const FoundRef& found,
                 cudaStream_t stream) {
  check_given(given);
  if (found_pairs.room == 0) return;
  score_pairs_kernel<<<base::grid_for(found_pairs.room * 32, kMostScoreBlocks), base::kBlockThreads, 0, stream>>>(
      given, bounds, lengths, least, pairs, found_pairs, to, found);
  cuda_check(cudaGetLastError(), "launch the scores of pairs");
}

}  // namespace cohort::ibp
