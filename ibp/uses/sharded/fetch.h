// Rows of several tables, wherever a GPU reads them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "ibp/gpu.h"

namespace cohort::ibp {

inline constexpr int kMostShards = 64;

// Which table has the row of an id, and where. All arrays lie in GPU memory.
struct ShardsRef {
  const EncodedRef* refs = nullptr;         // EncodedRef [tables]: ref() of each
  int64_t num_rows = 0;                     // of all ids
  const int64_t* bounds = nullptr;          // int64 [tables + 1]: the first id of each table, and the end
  const int32_t* owners = nullptr;          // int32 [num_rows], the table of each id; null: `bounds` says so
  const int32_t* positions = nullptr;       // int32 [num_rows], with `owners`: its row there; null: wide_positions
  const int64_t* wide_positions = nullptr;  // int64 [num_rows]
};

// Memory of one call, in GPU memory.
struct ShardedScratch {
  uint64_t* entries = nullptr;          // uint64 [tables, count]
  int32_t* positions = nullptr;         // int32 [tables, count]
  unsigned long long* found = nullptr;  // uint64 [2 * tables + 1]: see fetch_sharded()
};

// out[i] = the row of ids[i]; ids: int64 [count] in GPU memory. Asynchronous, allocates nothing. scratch.found then
// has, behind `tables` numbers of its own, the number of rows of each table, and the least of 2 * i for an id without a
// row and 2 * i + 1 for a damaged row; kNoFetchError: none. Rows of such ids are not written, or zeros.
void fetch_sharded(std::span<const DeviceTable* const> tables, const ShardsRef& shards, const int64_t* ids,
                   int64_t count, void* out, const ShardedScratch& scratch, cudaStream_t stream);

}  // namespace cohort::ibp
