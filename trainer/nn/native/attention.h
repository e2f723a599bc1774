// The weights with which attention sums rows: softmaxes over the edges of each target, one a head, and their gradient.
// Nothing larger than [edges, heads] is made; the order of sums is fixed. Host and CUDA body
// (trainer/nn/native/attention_host.cc, attention.cu) differ by the rounding of exp.
#pragma once

#include "base/gpu_stream.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

// What edges score: leaky_relu(source_scores[index[e]] + target_scores[row of e] + edge_scores[e]). Rows [0, num_own)
// have one edge more, from source `row` to themselves. A dim is the number of heads; strides count elements.
struct EdgeScores {
  const void* source = nullptr;  // [sources, dim]
  int64_t source_stride = 0;
  const void* target = nullptr;  // [num_rows, dim]; null: zeros
  int64_t target_stride = 0;
  double slope = 0;                // of leaky_relu where its argument is negative
  const void* edge = nullptr;      // [num_edges, dim]; null: zeros
  const void* own_edge = nullptr;  // [num_own, dim], of edges to themselves; null: zeros
};

// weights[e] = exp(score of e) / (sum over the edges of e's row, its own among them, of exp(score)); 0 for edges that
// do not count. The edges' numbers are their positions.
struct AttentionCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of all arrays: float32 or float64
  int64_t dim = 0;                // heads
  EdgeScores scores;
  int64_t num_own = 0;
  void* weights = nullptr;      // [num_edges, dim]
  void* own_weights = nullptr;  // [num_own, dim]
  void* largest = nullptr;      // [num_rows, dim], scratch
  void* sums = nullptr;         // [num_rows, dim], scratch
  void* partial = nullptr;      // CUDA body: [2, max_pieces(num_edges), dim], scratch
};

// Turns gradients of the weights into those of the scores' arguments, in place, and sums them by target.
struct AttentionGradCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of all arrays: float32 or float64
  int64_t dim = 0;                // heads
  EdgeScores scores;
  int64_t num_own = 0;
  const void* weights = nullptr;      // [num_edges, dim], what AttentionCall wrote
  const void* own_weights = nullptr;  // [num_own, dim]
  void* grads = nullptr;              // [num_edges, dim]
  void* own_grads = nullptr;          // [num_own, dim]
  void* target_grads = nullptr;       // [num_rows, dim]
  int64_t target_grads_stride = 0;
  void* sums = nullptr;     // [num_rows, dim], scratch
  void* partial = nullptr;  // CUDA body: [max_pieces(num_edges), dim], scratch
};

void run_on_host(const AttentionCall& call);
void run_on_host(const AttentionGradCall& call);
void run_on_gpu(const AttentionCall& call, base::GpuStream stream);
void run_on_gpu(const AttentionGradCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
