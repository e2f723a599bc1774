// The kernel that draws a batch by layers (NodeNumbers in draw.h). Internal to neighbor_sampler.cu.
//
// The k smallest of d numbers: one look at the list keeps those that are below a bound which some more than k of them
// are likely to be below; the smallest of these are found bit by bit. Where the bound misses, or k is large, all
// numbers are looked at for each bit. Long lists are looked at by all warps of a block.
#pragma once

#include "sampler/neighbor_kernels.cuh"

namespace cohort::sampler {
namespace {

constexpr int kWarpsOfBlock = kBlockThreads / kWarp;
constexpr int kMostKept = 128;       // numbers, of one list
constexpr int64_t kLongList = 1024;  // neighbours, from which on a block looks at it

// Numbers that a warp keeps, by ascending position.
struct KeptNumbers {
  uint64_t number[kMostKept];
  uint32_t position[kMostKept];  // among what may be drawn
};

template <typename Edges>
__device__ uint64_t number_at(const Edges& edges, const NodeNumbers& numbers, int hop, int64_t position) {
  const int64_t at = edges.in_list(position), neighbour = edges.neighbour_of(at);
  int64_t again = 0;
  while (again < at && edges.neighbour_of(at - again - 1) == neighbour) ++again;
  return numbers.of(neighbour, hop, again);
}

__device__ unsigned lanes_before(int lane) { return (1u << lane) - 1; }

// About k + 4 sqrt(k) + 8 of `degree` numbers are at most this; nearly always k or more, and no more than kMostKept for
// a k below 80.
__device__ uint64_t bound_of(int64_t picks, int64_t degree) {
  if (degree <= kMostKept) return UINT64_MAX;
  const auto likely = static_cast<uint64_t>(picks) + 4 * static_cast<uint64_t>(sqrtf(static_cast<float>(picks))) + 8;
  return UINT64_MAX / static_cast<uint64_t>(degree) * min(likely, static_cast<uint64_t>(degree));
}

// Keeps the numbers of positions in [begin, end) that are at most `most`, as far as there is room; returns how many
// there are. By one warp.
template <typename Edges>
__device__ int keep(const Edges& edges, const NodeNumbers& numbers, int hop, int64_t begin, int64_t end, uint64_t most,
                    int lane, KeptNumbers& kept) {
  int count = 0;
#pragma unroll 4
  for (int64_t first = begin; first < end; first += kWarp) {
    const int64_t position = first + lane;
    const uint64_t number = position < end ? number_at(edges, numbers, hop, position) : 0;
    const bool is_kept = position < end && number <= most;
    const unsigned all = __ballot_sync(kWholeWarp, is_kept);
    const int at = count + __popc(all & lanes_before(lane));
    if (is_kept && at < kMostKept) {
      kept.number[at] = number;
      kept.position[at] = static_cast<uint32_t>(position);
    }
    count += __popc(all);
  }
  return count;
}

// Draws the `picks` smallest of `count` numbers by one warp. for_each(use) calls use(is_one, number, position) with
// whole warps, by ascending position; is_one: of the numbers, not behind the last.
template <typename Edges, typename ForEach>
__device__ void draw_smallest(const Edges& edges, int64_t count, int64_t picks, int lane, ForEach for_each) {
  uint64_t least = 0;                       // of the numbers that are undecided
  int64_t undecided = count, left = picks;  // how many these are, and how many of them are drawn
  int bits = 64;                            // of them that are not looked at
  while (undecided > left && bits > 0) {
    --bits;
    int64_t low = 0;  // that have the next bit 0
    for_each([&](bool is_one, uint64_t number, int64_t) {
      low += __popc(__ballot_sync(kWholeWarp, is_one && number >> bits == least >> bits));
    });
    if (low >= left) {
      undecided = low;
    } else {
      left -= low;
      undecided -= low;
      least |= uint64_t{1} << bits;
    }
  }
  const uint64_t most = bits == 64 ? UINT64_MAX : least | ((uint64_t{1} << bits) - 1);
  int64_t put = 0, even = 0;  // edges; of these, undecided ones
  for_each([&](bool is_one, uint64_t number, int64_t position) {
    const bool is_even = is_one && number >= least && number <= most;
    const unsigned all_even = __ballot_sync(kWholeWarp, is_even);
    const bool is_drawn = is_one && (is_even ? even + __popc(all_even & lanes_before(lane)) < left : number < least);
    const unsigned drawn = __ballot_sync(kWholeWarp, is_drawn);
    if (is_drawn) edges.put(put + __popc(drawn & lanes_before(lane)), position);
    put += __popc(drawn);
    even += __popc(all_even);
  });
}

// The same of what `parts` warps have kept of a list, or, where that are too few or too many, of all numbers.
template <typename Edges>
__device__ void draw_of_kept(const Edges& edges, const NodeNumbers& numbers, int hop, const KeptNumbers* kept,
                             const int* counts, int parts, int64_t picks, int lane) {
  int count = 0;
  for (int part = 0; part < parts; ++part) count += counts[part];
  if (count < picks || count > kMostKept) {
    const int64_t degree = edges.list.degree;
    draw_smallest(edges, degree, picks, lane, [&](auto use) {
      for (int64_t first = 0; first < degree; first += kWarp) {
        const bool is_one = first + lane < degree;
        use(is_one, is_one ? number_at(edges, numbers, hop, first + lane) : 0, first + lane);
      }
    });
    return;
  }
  constexpr int kOfLane = kMostKept / kWarp;
  uint64_t number[kOfLane];
  int64_t position[kOfLane];
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    int at = i * kWarp + lane, part = 0;
    while (part + 1 < parts && at >= counts[part]) at -= counts[part++];
    const bool is_one = i * kWarp + lane < count;
    number[i] = is_one ? kept[part].number[at] : 0;
    position[i] = is_one ? kept[part].position[at] : 0;
  }
  draw_smallest(edges, count, picks, lane, [&](auto use) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if (i * kWarp < count) use(i * kWarp + lane < count, number[i], position[i]);
    }
  });
}

