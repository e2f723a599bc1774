#include "base/cuda_check.h"
#include "base/launch.h"
#include "cache/row_pool.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr int kBlocks = 1024;
constexpr int64_t kSameNode = -1;  // the row is that of the same node elsewhere in the batch
static_assert(PoolRef::kPieceOfRows == base::kBlockThreads);

// To be called by all threads of the block: numbers those that `counts`, over all blocks, from *sum on.
__device__ int64_t take_number(bool counts, unsigned long long* sum) {
  __shared__ uint32_t of_warp[base::kBlockThreads / 32];
  __shared__ unsigned long long first;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t lanes = __ballot_sync(kWholeWarp, counts);
  if (lane == 0) of_warp[warp] = __popc(lanes);
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t total = 0;
    for (uint32_t& count : of_warp) {
      const uint32_t own = count;
      count = total;
      total += own;
    }
    first = total > 0 ? atomicAdd(sum, total) : 0;
  }
  __syncthreads();
  const auto number = static_cast<int64_t>(first + of_warp[warp] + __popc(lanes & ((1u << lane) - 1)));
  __syncthreads();  // everybody has read
  return number;
}

struct Assigning {
  PoolRef pool;
  const int64_t* nodes;  // int64 [count]
  int64_t count;
  int64_t* row_index;          // int64 [count]
  int64_t* missing_nodes;      // int64 [count]
  int32_t* missing_positions;  // int32 [count], in the batch
  uint32_t* missing_rows;      // uint32 [count]
  unsigned long long* next_piece;
  PoolCounters* counters;
};

__global__ void find_kernel(const __grid_constant__ Assigning job) {
  if (base::grid_first() == 0) job.counters->first_piece = *job.next_piece;
  for (int64_t first = base::grid_first() - threadIdx.x; first < job.count; first += base::grid_step()) {
    const int64_t i = first + threadIdx.x;
    const bool active = i < job.count;
    const int64_t node = active ? job.nodes[i] : 0;
    const uint32_t row = active ? job.pool.find(node) : 0;
    const bool missing = active && row == PoolRef::kNone;
    const bool pending = active && row == PoolRef::kPending;
    const int64_t number = take_number(missing, &job.counters->missing);
    if (missing) {
      job.missing_nodes[number] = node;
      job.missing_positions[number] = static_cast<int32_t>(i);
    } else if (active) {
      job.row_index[i] = pending ? kSameNode : row;
    }
  }
}

// Each block looks at a piece of rows, then at the next that no block has looked at, until there are enough.
__global__ void give_kernel(const __grid_constant__ Assigning job) {
  __shared__ int64_t piece;
  const auto missing = static_cast<int64_t>(job.counters->missing);
  const int64_t num_pieces = (int64_t{job.pool.num_rows} + PoolRef::kPieceOfRows - 1) / PoolRef::kPieceOfRows;
  while (true) {
    if (threadIdx.x == 0) {
      piece = -1;
      const auto given = *static_cast<volatile unsigned long long*>(&job.counters->given);
      if (static_cast<int64_t>(given) < missing) {
        const unsigned long long next = atomicAdd(job.next_piece, 1ull);
        if (static_cast<int64_t>(next - job.counters->first_piece) < num_pieces) {
          piece = static_cast<int64_t>(next % static_cast<unsigned long long>(num_pieces));
        }
      }
    }
    __syncthreads();
    if (piece < 0) return;
    const int64_t row = piece * PoolRef::kPieceOfRows + threadIdx.x;
    const bool is_free = row < job.pool.num_rows && job.pool.is_free(static_cast<uint32_t>(row));
    const int64_t number = take_number(is_free, &job.counters->given);
    if (!is_free || number >= missing) continue;
    const int64_t node = job.missing_nodes[number];
    job.pool.give(static_cast<uint32_t>(row), node);
    job.missing_rows[number] = static_cast<uint32_t>(row);
    job.row_index[job.missing_positions[number]] = row;
  }
}

