// The kernel that draws a batch by layers (NodeNumbers in draw.h). Internal to neighbor_sampler.cu.
//
// The k smallest of d numbers: one look at the list keeps those that are below a bound which some more than k of them
// are likely to be below; the smallest of these are found bit by bit. Where the bound misses, or k is very large, all
// numbers are looked at for each bit. Long lists, and those that many are drawn from, are looked at by all warps of a
// block.
#pragma once

#include "sampler/neighbor_kernels.cuh"

namespace cohort::sampler {
namespace {

constexpr int kMostKept = 128;  // numbers, by a warp

// Whether a block looks at a list, of which fewer than all are drawn.
__device__ bool is_for_block(int64_t picks, int64_t degree) {
  return degree >= kLongList || (degree > kMostKept && picks > kMostKept / 2);
}

// Numbers that a warp keeps, by ascending position.
struct KeptNumbers {
  uint64_t number[kMostKept];
  uint32_t position[kMostKept];  // among what may be drawn
};

// Of importance sampling.
struct Importance {
  LeastDegreesRef least{};
  uint32_t least_of_all = 1;           // which no node is below
  const LeastDegrees* sums = nullptr;  // [lists of the hop], of lists that fewer than all are drawn from
  float* share = nullptr;              // float32 [edges]
};

// The numbers of one hop.
template <bool kImportance>
struct HopNumbers {
  NodeNumbers numbers;
  int hop;
  Importance importance;

  // Of positions first, first + kWarp, ..., of the last one where they are not below `end`. Any number above `most` in
  // place of one that is above it.
  template <int kCount, typename Edges>
  __device__ void read(const Edges& edges, int64_t first, int64_t end, uint64_t most,
                       uint64_t (&number)[kCount]) const {
    int64_t at[kCount], neighbour[kCount], before[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      at[k] = edges.in_list(min(first + k * kWarp, end - 1));
      neighbour[k] = edges.neighbour_of(at[k]);
      before[k] = at[k] > 0 ? edges.neighbour_of(at[k] - 1) : -1;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      int64_t again = 0;
      while (before[k] == neighbour[k]) {
        ++again;
        before[k] = again < at[k] ? edges.neighbour_of(at[k] - again - 1) : -1;
      }
      number[k] = numbers.of(neighbour[k], hop, again);
    }
    if constexpr (kImportance) {
      uint32_t least[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) {  // of most nodes nothing need be read
        const bool may_be_kept = times_least(number[k], importance.least_of_all) <= most;
        least[k] = may_be_kept ? importance.least.degree(neighbour[k] - edges.first_source) : 0;
      }
#pragma unroll
      for (int k = 0; k < kCount; ++k) number[k] = least[k] > 0 ? times_least(number[k], least[k]) : UINT64_MAX;
    }
  }

  // How many of the smallest numbers of a list are looked for: with importance sampling also one that is not drawn.
  static __device__ int64_t wanted(int64_t picks) { return picks + (kImportance ? 1 : 0); }

