#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/transpose.h"

namespace cohort::trainer {
namespace {

using base::cuda_check;
using base::grid_first;
using base::kBlockThreads;

constexpr std::size_t kAlignment = 256;

// Arrays of the sort inside the scratch memory: uint32 [num_edges] each, then what CUB needs.
struct SortArrays {
  uint32_t* keys;
  uint32_t* sorted_keys;
  int32_t* edges;
  std::byte* temporary;
  std::size_t temporary_offset;

  SortArrays(std::byte* scratch, int64_t num_edges) {
    const std::size_t bytes = (static_cast<std::size_t>(num_edges) * 4 + kAlignment - 1) / kAlignment * kAlignment;
    keys = reinterpret_cast<uint32_t*>(scratch);
    sorted_keys = reinterpret_cast<uint32_t*>(scratch + bytes);
    edges = reinterpret_cast<int32_t*>(scratch + 2 * bytes);
    temporary = scratch + 3 * bytes;
    temporary_offset = 3 * bytes;
  }
};

__global__ void fill_keys_kernel(const __grid_constant__ TransposeCall call, uint32_t* keys, int32_t* edges) {
  const int64_t e = grid_first();
  if (e >= call.block.num_edges) return;
  const bool counts = e < call.block.first(call.block.num_rows);
  keys[e] = static_cast<uint32_t>(counts ? call.block.index[e] : call.num_columns);
  edges[e] = static_cast<int32_t>(e);
}

// Thread i writes the row of edge i and the offset of column i.
__global__ void write_columns_kernel(const __grid_constant__ TransposeCall call, const uint32_t* sorted_keys) {
  const int64_t i = grid_first(), num_edges = call.block.num_edges;
  if (i < num_edges) {
    const int64_t row = call.block.row_at(call.edge[i]);
    call.index[i] = row < 0 ? 0 : row;
  }
  if (i > call.num_columns) return;
  call.offsets[i] = base::first_not_before(0, num_edges, [=](int64_t at) { return sorted_keys[at] < i; });
}

unsigned blocks_for(int64_t work) { return static_cast<unsigned>((work + kBlockThreads - 1) / kBlockThreads); }

}  // namespace

std::size_t transpose_scratch_bytes(int64_t num_edges) {
  std::size_t bytes = 0;
  const uint32_t* keys = nullptr;
  const int32_t* edges = nullptr;
  cuda_check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, static_cast<uint32_t*>(nullptr), edges,
                                             static_cast<int32_t*>(nullptr), num_edges),
             "size a sort");
  return SortArrays(nullptr, num_edges).temporary_offset + bytes;
}

void run_on_gpu(const TransposeCall& call, cudaStream_t stream) {
  const int64_t num_edges = call.block.num_edges;
  const SortArrays arrays(call.scratch, num_edges);
  if (num_edges > 0) {
    fill_keys_kernel<<<blocks_for(num_edges), kBlockThreads, 0, stream>>>(call, arrays.keys, arrays.edges);
    cuda_check(cudaGetLastError(), "launch the filling of keys");
    std::size_t bytes = call.scratch_bytes - arrays.temporary_offset;
    const int end_bit = std::bit_width(static_cast<uint64_t>(call.num_columns));
    cuda_check(cub::DeviceRadixSort::SortPairs(arrays.temporary, bytes, arrays.keys, arrays.sorted_keys, arrays.edges,
                                               call.edge, num_edges, 0, end_bit, stream),
               "sort edges by source");
  }
  write_columns_kernel<<<blocks_for(std::max(num_edges, call.num_columns + 1)), kBlockThreads, 0, stream>>>(
      call, arrays.sorted_keys);
  cuda_check(cudaGetLastError(), "launch the writing of columns");
}

}  // namespace cohort::trainer
