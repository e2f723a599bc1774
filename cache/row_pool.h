// A pool of decoded feature rows in GPU memory, which batches share: a batch has no rows of its own, it names rows of
// the pool. A row that the pool still has costs nothing; for any other a row of the pool is assigned and written. A
// node that a batch has several times has one row. Rows are assigned in turn, as by the hand of a clock (pool_ref.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/owners.h"
#include "base/scratch.h"
#include "cache/pool_ref.h"

namespace cohort::cache {

// Counted on the GPU, zeros before the batch.
struct PoolCounters {
  unsigned long long missing;      // different rows that the pool had not
  unsigned long long given;        // rows of the pool for them
  unsigned long long first_piece;  // of rows, that was looked at for them
};

// Rows of a batch that the pool had not, in GPU memory.
struct MissingRows {
  const int64_t* nodes = nullptr;  // int64 [counters->missing]
  const uint32_t* rows = nullptr;  // uint32 [the same], of the pool
  const PoolCounters* counters = nullptr;
};

// Of the current GPU. Where the rows themselves lie, others know.
class RowPool {
 public:
  RowPool() = default;
  // `reuse`: rows are found again.
  RowPool(int64_t num_nodes, bool reuse);
  int64_t num_rows() const { return num_rows_; }
  // No row is found again that the pool has now; ordered on `stream`.
  void forget(cudaStream_t stream);
  // Makes it larger; `stream` gets no work between this and the end of the work it has.
  void grow(int64_t num_rows, cudaStream_t stream);
  // row_index[i] = the row of the pool that nodes[i] has, or, where its row is missing, that is to be written. The pool
  // must have as many rows as can be missing, besides those that batches in use name. A node may be there several
  // times.
  // Asynchronous; the result is valid until the next call for a later batch.
  MissingRows assign(const int64_t* nodes, int64_t count, const PoolBatch& batch, PoolCounters* counters,
                     int64_t* row_index, cudaStream_t stream);

 private:
  bool reuse_ = false;
  int64_t num_rows_ = 0;
  base::DeviceArray<uint32_t> row_of_;
  base::Scratch<uint32_t> node_of_, used_by_;
  base::DeviceArray<unsigned long long> next_piece_;  // that the hand comes to, counted without end
  base::Scratch<int64_t> missing_nodes_;
  base::Scratch<int32_t> missing_positions_;
  base::Scratch<uint32_t> missing_rows_;
};

// Fills rows that are missing, of row_bytes each, with a byte.
void fill_missing(const MissingRows& rows, int64_t most, std::byte* pool, int64_t row_bytes, int byte,
                  cudaStream_t stream);

}  // namespace cohort::cache