// One warp a frontier node; but see kLongList.
template <bool kEdgeIds, bool kExcludes>
__global__ void __launch_bounds__(kBlockThreads)
    draw_layer_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, NodeNumbers numbers, int hop) {
  __shared__ KeptNumbers kept[kWarpsOfBlock];
  __shared__ int counts[kWarpsOfBlock];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  for (int64_t group = int64_t{blockIdx.x} * kWarpsOfBlock; group < start.lists;
       group += int64_t{gridDim.x} * kWarpsOfBlock) {
    const int in_group = static_cast<int>(min(int64_t{kWarpsOfBlock}, start.lists - group));
    bool some_long = false;
    if (warp < in_group) {
      const int64_t i = group + warp, first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
      const DrawnList list = arrays.list[i];
      put_target(arrays, start, i, first, picks, lane);
      const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
      if (picks == list.degree) {
        for (int64_t j = lane; j < picks; j += kWarp) edges.put(j, j);
      } else if (picks > 0 && list.degree < kLongList) {
        const int count = keep(edges, numbers, hop, 0, list.degree, bound_of(picks, list.degree), lane, kept[warp]);
        __syncwarp();
        draw_of_kept(edges, numbers, hop, kept + warp, &count, 1, picks, lane);
      } else {
        some_long = picks > 0;
      }
    }
    if (!__syncthreads_or(some_long)) continue;
    for (int turn = 0; turn < in_group; ++turn) {
      const int64_t i = group + turn, first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
      const DrawnList list = arrays.list[i];
      if (picks == 0 || picks == list.degree || list.degree < kLongList) continue;
      const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
      const int64_t begin = list.degree * warp / kWarpsOfBlock, end = list.degree * (warp + 1) / kWarpsOfBlock;
      const int count = keep(edges, numbers, hop, begin, end, bound_of(picks, list.degree), lane, kept[warp]);
      if (lane == 0) counts[warp] = count;
      __syncthreads();
      if (warp == turn) draw_of_kept(edges, numbers, hop, kept, counts, kWarpsOfBlock, picks, lane);
      __syncthreads();
    }
  }
}

}  // namespace
}  // namespace cohort::sampler
