#include "sampler/batch_writer.h"

#include <algorithm>

#include "base/launch.h"
#include "base/search.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

// labels: Word [V, width]; out_y: Word [num_labels, width].
template <typename Word>
__global__ void write_nodes_kernel(const int64_t* n_id, int64_t num_nodes, const Word* labels, int64_t num_labels,
                                   int64_t width, int64_t* out_n_id, Word* out_y) {
  for (int64_t i = grid_first(); i < max(num_nodes, num_labels * width); i += grid_step()) {
    const int64_t row = width == 1 ? i : i / width;
    if (row < num_labels) out_y[i] = labels[n_id[row] * width + (i - row * width)];
    if (i < num_nodes) out_n_id[i] = n_id[i];
  }
}

__global__ void write_edges_kernel(const int32_t* source, const int32_t* target, int64_t num_edges,
                                   int64_t* edge_index) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    edge_index[e] = source[e];
    edge_index[num_edges + e] = target[e];
  }
}

__global__ void write_weights_kernel(const int64_t* e_id, int64_t num_edges, const float* edge_weights,
                                     float* edge_weight) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) edge_weight[e] = edge_weights[e_id[e]];
}

__global__ void write_trees_kernel(const int32_t* tree, int64_t num_nodes, int64_t* out) {
  for (int64_t i = grid_first(); i < num_nodes; i += grid_step()) out[i] = tree[i];
}

// The edges stand by ascending target: each target looks for its first.
__global__ void write_indptr_kernel(const int32_t* target, int64_t num_edges, int64_t num_targets, int64_t* indptr) {
  for (int64_t i = grid_first(); i <= num_targets; i += grid_step()) {
    indptr[i] = base::first_not_before(0, num_edges, [=](int64_t edge) { return target[edge] < i; });
  }
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

// The first num_nodes of n_id, and labels of the slot's first num_labels.
template <typename Word>
void write_words(const int64_t* n_id, int64_t num_nodes, const LabelsRef& labels, const SlotArrays& slot,
                 int max_blocks, cudaStream_t stream) {
  const int64_t width = labels.row_bytes / static_cast<int64_t>(sizeof(Word));
  const int64_t threads = std::max(num_nodes, slot.num_labels * width);
  write_nodes_kernel<Word><<<base::grid_for(threads, max_blocks), kBlockThreads, 0, stream>>>(
      n_id, num_nodes, reinterpret_cast<const Word*>(labels.rows), slot.num_labels, width, slot.n_id,
      reinterpret_cast<Word*>(slot.y));
  cuda_check(cudaGetLastError(), "launch the copy of nodes");
}

void write_nodes(const int64_t* n_id, int64_t num_nodes, const LabelsRef& labels, const SlotArrays& slot,
                 int max_blocks, cudaStream_t stream) {
  const auto of_words = labels.row_bytes % 8 == 0   ? write_words<uint64_t>
                        : labels.row_bytes % 4 == 0 ? write_words<uint32_t>
                                                    : write_words<uint8_t>;
  of_words(n_id, num_nodes, labels, slot, max_blocks, stream);
}

}  // namespace

void write_graph(const SampledRef& batch, const LabelsRef& labels, const float* edge_weights, const SlotArrays& slot,
                 int max_blocks, cudaStream_t stream) {
  write_nodes(batch.n_id, batch.num_nodes, labels, slot, max_blocks, stream);
  write_edges_kernel<<<base::grid_for(batch.num_local_edges, max_blocks), kBlockThreads, 0, stream>>>(
      batch.source, batch.target, batch.num_local_edges, slot.edge_index);
  cuda_check(cudaGetLastError(), "launch the copy of edges");
  if (slot.tree) {
    write_trees_kernel<<<base::grid_for(batch.num_nodes, max_blocks), kBlockThreads, 0, stream>>>(
        batch.tree, batch.num_nodes, slot.tree);
    cuda_check(cudaGetLastError(), "launch the copy of trees");
  }
  const std::size_t bytes_of_all = static_cast<std::size_t>(batch.num_edges) * sizeof(int64_t);
  if (slot.source_node) {
    cuda_check(cudaMemcpyAsync(slot.source_node, batch.source_node, bytes_of_all, cudaMemcpyDeviceToDevice, stream),
               "copy the nodes of sources");
  }
  if (slot.e_id && batch.num_edges > 0) {
    cuda_check(cudaMemcpyAsync(slot.e_id, batch.e_id, bytes_of_all, cudaMemcpyDeviceToDevice, stream), "copy edge ids");
  }
  if (slot.edge_weight) {
    write_weights_kernel<<<base::grid_for(batch.num_edges, max_blocks), kBlockThreads, 0, stream>>>(
        batch.e_id, batch.num_edges, edge_weights, slot.edge_weight);
    cuda_check(cudaGetLastError(), "launch the copy of edge weights");
  }
  if (!slot.indptr) return;
  write_indptr_kernel<<<base::grid_for(slot.num_targets + 1, max_blocks), kBlockThreads, 0, stream>>>(
      batch.target, batch.num_edges, slot.num_targets, slot.indptr);
  cuda_check(cudaGetLastError(), "launch the writing of offsets");
}

void write_labels(const int64_t* n_id, const LabelsRef& labels, const SlotArrays& slot, int max_blocks,
                  cudaStream_t stream) {
  if (slot.y) write_nodes(n_id, 0, labels, slot, max_blocks, stream);
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
