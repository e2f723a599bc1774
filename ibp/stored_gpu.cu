// Rows as they are stored, for other GPUs.
#include <numeric>
#include <string>

#include "base/bits.h"
#include "base/check.h"
#include "base/device.h"
#include "base/launch.h"
#include "ibp/device_bits.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr int kMostBlocks = 1024;
constexpr int kWarps = base::kBlockThreads / 32;

__device__ bool is_inside(const EncodedRef& rows, int64_t row) { return row >= 0 && row < rows.num_rows; }

__global__ void sizes_kernel(EncodedRef rows, const int64_t* index, int64_t count, int64_t* sizes) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint32_t bytes = is_inside(rows, index[i]) ? joined_bytes(rows, locate(rows, index[i])) : 0;
    sizes[i] = base::round_up(bytes, kStoredStep);
  }
}

// `bytes` of them, and up to a whole Word more.
template <typename Word>
__device__ void copy_bytes(const std::byte* from, std::byte* to, uint32_t bytes) {
  const auto* words = reinterpret_cast<const Word*>(from);
  for (uint32_t i = lane_id(); i * sizeof(Word) < bytes; i += 32) reinterpret_cast<Word*>(to)[i] = __ldcs(words + i);
}

// A warp a row; all begin at multiples of a Word, planes B too.
template <typename Word>
__global__ void __launch_bounds__(base::kBlockThreads)
    take_kernel(EncodedRef rows, const int64_t* index, int64_t count, const int64_t* ends, StoredRef out) {
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < count; i += step) {
    const int64_t begin = i == 0 ? 0 : ends[i - 1];
    RowSpan row;
    if (is_inside(rows, index[i])) row = locate(rows, index[i]);
    const uint32_t bytes = row.begin ? joined_bytes(rows, row) : 0;
    if (lane_id() == 0) {
      out.entries[i] = make_entry(static_cast<uint64_t>(begin), base::round_up(bytes, 4u), row.raw);
    }
    std::byte* const to = out.data + begin;
    copy_bytes<Word>(row.begin, to, row.bytes);
    if (row.plane_b) copy_bytes<Word>(row.plane_b, to + row.bytes, rows.plane_b_stride_bytes);
  }
}

struct Located {
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

__device__ int64_t place_of(const ShardsRef& shards, int table, int64_t id) {
  if (!shards.owners) return id - shards.bounds[table];
  return shards.places ? shards.places[id] : shards.wide_places[id];
}

// Lists, for each table, entries and positions of its rows, in any order.
__global__ void __launch_bounds__(base::kBlockThreads)
    locate_sharded_kernel(ShardsRef shards, const int64_t* ids, Located located) {
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
      located.entries[at] = entry_of(shards.refs[table], place_of(shards, table, id));
      located.positions[at] = static_cast<int32_t>(position);
    }
  }
}

}  // namespace

void stored_sizes(const DeviceTable& table, const int64_t* index, int64_t count, int64_t* sizes, cudaStream_t stream) {
  if (count == 0) return;
  sizes_kernel<<<base::grid_for(count, kMostBlocks), base::kBlockThreads, 0, stream>>>(table.ref(), index, count,
                                                                                       sizes);
  cuda_check(cudaGetLastError(), "launch the sizes of stored rows");
}

void take_stored(const DeviceTable& table, const int64_t* index, int64_t count, const int64_t* ends,
                 const StoredRef& out, cudaStream_t stream) {
  if (count == 0) return;
  const EncodedRef& rows = table.ref();
  uint32_t step = step_of(rows);
  if (rows.plane_b) step = std::gcd(step, std::gcd(rows.plane_b_stride_bytes, rows.stride_bytes));
  const int blocks = base::grid_for(count * 32, kMostBlocks);
  const auto launch = [&]<typename Word>(Word) {
    take_kernel<Word><<<blocks, base::kBlockThreads, 0, stream>>>(rows, index, count, ends, out);
  };
  if (step % 16 == 0) {
    launch(uint4{});
  } else if (step % 4 == 0) {
    launch(uint32_t{});
  } else {
    launch(uint8_t{});
  }
  cuda_check(cudaGetLastError(), "launch the copy of stored rows");
}

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
  locate_sharded_kernel<<<base::grid_for(count, kMostBlocks), base::kBlockThreads, 0, stream>>>(
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
