// Rows of several tables: located by one kernel, fetched by one for each table.
#include "ibp/uses/sharded/fetch.h"

#include <string>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/launch.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr int kMostFetchBlocks = 1024;

struct LocatedInShards {
  uint64_t* entries = nullptr;           // uint64 [tables, count]
  int32_t* positions = nullptr;          // int32 [tables, count]
  unsigned long long* counts = nullptr;  // uint64 [tables]
  unsigned long long* status = nullptr;
  int64_t count = 0;
  int num_tables = 0;
};

// The table that has this id, which exists.
__device__ int table_of(const ShardsRef& shards, int num_tables, int64_t id) {
  if (shards.owners) return shards.owners[id];
  int table = 0;
  while (table + 1 < num_tables && id >= shards.bounds[table + 1]) ++table;
  return table;
}

__device__ int64_t position_of(const ShardsRef& shards, int table, int64_t id) {
  if (!shards.owners) return id - shards.bounds[table];
  return shards.positions ? shards.positions[id] : shards.wide_positions[id];
}

// Lists, for each table, entries and positions of its rows, in any order.
__global__ void __launch_bounds__(base::kBlockThreads)
    locate_sharded_kernel(ShardsRef shards, const int64_t* ids, LocatedInShards located) {
  __shared__ uint32_t counts[kMostShards], firsts[kMostShards];
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t block = int64_t{blockIdx.x} * blockDim.x; block < located.count; block += step) {
    for (int i = threadIdx.x; i < located.num_tables; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    const int64_t position = block + threadIdx.x;
    const int64_t id = position < located.count ? ids[position] : -1;
    const bool exists = id >= 0 && id < shards.num_rows;
    if (position < located.count && !exists) {
      atomicMin(located.status, 2 * static_cast<unsigned long long>(position));
    }
    const int table = exists ? table_of(shards, located.num_tables, id) : 0;
    const uint32_t nth = exists ? atomicAdd(&counts[table], 1u) : 0;
    __syncthreads();
    for (int i = threadIdx.x; i < located.num_tables; i += blockDim.x) {
      firsts[i] = static_cast<uint32_t>(atomicAdd(&located.counts[i], static_cast<unsigned long long>(counts[i])));
    }
    __syncthreads();
    if (exists) {
      const int64_t at = table * located.count + firsts[table] + nth;
      located.entries[at] = entry_of(shards.refs[table], position_of(shards, table, id));
      located.positions[at] = static_cast<int32_t>(position);
    }
  }
}

}  // namespace

void fetch_sharded(std::span<const DeviceTable* const> tables, const ShardsRef& shards, const int64_t* ids,
                   int64_t count, void* out, const ShardedScratch& scratch, cudaStream_t stream) {
  const std::size_t num_tables = tables.size();
  if (num_tables == 0 || num_tables > kMostShards || count > INT32_MAX) {
    throw base::Error({"fetch_sharded", "1 to " + std::to_string(kMostShards) + " tables, up to 2^31 - 1 ids",
                       std::to_string(num_tables) + " tables, " + std::to_string(count) + " ids",
                       "fetch in several calls"});
  }
  unsigned long long *const taken = scratch.found, *const counts = taken + num_tables,
                            *const status = counts + num_tables;
  cuda_check(cudaMemsetAsync(taken, 0, 2 * num_tables * sizeof(*taken), stream), "clear the counts");
  cuda_check(cudaMemsetAsync(status, 0xff, sizeof(*status), stream), "clear the status");
  if (count == 0) return;
  locate_sharded_kernel<<<base::grid_for(count, kMostFetchBlocks), base::kBlockThreads, 0, stream>>>(
      shards, ids, {scratch.entries, scratch.positions, counts, status, count, static_cast<int>(num_tables)});
  cuda_check(cudaGetLastError(), "launch the search for rows");
  for (std::size_t i = 0; i < num_tables; ++i) {
    if (tables[i]->ref().num_rows == 0) continue;
    LocatedRows rows = rows_of(*tables[i]);
    rows.entries = scratch.entries + static_cast<int64_t>(i) * count;
    rows.positions = scratch.positions + static_cast<int64_t>(i) * count;
    rows.count = counts + i;
    rows.next = reinterpret_cast<uint32_t*>(taken + i);  // SMs that are nearer to the link take more rows
    fetch_located(tables[i]->profile(), rows, out, status, stream);
  }
}

}  // namespace cohort::ibp
