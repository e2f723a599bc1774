// Sums of rows that several heads share, each with weights of its own, their gradients, and those of the weights, in
// one pass each: nothing of the size [edges, columns] is made, and the order of additions is fixed. Rows that belong to
// one head are sums as in trainer/nn/native/sum_rows.h. Host and CUDA body of the sums
// (trainer/nn/native/head_rows_host.cc, head_rows.cu) give the same bits; those of the products (head_dots.cu) differ
// by rounding.
#pragma once

#include "base/gpu_stream.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

// out[h][i] = sum over edges e of row i of weights[number(e)][h] * x[index[e]]  +  own_weights[j][h] * x[j], where row
// i of the block is row j = first_row + i of x. Weights are Sum<dtype>; strides count elements.
struct SpreadCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;      // of x
  Dtype out_dtype = Dtype::kFloat32;  // of out
  int64_t dim = 0;
  int64_t heads = 1;
  const void* x = nullptr;  // [rows that edges name, dim]
  int64_t x_stride = 0;
  const void* weights = nullptr;      // [edges, heads]
  const void* own_weights = nullptr;  // [num_own, heads]
  int64_t num_own = 0;                // rows of x
  void* out = nullptr;                // [heads, num_rows, dim]
  void* partial = nullptr;            // CUDA body: Sum<dtype> [max_pieces(num_edges), heads, dim], scratch
  int64_t first_row = 0;
};

// Its gradient, the block transposed: out[i] = sum over edges e of row i, and over h, of
// weights[number(e)][h] * x[h][index[e]]  +  sum over h of own_weights[i][h] * x[h][i].
struct FoldCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;  // of x and out
  int64_t dim = 0;
  int64_t heads = 1;
  const void* x = nullptr;            // [heads, x_rows, dim]
  int64_t x_rows = 0;                 // of a head
  const void* weights = nullptr;      // [edges, heads]
  const void* own_weights = nullptr;  // [num_own, heads]
  int64_t num_own = 0;
  void* out = nullptr;      // [num_rows, dim]
  void* partial = nullptr;  // CUDA body: Sum<dtype> [max_pieces(num_edges), dim], scratch
};

// Row r of head h begins at data + r * row_stride + h * head_stride.
struct HeadRows {
  const void* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;  // 0: all heads have the same rows
};

// What products of rows become with `att`: the sum over columns c of
//   att[h][c] * leaky_relu(grad[row of e][h][c] + x[index[e]][h][c] + edge[e][h][c]).
struct Bend {
  const void* att = nullptr;       // Sum<dtype> [heads, dim]; null: products as they are
  const void* edge = nullptr;      // [num_edges, heads * dim], rows of edges, of the dtype of x; null: zeros
  const void* own_edge = nullptr;  // [num_own, heads * dim], beside own_dots
  double slope = 0;
};

// dots[e][h] = <grad[row of e][h], x[index[e]][h]>, 0 for edges that do not count; own_dots[j][h] = <grad[i][h],
// x[j][h]>, where row i of the block is row j = first_row + i of x. The edges' numbers are their positions.
struct DotCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;       // of x
  Dtype grad_dtype = Dtype::kFloat32;  // of grad: that of x, or one of 16 bits, beside x of 16 or 32
  int64_t dim = 0;                     // columns of a head
  int64_t heads = 1;
  HeadRows grad;             // of num_rows rows
  HeadRows x;                // of the rows that edges name
  int64_t num_own = 0;       // rows of x
  void* dots = nullptr;      // Sum<dtype> [num_edges, heads]
  void* own_dots = nullptr;  // Sum<dtype> [num_own, heads]
  int64_t first_row = 0;
  Bend bend{};  // with `att`: rows of several heads stand apart, and grad has the dtype of x
};

// Calls f(std::type_identity<T>{}, std::type_identity<G>{}) for the types of x and of grad.
template <typename F>
void with_dot_types(const DotCall& call, F&& f) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T> of_x) {
    with_type(call.grad_dtype, [&]<typename G>(std::type_identity<G> of_grad) {
      if constexpr (std::is_same_v<T, G> || (sizeof(T) < 8 && sizeof(G) == 2)) {
        f(of_x, of_grad);
      } else {
        base::require(false, "gradients of the dtype of the rows, or of 16 bits");
      }
    });
  });
}

void run_on_host(const SpreadCall& call);
void run_on_host(const FoldCall& call);
void run_on_host(const DotCall& call);
void run_on_gpu(const SpreadCall& call, base::GpuStream stream);
void run_on_gpu(const FoldCall& call, base::GpuStream stream);
void run_on_gpu(const DotCall& call, base::GpuStream stream);
void run_shared_on_gpu(const DotCall& call, base::GpuStream stream);  // all heads share rows, and there is no bend

}  // namespace cohort::trainer