  // About k + 4 sqrt(k) + 8 numbers of list i are at most this: nearly always k or more, and no more than kMostKept
  // for a k up to half of that.
  __device__ uint64_t bound(int64_t i, int64_t picks, int64_t degree) const {
    const auto k = static_cast<uint64_t>(wanted(picks));
    const uint64_t likely = k + 4 * static_cast<uint64_t>(sqrtf(static_cast<float>(k))) + 8;
    if (static_cast<uint64_t>(degree) <= likely) return UINT64_MAX;
    if constexpr (kImportance) return UINT64_MAX / importance.sums[i].inverse_sum * likely;
    return UINT64_MAX / static_cast<uint64_t>(degree) * likely;
  }
};

__device__ unsigned lanes_before(int lane) { return (1u << lane) - 1; }

// Keeps the numbers of positions in [begin, end) that are at most `most`, as far as there is room; returns how many
// there are. By one warp.
template <typename Edges, typename Numbers>
__device__ int keep(const Edges& edges, const Numbers& numbers, int64_t begin, int64_t end, uint64_t most, int lane,
                    KeptNumbers& kept) {
  constexpr int kAtOnce = 2;
  int count = 0;
  for (int64_t first = begin; first < end; first += kAtOnce * kWarp) {
    uint64_t number[kAtOnce];
    numbers.read(edges, first + lane, end, most, number);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t position = first + k * kWarp + lane;
      const bool is_kept = position < end && number[k] <= most;
      const unsigned all = __ballot_sync(kWholeWarp, is_kept);
      const int at = count + __popc(all & lanes_before(lane));
      if (is_kept && at < kMostKept) {
        kept.number[at] = number[k];
        kept.position[at] = static_cast<uint32_t>(position);
      }
      count += __popc(all);
    }
  }
  return count;
}

// Draws the `picks` smallest of `count` numbers by one warp. for_each(use) calls use(is_one, number, position) with
// whole warps, by ascending position; is_one: of the numbers, not behind the last. kNext: returns the smallest that is
// not drawn.
template <bool kNext, typename Edges, typename ForEach>
__device__ uint64_t draw_smallest(const Edges& edges, int64_t count, int64_t picks, int lane, ForEach for_each) {
  unsigned high = 0, low = 0;
  for_each([&](bool is_one, uint64_t number, int64_t) {
    if (!is_one) return;
    high |= static_cast<unsigned>(number >> 32);
    low |= static_cast<unsigned>(number);
  });
  high = __reduce_or_sync(kWholeWarp, high);
  low = __reduce_or_sync(kWholeWarp, low);
  uint64_t least = 0;                                    // of the numbers that are undecided
  int64_t undecided = count, left = picks;               // how many these are, and how many of them are drawn
  int bits = high ? 64 - __clz(high) : 32 - __clz(low);  // of them that are not looked at; those above are 0
  while (undecided > left && bits > 0) {
    --bits;
    int64_t lower = 0;  // that have the next bit 0
    for_each([&](bool is_one, uint64_t number, int64_t) {
      lower += __popc(__ballot_sync(kWholeWarp, is_one && number >> bits == least >> bits));
    });
    if (lower >= left) {
      undecided = lower;
    } else {
      left -= lower;
      undecided -= lower;
      least |= uint64_t{1} << bits;
    }
  }
  const uint64_t most = bits == 64 ? UINT64_MAX : least | ((uint64_t{1} << bits) - 1);
  int64_t put = 0, even = 0;  // edges; of these, undecided ones
  uint64_t next = UINT64_MAX;
  for_each([&](bool is_one, uint64_t number, int64_t position) {
    const bool is_even = is_one && number >= least && number <= most;
    const unsigned all_even = __ballot_sync(kWholeWarp, is_even);
    const bool is_drawn = is_one && (is_even ? even + __popc(all_even & lanes_before(lane)) < left : number < least);
    const unsigned drawn = __ballot_sync(kWholeWarp, is_drawn);
    if (is_drawn) edges.put(put + __popc(drawn & lanes_before(lane)), position);
    put += __popc(drawn);
    even += __popc(all_even);
    if (kNext && is_one && !is_drawn) next = min(next, number);
  });
  for (int step = kWarp / 2; kNext && step > 0; step /= 2) {
    next = min(next, static_cast<uint64_t>(__shfl_xor_sync(kWholeWarp, next, step)));
  }
  return next;
}

// The shares of `picks` edges that were put by the warp, float32 [picks], where `next` was not drawn.
template <typename Edges>
__device__ void put_shares(const Edges& edges, const LeastDegreesRef& least, uint64_t next, int64_t picks, int lane,
                           float* share) {
  __syncwarp();
  const auto inverse = [&](int64_t j) {
    return inverse_chance(next, least.degree(edges.neighbour[j] - edges.first_source));
  };
  uint64_t sum = 0;
  for (int64_t j = lane; j < picks; j += kWarp) sum += inverse(j);
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, step);
  for (int64_t j = lane; j < picks; j += kWarp) {
    share[j] = static_cast<float>(static_cast<double>(inverse(j)) / static_cast<double>(sum));
  }
}