__global__ void join_kernel(const __grid_constant__ Assigning job) {
  for (int64_t i = base::grid_first(); i < job.count; i += base::grid_step()) {
    if (job.row_index[i] == kSameNode) job.row_index[i] = job.pool.row_of[job.nodes[i]];
  }
}

__global__ void fill_kernel(MissingRows missing, std::byte* pool, int64_t row_bytes, int byte) {
  const auto bytes = static_cast<int64_t>(missing.counters->missing) * row_bytes;
  for (int64_t i = base::grid_first(); i < bytes; i += base::grid_step()) {
    pool[missing.rows[i / row_bytes] * row_bytes + i % row_bytes] = static_cast<std::byte>(byte);
  }
}

}  // namespace

RowPool::RowPool(int64_t num_nodes, bool reuse)
    : reuse_(reuse),
      row_of_(static_cast<std::size_t>(num_nodes), "remember rows of a pool"),
      next_piece_(1, "count rows of a pool") {
  base::fill_gpu(next_piece_.data(), 0, sizeof(unsigned long long));
  base::fill_gpu(row_of_.data(), 0xff, row_of_.size() * sizeof(uint32_t));  // kNone
}

void RowPool::forget(cudaStream_t stream) {
  const std::size_t bytes = row_of_.size() * sizeof(uint32_t);
  cuda_check(cudaMemsetAsync(row_of_.data(), 0xff, bytes, stream), "forget rows of a pool");
}

void RowPool::grow(int64_t num_rows, cudaStream_t stream) {
  base::require(num_rows >= num_rows_ && num_rows <= INT32_MAX, "more rows, below 2^31");
  const auto before = static_cast<std::size_t>(num_rows_), now = static_cast<std::size_t>(num_rows);
  const std::size_t more_bytes = (now - before) * sizeof(uint32_t);
  // No node has them; the last batch that used them was none.
  for (base::Scratch<uint32_t>* each : {&node_of_, &used_by_}) {
    each->extend(now, before, stream);
    cuda_check(cudaMemsetAsync(each->data() + before, 0xff, more_bytes, stream), "clear rows of a pool");
  }
  num_rows_ = num_rows;
}

MissingRows RowPool::assign(const int64_t* nodes, int64_t count, const PoolBatch& batch, PoolCounters* counters,
                            int64_t* row_index, cudaStream_t stream) {
  const auto most = static_cast<std::size_t>(count);
  const Assigning job{.pool = {.row_of = row_of_.data(),
                               .node_of = node_of_.data(),
                               .used_by = used_by_.data(),
                               .num_rows = static_cast<uint32_t>(num_rows_),
                               .reuse = reuse_,
                               .batch = batch},
                      .nodes = nodes,
                      .count = count,
                      .row_index = row_index,
                      .missing_nodes = missing_nodes_.reserve(most),
                      .missing_positions = missing_positions_.reserve(most),
                      .missing_rows = missing_rows_.reserve(most),
                      .next_piece = next_piece_.data(),
                      .counters = counters};
  find_kernel<<<base::grid_for(count, kBlocks), base::kBlockThreads, 0, stream>>>(job);
  give_kernel<<<base::grid_for(count, kBlocks), base::kBlockThreads, 0, stream>>>(job);
  join_kernel<<<base::grid_for(count, kBlocks), base::kBlockThreads, 0, stream>>>(job);
  cuda_check(cudaGetLastError(), "assign rows of a pool");
  return {job.missing_nodes, job.missing_rows, counters};
}

void fill_missing(const MissingRows& rows, int64_t most, std::byte* pool, int64_t row_bytes, int byte,
                  cudaStream_t stream) {
  const int grid = base::grid_for(most * row_bytes, kBlocks);
  fill_kernel<<<grid, base::kBlockThreads, 0, stream>>>(rows, pool, row_bytes, byte);
  cuda_check(cudaGetLastError(), "fill rows");
}

}  // namespace cohort::cache
