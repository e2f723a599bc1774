// Gather and sum of rows in one pass: nothing of the size [edges, columns] is made, and the order of additions is
// fixed.
//
//   out[i] = row_factor[i] * (sum over edges e of row i, in their order, of
//                             edge_factor[number(e)] * index_factor[index[e]] * x[index[e]]  +  own_factor[i] * own[i])
//
// Host and CUDA body (trainer/nn/native/sum_rows_host.cc, sum_rows.cu) give the same bits.
#pragma once

#include "base/gpu_stream.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

namespace cohort::trainer {

// What becomes of a row of `own`: nothing, it is added to the sum, or copied beside it (columns [dim, 2 dim) of out).
enum class Own : int { kNone = 0, kAdd, kBeside };

// ReLU and dropout of x, and of own, which then is x: on the way in (kIn) as DropCall makes them of all of x, for rows
// of whole packs of 16 bytes, x_stride being dim, and not of float64; or on the way back (kBack), when out is a
// gradient of what went in.
enum class DropUse : int { kNone = 0, kIn, kBack };

struct RowDrop {
  DropUse use = DropUse::kNone;
  uint64_t below = 0;  // drop_below(p)
  float scale = 1;     // 1 / (1 - p)
  uint64_t key = 0;
  const uint64_t* key_at = nullptr;  // as in DropCall
  // uint8 [rows, dim / 4], bit c % 4 of byte c / 4: column c has come through. kIn writes it for the rows of x that it
  // reads, kBack reads it for those of out.
  uint8_t* kept = nullptr;
};

// Rows of `dtype`; strides count elements. Factors are Sum<dtype>; null stands for ones.
struct SumCall {
  BlockRef block;
  Dtype dtype = Dtype::kFloat32;      // of x and own
  Dtype out_dtype = Dtype::kFloat32;  // of out
  int64_t dim = 0;
  const void* x = nullptr;  // [rows that edges name, dim]
  int64_t x_stride = 0;
  Own own_use = Own::kNone;
  const void* own = nullptr;  // [num_own, dim]; rows from there on have none
  int64_t own_stride = 0;
  int64_t num_own = 0;
  int64_t heads = 1;                   // column c has the factors of head c / (dim / heads)
  const void* edge_factor = nullptr;   // [edges, heads]
  const void* index_factor = nullptr;  // [rows of x]
  const void* own_factor = nullptr;    // [num_own, heads]
  const void* row_factor = nullptr;    // [num_rows]
  bool mean = false;                   // divide by the number of edges, where there are any
  void* out = nullptr;                 // [num_rows, dim or 2 dim]
  int64_t out_stride = 0;
  void* inverse_count = nullptr;  // Sum<dtype> [num_rows], 1 / max(1, number of edges) goes here; null: not wanted
  void* partial = nullptr;        // CUDA body: Sum<dtype> [max_pieces(num_edges), dim], scratch
  RowDrop drop{};
  // int64 [rows that edges name], int64 [num_own]: row i stands for row row_index[i] of x, own row i for row
  // own_row_index[i] of own; zeros where that is below 0, which no edge may name. float32 alone, and not with
  // DropUse::kIn. Null: row i is row i.
  const int64_t* row_index = nullptr;
  const int64_t* own_row_index = nullptr;
};

void run_on_host(const SumCall& call);
void run_on_gpu(const SumCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
