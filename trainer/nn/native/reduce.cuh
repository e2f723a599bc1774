// How the GPU reduces the rows of a block. A group of lanes has a row, or a piece of one, and a tile of columns, of
// which each lane keeps one pack in registers; some edges are on their way at once. What a reduction does with an edge
// is its own matter:
//
//   struct Reduction {                 // of the type Call, with elements T and packs of kVec of them
//     __device__ Reduction(const Call&, int64_t row, int64_t column);
//     Loaded load(int64_t e, int64_t index) const;  // what edge e brings, from row `index`
//     void add(const Loaded&);                      // edges come in their order
//     void save(int64_t piece) const;               // what was added goes into scratch memory
//     void merge(int64_t piece);                    // and comes from there; pieces come in their order
//     void finish(const EdgeRange&);                // writes the row
//     static constexpr int kMinBlocks = 1;          // on an SM at once; absent: 1
//   };
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/block.h"
#include "trainer/nn/native/element.h"

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
  int lane_bits = 0;  // a group has 2^lane_bits lanes, at most a warp
  uint32_t num_tiles = 1;
  int64_t num_pieces = 0;
  int64_t num_units = 0;  // pieces, then rows, or some rows each

  Tiling(const BlockRef& block, int64_t dim, int vec, int64_t rows_a_unit = 1)
      : num_pieces(max_pieces(block.num_edges)) {
    const int64_t packs = (dim + vec - 1) / vec;
    while (lanes() < kWarp && lanes() < packs) ++lane_bits;
    num_tiles = static_cast<uint32_t>((packs + lanes() - 1) / lanes());
    num_units = num_pieces + (block.num_rows + rows_a_unit - 1) / rows_a_unit;
    base::require(num_units * num_tiles <= UINT32_MAX, "rows of a layer, times parts of their columns, below 2^32");
  }
  COHORT_HOST_DEVICE int lanes() const { return 1 << lane_bits; }
  unsigned blocks(int64_t units) const {
    const int64_t threads = units * num_tiles * lanes();
    return static_cast<unsigned>((threads + base::kBlockThreads - 1) / base::kBlockThreads);
  }
};

// A lane's place: its group's unit, and the first column of its pack.
struct PackPlace {
  int64_t unit, column;
  uint32_t group_lanes;  // bits of the warp's lanes that are in the group

  __device__ PackPlace(const Tiling& tiling, int vec) {
    const auto group = static_cast<uint32_t>(base::grid_first() >> tiling.lane_bits);
    const uint32_t tile = group % tiling.num_tiles, lane = threadIdx.x % kWarp;
    unit = group / tiling.num_tiles;
    column = (static_cast<int64_t>(tile) * tiling.lanes() + (lane & (tiling.lanes() - 1))) * vec;
    group_lanes = (0xFFFFFFFFu >> (kWarp - tiling.lanes())) << (lane >> tiling.lane_bits << tiling.lane_bits);
  }
};

// BlockRef::row_at by all lanes of a group together, which look at as many offsets at once.
__device__ inline int64_t row_at(const BlockRef& block, int64_t at, const Tiling& tiling, uint32_t group_lanes) {
  const int64_t lanes = tiling.lanes(), lane = threadIdx.x & (tiling.lanes() - 1);
  if (lanes == 1) return block.row_at(at);
  int64_t begin = 0, end = block.num_rows < block.num_offsets ? block.num_rows : block.num_offsets;
  while (begin < end) {  // rows before begin begin at or before the edge, those from end on behind it
    const int64_t step = (end - begin + lanes - 1) / lanes, probe = begin + lane * step;
    const int count = __popc(__ballot_sync(group_lanes, probe < end && block.offsets[probe] <= at));
    if (count == 0) break;
    end = min(end, begin + count * step);
    begin += (count - 1) * step + 1;
  }
  return begin - 1;
}

