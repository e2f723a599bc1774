// Sums over edges of what both ends and the edge itself bring together: leaky_relu of a sum of rows, or its slope. The
// forward pass of GINE (leaky_relu of slope 0), and the gradients of GINE and of GATv2's scores, whose forward pass is
// DotCall's. Nothing of the size [edges, columns] is made but gradients of edges' own rows; the order of additions is
// fixed. Host and CUDA body (trainer/nn/native/joined_rows_host.cc, joined_rows.cu) differ by rounding at most.
#pragma once

#include "base/gpu_stream.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

// With z[e] = own[i] + x[index[e]] + edge[number(e)] for an edge e of row i, column c of head h:
//
//   slopes[i] = scale * sum over edges e of i of factor[number(e)][h] * leaky_relu'(z[e])
//   bent[i]   = sum over edges e of i of factor[number(e)][h] * leaky_relu(z[e])
//   edge_grads[number(e)] = scale * factor[number(e)][h] * other[i] * leaky_relu'(z[e])
//
// Rows [0, num_own) have one edge more, from row i of x, with its own factor and edge row; `skip_self` leaves out those
// that it stands for. Null stands for zeros among what is added up, for ones among factors, and for results that nobody
// wants. All rows are of `dtype` and [any, dim]; those of arrays without a stride are contiguous.
struct JoinedCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;
  int64_t dim = 0;
  int64_t heads = 1;          // column c is of head c / (dim / heads)
  const void* own = nullptr;  // [num_rows, dim]
  int64_t own_stride = 0;
  const void* x = nullptr;  // [rows that edges name, dim], never null
  int64_t x_stride = 0;
  const void* edge = nullptr;      // [edges, dim]
  const void* own_edge = nullptr;  // [num_own, dim]
  double slope = 0;                // of leaky_relu where its argument is not positive
  int64_t num_own = 0;
  const void* factor = nullptr;      // Sum<dtype> [edges, heads]
  const void* own_factor = nullptr;  // Sum<dtype> [num_own, heads]
  const void* scale = nullptr;       // Sum<dtype> [dim]
  const void* other = nullptr;       // [num_rows, dim]
  int64_t other_stride = 0;
  void* slopes = nullptr;          // [num_rows, dim]
  void* bent = nullptr;            // [num_rows, dim]
  void* edge_grads = nullptr;      // [edges, dim]
  void* own_edge_grads = nullptr;  // [num_own, dim]
  void* partial = nullptr;         // CUDA body: Sum<dtype> [2, max_pieces(num_edges), dim], scratch
};

void run_on_host(const JoinedCall& call);
void run_on_gpu(const JoinedCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
