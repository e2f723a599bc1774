// How the GPU reduces the rows of a block. A group of lanes has a row, or a piece of one, and a tile of columns, of
// which each lane keeps one pack in registers; some edges are on their way at once. What a reduction does with an edge
// is its own matter:
//
//   struct Reduction {                 // of the type Call, with elements T and packs of kVec of them
//     __device__ Reduction(const Call&, int64_t row, int64_t column);
//     Loaded load(int64_t e) const;    // what an edge brings
//     void add(const Loaded&);         // edges come in their order
//     void save(int64_t piece) const;  // what was added goes into scratch memory
//     void merge(int64_t piece);       // and comes from there; pieces come in their order
//     void finish(const EdgeRange&);   // writes the row
//   };
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/launch.h"
#include "trainer/native/block.h"
#include "trainer/native/element.h"

namespace cohort::trainer {

constexpr int kUnroll = 4;  // edges on their way at once
constexpr int kWarp = 32;

// kVec elements that are loaded and stored at once.
template <typename T, int kVec>
struct alignas(sizeof(T) * kVec) Pack {
  T value[kVec];
};

template <int kVec, typename T>
__device__ Pack<T, kVec> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kVec>*>(from);
}

// Products and sums that are never contracted, so that the host has the same bits.
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double plus(double a, double b) { return __dadd_rn(a, b); }

// Rounds the kVec sums to elements of `dtype` and stores them.
template <int kVec, typename A>
__device__ void store_sums(Dtype dtype, void* out, int64_t at, const A (&sums)[kVec]) {
  const auto store = [&]<typename Out>(Out*) {
    Pack<Out, kVec> pack;
#pragma unroll
    for (int v = 0; v < kVec; ++v) pack.value[v] = narrow<Out>(static_cast<Sum<Out>>(sums[v]));
    *reinterpret_cast<Pack<Out, kVec>*>(static_cast<Out*>(out) + at) = pack;
  };
  switch (dtype) {
    case Dtype::kFloat32:
      return store(static_cast<float*>(nullptr));
    case Dtype::kBfloat16:
      return store(static_cast<Bfloat16*>(nullptr));
    case Dtype::kFloat16:
      return store(static_cast<Float16*>(nullptr));
    case Dtype::kFloat64:
      return store(static_cast<double*>(nullptr));
  }
}

// Which rows and columns a group of lanes has.
struct Tiling {
  int lanes = 1;  // of a group, a power of two of at most a warp
  int num_tiles = 1;
  int64_t num_pieces = 0;
  int64_t num_units = 0;  // pieces, then rows

  Tiling(const BlockRef& block, int64_t dim, int vec) : num_pieces(max_pieces(block.num_edges)) {
    const int64_t packs = (dim + vec - 1) / vec;
    while (lanes < kWarp && lanes < packs) lanes *= 2;
    num_tiles = static_cast<int>((packs + lanes - 1) / lanes);
    num_units = num_pieces + block.num_rows;
  }
  unsigned blocks(int64_t units) const {
    const int64_t threads = units * num_tiles * lanes;
    return static_cast<unsigned>((threads + base::kBlockThreads - 1) / base::kBlockThreads);
  }
};

template <typename Reduction>
__device__ void reduce_edges(Reduction& reduction, EdgeRange range) {
  for (int64_t e = range.begin; e < range.end; e += kUnroll) {
    typename Reduction::Loaded loaded[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (e + k < range.end) loaded[k] = reduction.load(e + k);
    }
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) {
      if (e + k < range.end) reduction.add(loaded[k]);
    }
  }
}

// Pieces of long rows first, since they take longest, then all other rows.
template <typename Reduction>
__global__ void __launch_bounds__(base::kBlockThreads)
    reduce_kernel(const __grid_constant__ typename Reduction::Call call, const Tiling tiling) {
  const int64_t group = base::grid_first() / tiling.lanes;
  const int64_t unit = group / tiling.num_tiles;
  const int64_t pack = group % tiling.num_tiles * tiling.lanes + threadIdx.x % tiling.lanes;
  const int64_t column = pack * Reduction::kPack;
  if (unit >= tiling.num_units || column >= call.dim) return;
  const bool is_piece = unit < tiling.num_pieces;
  const int64_t row = is_piece ? call.block.row_at(unit * kPieceEdges) : unit - tiling.num_pieces;
  if (row < 0) return;
  const EdgeRange range = range_of(call.block, row);
  if (is_piece != range.in_pieces() || (is_piece && unit >= range.end_piece())) return;
  Reduction reduction(call, row, column);
  if (is_piece) {
    reduce_edges(reduction, range.piece(unit));
    reduction.save(unit);
  } else {
    reduce_edges(reduction, range);
    reduction.finish(range);
  }
}

// Puts the pieces of long rows together: the group of a row's first piece does it.
template <typename Reduction>
__global__ void __launch_bounds__(base::kBlockThreads)
    merge_kernel(const __grid_constant__ typename Reduction::Call call, const Tiling tiling) {
  const int64_t group = base::grid_first() / tiling.lanes;
  const int64_t piece = group / tiling.num_tiles;
  const int64_t pack = group % tiling.num_tiles * tiling.lanes + threadIdx.x % tiling.lanes;
  const int64_t column = pack * Reduction::kPack;
  if (piece >= tiling.num_pieces || column >= call.dim) return;
  const int64_t row = call.block.row_at(piece * kPieceEdges);
  if (row < 0) return;
  const EdgeRange range = range_of(call.block, row);
  if (!range.in_pieces() || piece != range.first_piece()) return;
  Reduction reduction(call, row, column);
  for (int64_t p = piece; p < range.end_piece(); ++p) reduction.merge(p);
  reduction.finish(range);
}

template <typename Reduction>
void launch_reduction(const typename Reduction::Call& call, cudaStream_t stream) {
  const Tiling tiling(call.block, call.dim, Reduction::kPack);
  if (call.dim == 0 || call.block.num_rows == 0) return;
  reduce_kernel<Reduction><<<tiling.blocks(tiling.num_units), base::kBlockThreads, 0, stream>>>(call, tiling);
  base::cuda_check(cudaGetLastError(), "launch a reduction of rows");
  if (tiling.num_pieces == 0) return;
  merge_kernel<Reduction><<<tiling.blocks(tiling.num_pieces), base::kBlockThreads, 0, stream>>>(call, tiling);
  base::cuda_check(cudaGetLastError(), "launch the merging of long rows");
}

// True when rows of `stride` elements of `element_bytes` each, from `data` on, consist of whole, aligned packs of
// `vec`.
inline bool packs_fit(const void* data, int64_t stride, int element_bytes, int vec) {
  const auto bytes = static_cast<uintptr_t>(element_bytes) * static_cast<uintptr_t>(vec);
  return data == nullptr || (reinterpret_cast<uintptr_t>(data) % bytes == 0 && stride % vec == 0);
}

inline int bytes_of(Dtype dtype) {
  if (dtype == Dtype::kFloat64) return 8;
  return dtype == Dtype::kFloat32 ? 4 : 2;
}

}  // namespace cohort::trainer