// Adds up to kCount edges of a range from edge `first` on. All indices are asked for before any row, and the last edge
// again in place of those behind it: where loads stand behind branches, each waits for the one before.
template <int kCount, typename Reduction>
__device__ void add_edges(Reduction& reduction, const BlockRef& block, int64_t first, int64_t end) {
  const auto edge = [&](int k) { return first + k < end ? first + k : end - 1; };
  int64_t index[kCount];
  typename Reduction::Loaded loaded[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) index[k] = block.index[edge(k)];
#pragma unroll
  for (int k = 0; k < kCount; ++k) loaded[k] = reduction.load(edge(k), index[k]);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    if (first + k < end) reduction.add(loaded[k]);
  }
}

template <typename Reduction>
__device__ void reduce_edges(Reduction& reduction, const BlockRef& block, EdgeRange range) {
  for (int64_t e = range.begin; e < range.end; e += kUnroll) {
    if (e + 1 == range.end) {  // most rows of a transposed block have one edge
      add_edges<1>(reduction, block, e, range.end);
    } else {
      add_edges<kUnroll>(reduction, block, e, range.end);
    }
  }
}

template <typename Reduction>
constexpr int min_blocks() {
  if constexpr (requires { Reduction::kMinBlocks; }) {
    return Reduction::kMinBlocks;
  } else {
    return 1;
  }
}

// Pieces of long rows first, since they take longest, then all other rows.
template <typename Reduction>
__global__ void __launch_bounds__(base::kBlockThreads, min_blocks<Reduction>())
    reduce_kernel(const __grid_constant__ typename Reduction::Call call, const Tiling tiling) {
  const PackPlace place(tiling, Reduction::kPack);
  if (place.unit >= tiling.num_units) return;
  const bool is_piece = place.unit < tiling.num_pieces;
  const int64_t row = is_piece ? row_at(call.block, place.unit * kPieceEdges, tiling, place.group_lanes)
                               : place.unit - tiling.num_pieces;
  if (row < 0 || place.column >= call.dim) return;
  const EdgeRange range = range_of(call.block, row);
  if (is_piece != range.in_pieces() || (is_piece && place.unit >= range.end_piece())) return;
  Reduction reduction(call, row, place.column);
  if (is_piece) {
    reduce_edges(reduction, call.block, range.piece(place.unit));
    reduction.save(place.unit);
  } else {
    reduce_edges(reduction, call.block, range);
    reduction.finish(range);
  }
}

// Puts the pieces of long rows together: the group of a row's first piece does it.
template <typename Reduction>
__global__ void __launch_bounds__(base::kBlockThreads)
    merge_kernel(const __grid_constant__ typename Reduction::Call call, const Tiling tiling) {
  const PackPlace place(tiling, Reduction::kPack);
  if (place.unit >= tiling.num_pieces) return;
  const int64_t row = row_at(call.block, place.unit * kPieceEdges, tiling, place.group_lanes);
  if (row < 0 || place.column >= call.dim) return;
  const EdgeRange range = range_of(call.block, row);
  if (!range.in_pieces() || place.unit != range.first_piece()) return;
  Reduction reduction(call, row, place.column);
  for (int64_t p = place.unit; p < range.end_piece(); ++p) reduction.merge(p);
  reduction.finish(range);
}

template <typename Reduction>
void launch_merge(const typename Reduction::Call& call, const Tiling& tiling, cudaStream_t stream) {
  if (tiling.num_pieces == 0) return;
  merge_kernel<Reduction><<<tiling.blocks(tiling.num_pieces), base::kBlockThreads, 0, stream>>>(call, tiling);
  base::cuda_check(cudaGetLastError(), "launch the merging of long rows");
}

template <typename Reduction>
void launch_reduction(const typename Reduction::Call& call, cudaStream_t stream) {
  const Tiling tiling(call.block, call.dim, Reduction::kPack);
  if (call.dim == 0 || call.block.num_rows == 0) return;
  reduce_kernel<Reduction><<<tiling.blocks(tiling.num_units), base::kBlockThreads, 0, stream>>>(call, tiling);
  base::cuda_check(cudaGetLastError(), "launch a reduction of rows");
  launch_merge<Reduction>(call, tiling, stream);
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
