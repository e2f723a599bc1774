// The different ones among ids, and where the rows of these lie.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>

#include <bit>
#include <string>

#include "base/bits.h"
#include "base/cuda_check.h"
#include "base/launch.h"
#include "ibp/uses/bags.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr int kMostMarkBlocks = 1024;
constexpr std::size_t kAlignment = 256;  // of each array of Memory
constexpr unsigned long long kNowhere = ~0ull;

// What the kernels tell the host.
struct Words {
  unsigned long long count;
  unsigned long long padding_row;
  uint32_t next;
  uint32_t outside;  // an id is not a row of the table
};

// The memory of a call, divided up.
struct Memory {
  Words* words;
  uint64_t* entries;                      // uint64 [count]
  uint32_t *keys, *keys_sorted;           // uint32 [count]
  int32_t *positions, *positions_sorted;  // int32 [count]
  std::byte* cub;
  std::size_t cub_bytes;
  std::size_t bytes;
};

cudaError_t sort(const Memory& memory, std::size_t& cub_bytes, int64_t count, int bits, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(memory.cub, cub_bytes, memory.keys, memory.keys_sorted, memory.positions,
                                         memory.positions_sorted, count, 0, bits, stream);
}

cudaError_t add_up(const Memory& memory, std::size_t& cub_bytes, int64_t count, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSum(memory.cub, cub_bytes, memory.keys, memory.keys, count, stream);
}

Memory divide(void* begin, int64_t count) {
  std::size_t at = 0;
  const auto take = [&](std::size_t bytes) {
    std::byte* const part = begin ? static_cast<std::byte*>(begin) + at : nullptr;
    at = base::round_up(at + bytes, kAlignment);
    return part;
  };
  const auto each = static_cast<std::size_t>(count);
  Memory memory{};
  memory.words = reinterpret_cast<Words*>(take(sizeof(Words)));
  memory.entries = reinterpret_cast<uint64_t*>(take(8 * each));
  memory.keys = reinterpret_cast<uint32_t*>(take(4 * each));
  memory.keys_sorted = reinterpret_cast<uint32_t*>(take(4 * each));
  memory.positions = reinterpret_cast<int32_t*>(take(4 * each));
  memory.positions_sorted = reinterpret_cast<int32_t*>(take(4 * each));
  std::size_t of_sort = 0, of_sum = 0;
  cuda_check(sort({}, of_sort, count, 32, nullptr), "size the sort of ids");
  cuda_check(add_up({}, of_sum, count, nullptr), "size the sum of ids");
  memory.cub_bytes = std::max(of_sort, of_sum);
  memory.cub = take(memory.cub_bytes);
  memory.bytes = at;
  return memory;
}

// Sort keys: the row, or num_rows for an id outside the table.
template <typename Id>
__global__ void keys_kernel(const Id* ids, int64_t count, int64_t num_rows, Memory to) {
  if (base::grid_first() == 0) *to.words = {0, kNowhere, 0, 0};
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const int64_t id = ids[i];
    to.keys[i] = static_cast<uint32_t>(id >= 0 && id < num_rows ? id : num_rows);
    to.positions[i] = static_cast<int32_t>(i);
  }
}

// keys[i]: 1 where an id begins that is not the one before it.
__global__ void begins_kernel(Memory memory, int64_t count) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    memory.keys[i] = i == 0 || memory.keys_sorted[i - 1] != memory.keys_sorted[i];
  }
}

// With keys[i] the number of different ids up to here.
__global__ void index_kernel(EncodedRef rows, Memory memory, int64_t count, int64_t padding, int32_t* row_index) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const uint32_t number = memory.keys[i] - 1;
    const int64_t row = memory.keys_sorted[i];
    row_index[memory.positions_sorted[i]] = static_cast<int32_t>(number);
    if (i == count - 1) memory.words->count = number + 1;
    if (i > 0 && memory.keys_sorted[i - 1] == row) continue;
    if (row == rows.num_rows) {
      memory.words->outside = 1;
      continue;
    }
    memory.entries[number] = entry_of(rows, row);
    if (row == padding) memory.words->padding_row = number;
  }
}

}  // namespace

std::size_t distinct_bytes(int64_t count) { return divide(nullptr, count).bytes; }

DistinctRef distinct_in(void* memory, int64_t count) {
  const Memory parts = divide(memory, count);
  return {parts.entries, &parts.words->count, &parts.words->next};
}

Distinct find_distinct(const DeviceTable& table, const IdsRef& ids, void* memory, int32_t* row_index,
                       cudaStream_t stream) {
  const int64_t num_rows = table.ref().num_rows;
  if (ids.count < 1 || ids.count > INT32_MAX || num_rows > int64_t{UINT32_MAX}) {
    throw base::Error({"find_distinct", "1 to 2^31 - 1 ids of a table of fewer than 2^32 rows",
                       std::to_string(ids.count) + " of " + std::to_string(num_rows), ""});
  }
  const Memory parts = divide(memory, ids.count);
  const int blocks = base::grid_for(ids.count, kMostMarkBlocks);
  if (ids.wide) {
    keys_kernel<<<blocks, base::kBlockThreads, 0, stream>>>(static_cast<const int64_t*>(ids.ids), ids.count, num_rows,
                                                            parts);
  } else {
    keys_kernel<<<blocks, base::kBlockThreads, 0, stream>>>(static_cast<const int32_t*>(ids.ids), ids.count, num_rows,
                                                            parts);
  }
  std::size_t bytes = parts.cub_bytes;
  cuda_check(sort(parts, bytes, ids.count, std::bit_width(static_cast<uint64_t>(num_rows)), stream), "sort ids");
  begins_kernel<<<blocks, base::kBlockThreads, 0, stream>>>(parts, ids.count);
  bytes = parts.cub_bytes;
  cuda_check(add_up(parts, bytes, ids.count, stream), "number ids");
  index_kernel<<<blocks, base::kBlockThreads, 0, stream>>>(table.ref(), parts, ids.count, ids.padding, row_index);
  cuda_check(cudaGetLastError(), "launch the search for different ids");
  Words words{};
  cuda_check(cudaMemcpyAsync(&words, parts.words, sizeof(words), cudaMemcpyDeviceToHost, stream), "count ids");
  cuda_check(cudaStreamSynchronize(stream), "find different ids");
  return {static_cast<int64_t>(words.count), static_cast<int64_t>(words.padding_row), words.outside != 0};
}

}  // namespace cohort::ibp
