#include "sampler/gather.h"

#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "base/launch.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

__global__ void write_nodes_kernel(const int64_t* n_id, int64_t num_nodes, const int64_t* labels, int64_t* out_n_id,
                                   int64_t* out_y) {
  for (int64_t i = grid_first(); i < num_nodes; i += grid_step()) {
    out_n_id[i] = n_id[i];
    out_y[i] = labels[n_id[i]];
  }
}

__global__ void write_edges_kernel(const int32_t* source, const int32_t* target, int64_t num_edges,
                                   int64_t* edge_index) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    edge_index[e] = source[e];
    edge_index[num_edges + e] = target[e];
  }
}

__global__ void count_up_kernel(int32_t* row, int64_t size) {
  for (int64_t i = grid_first(); i < size; i += grid_step()) row[i] = static_cast<int32_t>(i);
}

// 2^lanes_log2 threads a row, each moving Vector after Vector.
template <typename Vector>
__global__ void gather_kernel(const Vector* table, const int64_t* id, const int32_t* row, int64_t num_rows,
                              int64_t row_vectors, int lanes_log2, Vector* x) {
  const int64_t lanes = int64_t{1} << lanes_log2;
  for (int64_t t = grid_first(); t < num_rows << lanes_log2; t += grid_step()) {
    const int64_t i = t >> lanes_log2;
    const Vector* from = table + id[i] * row_vectors;
    Vector* to = x + row[i] * row_vectors;
    for (int64_t v = t & (lanes - 1); v < row_vectors; v += lanes) to[v] = from[v];
  }
}

template <typename Vector>
void gather(const RowsRef& rows, const int64_t* id, const int32_t* row, int64_t num_rows, std::byte* x, int max_blocks,
            cudaStream_t stream) {
  const int64_t row_vectors = rows.row_bytes / static_cast<int64_t>(sizeof(Vector));
  const int lanes_log2 = std::min(5, static_cast<int>(std::bit_width(static_cast<uint64_t>(row_vectors - 1))));
  gather_kernel<<<base::grid_for(num_rows << lanes_log2, max_blocks), kBlockThreads, 0, stream>>>(
      reinterpret_cast<const Vector*>(rows.features), id, row, num_rows, row_vectors, lanes_log2,
      reinterpret_cast<Vector*>(x));
  cuda_check(cudaGetLastError(), "launch the gather");
}

__global__ void delay_kernel(int64_t ns) {
  uint64_t start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < static_cast<uint64_t>(ns));
}

__global__ void access_illegally_kernel(int* address) { *address = 1; }

}  // namespace

void CudaGather::write_graph(const SampledRef& batch, const SlotArrays& slot, cudaStream_t stream) {
  write_nodes_kernel<<<base::grid_for(batch.num_nodes, max_blocks_), kBlockThreads, 0, stream>>>(
      batch.n_id, batch.num_nodes, rows_.labels, slot.n_id, slot.y);
  cuda_check(cudaGetLastError(), "launch the copy of nodes");
  write_edges_kernel<<<base::grid_for(batch.num_edges, max_blocks_), kBlockThreads, 0, stream>>>(
      batch.source, batch.target, batch.num_edges, slot.edge_index);
  cuda_check(cudaGetLastError(), "launch the copy of edges");
}

void CudaGather::write_rows(const SampledRef& batch, const SlotArrays& slot, cudaStream_t stream) {
  if (batch.num_nodes == 0 || rows_.row_bytes == 0) return;
  const auto size = static_cast<std::size_t>(batch.num_nodes);
  int64_t* sorted_id = sorted_id_.reserve(size);
  int32_t* row = row_.reserve(size);
  int32_t* sorted_row = sorted_row_.reserve(size);
  count_up_kernel<<<base::grid_for(batch.num_nodes, max_blocks_), kBlockThreads, 0, stream>>>(row, batch.num_nodes);
  cuda_check(cudaGetLastError(), "launch the row numbering");
  const int id_bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(rows_.num_nodes - 1))));
  std::size_t bytes = 0;
  cuda_check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, batch.n_id, sorted_id, row, sorted_row, batch.num_nodes, 0,
                                             id_bits, stream),
             "size a sort");
  std::byte* temporary = temporary_.reserve(bytes);
  cuda_check(cub::DeviceRadixSort::SortPairs(temporary, bytes, batch.n_id, sorted_id, row, sorted_row, batch.num_nodes,
                                             0, id_bits, stream),
             "sort rows by address");
  if (rows_.row_bytes % 16 == 0) {
    gather<int4>(rows_, sorted_id, sorted_row, batch.num_nodes, slot.x, row_blocks_, stream);
  } else if (rows_.row_bytes % 4 == 0) {
    gather<int>(rows_, sorted_id, sorted_row, batch.num_nodes, slot.x, row_blocks_, stream);
  } else {
    gather<char>(rows_, sorted_id, sorted_row, batch.num_nodes, slot.x, row_blocks_, stream);
  }
}

void delay(int64_t us, cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(us * 1000);
  cuda_check(cudaGetLastError(), "launch a delay");
}

void access_illegally(cudaStream_t stream) {
  access_illegally_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
  cuda_check(cudaGetLastError(), "launch an illegal access");
}

}  // namespace cohort::sampler
