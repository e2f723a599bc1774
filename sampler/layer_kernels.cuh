// The kernel that draws a batch by layers (NodeNumbers in draw.h). Internal to neighbor_sampler.cu.
//
// The k smallest of d numbers: one look at the list keeps those that are below a bound which some more than k of them
// are likely to be below; the smallest of these are found bit by bit. Where the bound misses, or k is large, all
// numbers are looked at for each bit. A list is a warp's work; lists of hubs, which would keep one busy for longer than
// all others together, are that of whole blocks, in a kernel of their own.
#pragma once

#include "sampler/neighbor_kernels.cuh"

namespace cohort::sampler {
namespace {

constexpr int kWarpsOfBlock = kBlockThreads / kWarp;
constexpr int kLongThreads = 1024, kLongWarps = kLongThreads / kWarp;  // of a block that looks at long lists
constexpr int kMostKept = 128;                                         // numbers, of one list
constexpr int kMostOfLongWarp = 32;                                    // of them, of one warp's part of a long list
constexpr int64_t kLongList = 1024;                                    // neighbours, from which on a list is long
constexpr int kAtOnce = 4;                                             // neighbours that a lane has under way

// Numbers that a warp keeps, by ascending position.
template <int kMost>
struct KeptNumbers {
  uint64_t number[kMost];
  uint32_t position[kMost];  // among what may be drawn
};

// The neighbour at a position of the whole list, and the one before it; -1: there is none.
struct Neighbour {
  int64_t at, neighbour, before;
};

template <typename Edges>
__device__ Neighbour look_at(const Edges& edges, int64_t position) {
  const int64_t at = edges.in_list(position);
  return {at, edges.neighbour_of(at), at > 0 ? edges.neighbour_of(at - 1) : -1};
}

template <typename Edges>
__device__ uint64_t number_of(const Edges& edges, const NodeNumbers& numbers, int hop, const Neighbour& one) {
  int64_t again = 0;
  if (one.before == one.neighbour) {
    for (again = 1; again < one.at && edges.neighbour_of(one.at - again - 1) == one.neighbour;) ++again;
  }
  return numbers.of(one.neighbour, hop, again);
}

__device__ unsigned lanes_before(int lane) { return (1u << lane) - 1; }

// About k + 6 sqrt(k) + 12 of `degree` numbers are at most this; nearly always k or more, and no more than kMostKept
// for a k below 50.
__device__ uint64_t bound_of(int64_t picks, int64_t degree) {
  const auto count = static_cast<uint64_t>(degree);
  const auto likely = static_cast<uint64_t>(picks) + static_cast<uint64_t>(6 * sqrtf(static_cast<float>(picks))) + 12;
  return likely < count ? UINT64_MAX / count * likely : UINT64_MAX;
}

// Keeps the numbers of positions in [begin, end) that are at most `most`, as far as there is room; returns how many
// there are. By one warp.
template <typename Edges, int kMost>
__device__ int keep(const Edges& edges, const NodeNumbers& numbers, int hop, int64_t begin, int64_t end, uint64_t most,
                    int lane, KeptNumbers<kMost>& kept) {
  int count = 0;
  for (int64_t first = begin; first < end; first += kAtOnce * kWarp) {
    Neighbour one[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t position = first + i * kWarp + lane;
      if (position < end) one[i] = look_at(edges, position);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kWarp >= end) break;
      const int64_t position = first + i * kWarp + lane;
      const uint64_t number = position < end ? number_of(edges, numbers, hop, one[i]) : 0;
      const bool is_kept = position < end && number <= most;
      const unsigned all = __ballot_sync(kWholeWarp, is_kept);
      const int at = count + __popc(all & lanes_before(lane));
      if (is_kept && at < kMost) {
        kept.number[at] = number;
        kept.position[at] = static_cast<uint32_t>(position);
      }
      count += __popc(all);
    }
  }
  return count;
}

// Draws the `picks` smallest of `count` numbers, which are at most `bound`, by one warp. for_each(use) calls
// use(is_one, number, position) with whole warps, by ascending position; is_one: of the numbers, not behind the last.
template <typename Edges, typename ForEach>
__device__ void draw_smallest(const Edges& edges, int64_t count, int64_t picks, uint64_t bound, int lane,
                              ForEach for_each) {
  uint64_t least = 0;                       // of the numbers that are undecided
  int64_t undecided = count, left = picks;  // how many these are, and how many of them are drawn
  const int all_bits = 64 - __clzll(static_cast<long long>(bound));
  int bits = all_bits;  // of them that are not looked at
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
  const uint64_t most = bits == all_bits ? UINT64_MAX : least | ((uint64_t{1} << bits) - 1);
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
template <typename Edges, int kMost>
__device__ void draw_of_kept(const Edges& edges, const NodeNumbers& numbers, int hop, const KeptNumbers<kMost>* kept,
                             const int* counts, int parts, int64_t picks, uint64_t bound, int lane) {
  int count = 0;
  bool fits = true;
  for (int part = 0; part < parts; ++part) {
    count += counts[part];
    fits = fits && counts[part] <= kMost;
  }
  if (!fits || count < picks || count > kMostKept) {
    const int64_t degree = edges.list.degree;
    draw_smallest(edges, degree, picks, UINT64_MAX, lane, [&](auto use) {
      for (int64_t first = 0; first < degree; first += kWarp) {
        const int64_t position = first + lane;
        const bool is_one = position < degree;
        use(is_one, is_one ? number_of(edges, numbers, hop, look_at(edges, position)) : 0, position);
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
  draw_smallest(edges, count, picks, bound, lane, [&](auto use) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if (i * kWarp < count) use(i * kWarp + lane < count, number[i], position[i]);
    }
  });
}

// One warp a frontier node, unless its list is long.
template <bool kEdgeIds, bool kExcludes>
__global__ void __launch_bounds__(kBlockThreads)
    draw_layer_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, NodeNumbers numbers, int hop) {
  __shared__ KeptNumbers<kMostKept> kept_of_warp[kWarpsOfBlock];
  const int lane = threadIdx.x % kWarp;
  KeptNumbers<kMostKept>& kept = kept_of_warp[threadIdx.x / kWarp];
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  for (int64_t i = grid_first() / kWarp; i < start.lists; i += grid_step() / kWarp) {
    const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
    const DrawnList list = arrays.list[i];
    put_target(arrays, start, i, first, picks, lane);
    const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
    if (picks == list.degree) {
      for (int64_t j = lane; j < picks; j += kWarp) edges.put(j, j);
    } else if (picks > 0 && list.degree < kLongList) {
      const uint64_t bound = bound_of(picks, list.degree);
      const int count = keep(edges, numbers, hop, 0, list.degree, bound, lane, kept);
      __syncwarp();
      draw_of_kept(edges, numbers, hop, &kept, &count, 1, picks, bound, lane);
      __syncwarp();
    }
  }
}

// The lists that draw_layer_kernel leaves. Each thread of a block looks for one, which all then look at. Blocks take
// turns: the first lists of a frontier are hubs more often than the others.
template <bool kEdgeIds, bool kExcludes>
__global__ void __launch_bounds__(kLongThreads)
    draw_long_lists_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, NodeNumbers numbers, int hop) {
  __shared__ KeptNumbers<kMostOfLongWarp> kept[kLongWarps];
  __shared__ int counts[kLongWarps];
  __shared__ unsigned long_lists[kLongWarps];  // of each 32 lists, a bit each
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  const int64_t blocks = gridDim.x;
  for (int64_t group = blockIdx.x; group < start.lists; group += blocks * kLongThreads) {
    const int64_t mine = group + blocks * threadIdx.x;
    const bool is_long = mine < start.lists && arrays.list[mine].degree >= kLongList;
    const unsigned found = __ballot_sync(kWholeWarp, is_long);
    if (lane == 0) long_lists[warp] = found;
    __syncthreads();
    for (int of = 0; of < kLongWarps; ++of) {
      for (unsigned left = long_lists[of]; left != 0; left &= left - 1) {
        const int64_t i = group + blocks * (of * kWarp + __ffs(static_cast<int>(left)) - 1);
        const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
        const DrawnList list = arrays.list[i];
        if (picks == 0 || picks == list.degree) continue;
        const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
        const int64_t begin = list.degree * warp / kLongWarps, end = list.degree * (warp + 1) / kLongWarps;
        const uint64_t bound = bound_of(picks, list.degree);
        const int count = keep(edges, numbers, hop, begin, end, bound, lane, kept[warp]);
        if (lane == 0) counts[warp] = count;
        __syncthreads();
        if (warp == of) draw_of_kept(edges, numbers, hop, kept, counts, kLongWarps, picks, bound, lane);
        __syncthreads();
      }
    }
    __syncthreads();
  }
}

}  // namespace
}  // namespace cohort::sampler
