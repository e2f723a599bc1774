// What the kernels of products of rows share: which lanes form the products of a row, and the sums over them.
#pragma once

#include "trainer/nn/native/head_rows.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {

constexpr int kDotHeads = 4;  // whose products a group of lanes forms at once; a group has at least as many lanes

// The sums over a group of lanes of kDotHeads values each; lane l gets that of value l % kDotHeads. The order is fixed.
template <typename A>
__device__ A sum_over_lanes(const A (&value)[kDotHeads], int lane, int lanes, unsigned mask) {
  static_assert(kDotHeads == 4);
  const bool odd = lane & 1, upper = lane & 2;
  const A low = (odd ? value[1] : value[0]) + __shfl_xor_sync(mask, odd ? value[0] : value[1], 1);
  const A high = (odd ? value[3] : value[2]) + __shfl_xor_sync(mask, odd ? value[2] : value[3], 1);
  A sum = (upper ? high : low) + __shfl_xor_sync(mask, upper ? low : high, 2);
  for (int distance = kDotHeads; distance < lanes; distance *= 2) sum += __shfl_xor_sync(mask, sum, distance);
  return sum;
}

// Bits of the warp's lanes that are in this lane's group.
__device__ inline unsigned lanes_of_group(int lanes) {
  const unsigned all = lanes == kWarp ? ~0u : (1u << lanes) - 1;
  return all << (threadIdx.x % kWarp / lanes * lanes);
}

// Which lanes form the products of a row, or of a piece of one; see reduce.cuh.
struct DotGroups {
  int lanes = kDotHeads;
  int64_t num_pieces, num_units;

  DotGroups(const DotCall& call, int vec) : num_pieces(max_pieces(call.block.num_edges)) {
    while (lanes < kWarp && lanes * vec < call.dim) lanes *= 2;
    num_units = num_pieces + call.block.num_rows;
  }
  unsigned blocks() const {
    return static_cast<unsigned>((num_units * lanes + base::kBlockThreads - 1) / base::kBlockThreads);
  }
};

// A group of lanes forms the products of a row, or of a piece of one, as Dots does.
template <typename Dots>
__global__ void __launch_bounds__(base::kBlockThreads, Dots::kMinBlocks)
    dot_kernel(const __grid_constant__ DotCall call, const DotGroups groups) {
  const int64_t unit = base::grid_first() / groups.lanes;
  if (unit >= groups.num_units) return;
  const bool is_piece = unit < groups.num_pieces;
  const int64_t row = is_piece ? call.block.row_at(unit * kPieceEdges) : unit - groups.num_pieces;
  if (row < 0) return;
  const EdgeRange range = range_of(call.block, row);
  if (is_piece != range.in_pieces() || (is_piece && unit >= range.end_piece())) return;
  const bool first = !is_piece || unit == range.first_piece();
  Dots dots(call, row, static_cast<int>(threadIdx.x) % groups.lanes, groups.lanes);
  dots.run(is_piece ? range.piece(unit) : range, first && call.first_row + row < call.num_own);
}

template <typename Dots>
void launch_dots(const DotCall& call, cudaStream_t stream) {
  const DotGroups groups(call, Dots::kPack);
  if (call.block.num_rows == 0) return;
  if constexpr (Dots::kSharedBytes > 0) {
    base::cuda_check(
        cudaFuncSetAttribute(dot_kernel<Dots>, cudaFuncAttributeMaxDynamicSharedMemorySize, Dots::kSharedBytes),
        "shared memory for products of rows");
  }
  dot_kernel<Dots><<<groups.blocks(), base::kBlockThreads, Dots::kSharedBytes, stream>>>(call, groups);
  base::cuda_check(cudaGetLastError(), "launch products of rows");
}

// Whether all rows of the call can be read in packs of `vec`.
template <typename T, typename G>
bool can_pack(const DotCall& call, int vec) {
  const auto rows_fit = [&](const HeadRows& rows, int element_bytes) {
    return packs_fit(rows.data, rows.row_stride, element_bytes, vec) && rows.head_stride % vec == 0;
  };
  return call.dim % vec == 0 && rows_fit(call.grad, sizeof(G)) && rows_fit(call.x, sizeof(T)) &&
         packs_fit(call.bend.edge, call.dim, sizeof(T), vec) && packs_fit(call.bend.own_edge, call.dim, sizeof(T), vec);
}

}  // namespace cohort::trainer