// The same of what `parts` warps have kept of a list, or, where that are too few or too many, of all numbers.
template <bool kNext, typename Edges, typename Numbers>
__device__ uint64_t draw_of_kept(const Edges& edges, const Numbers& numbers, const KeptNumbers* kept, const int* counts,
                                 int parts, int64_t picks, int lane) {
  int count = 0, most = 0;
  for (int part = 0; part < parts; ++part) {
    count += counts[part];
    most = max(most, counts[part]);
  }
  if (count < numbers.wanted(picks) || most > kMostKept) {
    const int64_t degree = edges.list.degree;
    return draw_smallest<kNext>(edges, degree, picks, lane, [&](auto use) {
      for (int64_t first = 0; first < degree; first += kWarp) {
        uint64_t number[1];
        numbers.read(edges, first + lane, degree, UINT64_MAX, number);
        use(first + lane < degree, number[0], first + lane);
      }
    });
  }
  if (count > kMostKept) {
    return draw_smallest<kNext>(edges, count, picks, lane, [&](auto use) {
      for (int part = 0; part < parts; ++part) {
        for (int at = lane; at - lane < counts[part]; at += kWarp) {
          const bool is_one = at < counts[part];
          use(is_one, is_one ? kept[part].number[at] : 0, is_one ? kept[part].position[at] : 0);
        }
      }
    });
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
  return draw_smallest<kNext>(edges, count, picks, lane, [&](auto use) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      if (i * kWarp < count) use(i * kWarp + lane < count, number[i], position[i]);
    }
  });
}

// One warp a frontier node; but see is_for_block().
template <bool kEdgeIds, bool kExcludes, bool kImportance>
__global__ void __launch_bounds__(kBlockThreads)
    draw_layer_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, HopNumbers<kImportance> numbers) {
  __shared__ KeptNumbers kept[kWarpsOfBlock];
  __shared__ int counts[kWarpsOfBlock];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  const auto draw = [&](const auto& edges, int64_t first, int64_t picks, const KeptNumbers* of_parts,
                        const int* of_each, int parts) {
    const uint64_t next = draw_of_kept<kImportance>(edges, numbers, of_parts, of_each, parts, picks, lane);
    if constexpr (kImportance) {
      put_shares(edges, numbers.importance.least, next, picks, lane, numbers.importance.share + start.edge + first);
    }
  };
  for (int64_t i = grid_first() / kWarp; i < start.lists; i += grid_step() / kWarp) {
    const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
    const DrawnList list = arrays.list[i];
    put_target(arrays, start, i, first, picks, lane);
    const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
    if (picks == list.degree) {
      for (int64_t j = lane; j < picks; j += kWarp) {
        edges.put(j, j);
        if constexpr (kImportance) {
          numbers.importance.share[start.edge + first + j] = static_cast<float>(1 / static_cast<double>(picks));
        }
      }
    } else if (picks > 0 && !is_for_block(picks, list.degree)) {
      const uint64_t most = numbers.bound(i, picks, list.degree);
      int count = keep(edges, numbers, 0, list.degree, most, lane, kept[warp]);
      if (count < numbers.wanted(picks) && list.degree <= kMostKept) {
        __syncwarp();  // other lanes write what these wrote
        count = keep(edges, numbers, 0, list.degree, UINT64_MAX, lane, kept[warp]);
      }
      __syncwarp();
      draw(edges, first, picks, kept + warp, &count, 1);
      __syncwarp();
    }
  }
  __syncthreads();
  for_each_of_block(
      start.lists,
      [&](int64_t i) {
        const int64_t picks = arrays.offset[i + 1] - arrays.offset[i], degree = arrays.list[i].degree;
        return picks > 0 && picks < degree && is_for_block(picks, degree);
      },
      [&](int64_t i) {
        const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
        const DrawnList list = arrays.list[i];
        const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
        const int64_t begin = list.degree * warp / kWarpsOfBlock, end = list.degree * (warp + 1) / kWarpsOfBlock;
        const uint64_t most = numbers.bound(i, picks, list.degree);
        const int count = keep(edges, numbers, begin, end, most, lane, kept[warp]);
        if (lane == 0) counts[warp] = count;
        __syncthreads();
        if (warp == i % kWarpsOfBlock) draw(edges, first, picks, kept, counts, kWarpsOfBlock);
        __syncthreads();
      });
}

}  // namespace
}  // namespace cohort::sampler
