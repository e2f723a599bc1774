// The kernels that draw neighbours by weight. Internal to neighbor_sampler.cu.
#pragma once

#include "sampler/neighbor_kernels.cuh"
#include "sampler/weighted_draw.h"

namespace cohort::sampler {
namespace {

// As count_picks_kernel; the degree of a DrawnList is then the number of edges that may be drawn.
__global__ void __launch_bounds__(kBlockThreads, kSmThreads / kBlockThreads)
    count_weighted_picks_kernel(const __grid_constant__ TopologyRef topology, DrawWeightsRef weights,
                                const int64_t* frontier, int64_t size, Picks how_many, int64_t* picks, DrawnList* lists,
                                unsigned long long* use, ExclusionsRef exclusions, HopCounts counts) {
  UseCounter counter;
  const HopStart start = start_count(counts, size);
  for (int64_t i = grid_first(); i < start.lists; i += grid_step()) {
    const int64_t node = frontier[start.node + i];
    const cache::ListRef list = topology.list(node);
    const int64_t number = node - topology.first_target;
    const int64_t drawable = num_drawable(weights, number, topology.indptr + number, exclusions.of_list(i));
    const int64_t drawn = how_many.of(drawable);
    picks[i] = drawn;
    lists[i] = {list.neighbours, drawable};
    counter.add(list.tier, drawn);
  }
  end_count(start, size, picks);
  counter.sum_block(topology.index_bytes, use);
}

// Finds the edge that has a unit of a list, by all lanes of a warp together. Each step narrows the range to a 32nd; the
// ends of the first 32 ranges are read once.
class UnitSearch {
 public:
  __device__ UnitSearch(const ListMass& list, int lane)
      : list_(list), lane_(lane), step_(step_of(list.degree)), end_of_range_(read_end(0, list.degree, step_)) {}

  __device__ int64_t position_of(uint32_t unit) const {
    int64_t begin = first_above(unit, end_of_range_) * step_;
    int64_t end = min(begin + step_, list_.degree);
    while (end - begin > 1) {
      const int64_t step = step_of(end - begin);
      begin += first_above(unit, read_end(begin, end, step)) * step;
      end = min(begin + step, end);
    }
    return begin;
  }

 private:
  __device__ static int64_t step_of(int64_t size) { return (size + kWarp - 1) / kWarp; }
  // Of this lane's range of [begin, end); lanes without one have the last range's.
  __device__ uint32_t read_end(int64_t begin, int64_t end, int64_t step) const {
    return list_.cumulative[min(begin + (lane_ + 1) * step, end) - 1];
  }
  __device__ static int first_above(uint32_t unit, uint32_t end_of_range) {
    return __ffs(static_cast<int>(__ballot_sync(kWholeWarp, end_of_range > unit))) - 1;
  }

  ListMass list_;
  int lane_;
  int64_t step_;
  uint32_t end_of_range_;
};

// Draws `picks` <= 32 positions: lane j gets that of pick j, others -1.
__device__ int64_t draw_few_units(const ListMass& list, const DrawKey& key, int64_t node, int picks, int lane) {
  const UnitSearch search(list, lane);
  const uint64_t bits = lane < picks ? draw_bits(key.batch, node, key.hop, lane, key.relation) : 0;
  TakenUnits mine{};
  int64_t position = -1;
  uint32_t left = kListMass;
  for (int j = 0; j < picks; ++j) {
    const uint32_t unit = draw_unit(__shfl_sync(kWholeWarp, bits, j), left);
    const uint32_t before = __reduce_add_sync(kWholeWarp, lane < j && mine.is_before(unit) ? mine.units : 0);
    const int64_t drawn = search.position_of(unit + before);
    const uint32_t begin = list.begin(drawn), units = list.units(drawn);
    if (lane < j && mine.begin > begin) mine.before += units;
    if (lane == j) {
      mine = {begin, units, before};
      position = drawn;
    }
    left -= units;
  }
  return position;
}

// Takes the units of excluded edges, which ascend; returns how many.
__device__ uint32_t take_excluded(const ListMass& list, const ExcludedRef& excluded, int lane, TakenUnits* taken) {
  uint32_t before = 0;
  for (int64_t first = 0; first < excluded.count; first += kWarp) {
    const int64_t i = first + lane;
    const uint32_t units = i < excluded.count ? list.units(excluded.positions[i]) : 0;
    uint32_t sum = units;  // of this lane and those below
    for (int step = 1; step < kWarp; step *= 2) {
      const uint32_t lower = __shfl_up_sync(kWholeWarp, sum, step);
      if (lane >= step) sum += lower;
    }
    if (i < excluded.count) taken[i] = {list.begin(excluded.positions[i]), units, before + sum - units};
    before += __shfl_sync(kWholeWarp, sum, kWarp - 1);
  }
  return before;
}

// The same for any number of picks. position: int64 [picks]; taken: [excluded + picks], scratch of this warp.
__device__ void draw_many_units(const ListMass& list, const ExcludedRef& excluded, const DrawKey& key, int64_t node,
                                int64_t picks, int lane, int64_t* position, TakenUnits* taken) {
  const UnitSearch search(list, lane);
  uint32_t left = kListMass - take_excluded(list, excluded, lane, taken);
  __syncwarp();
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t num_taken = excluded.count + j;
    const uint32_t unit = draw_unit(draw_bits(key.batch, node, key.hop, j, key.relation), left);
    uint32_t before = 0;
    for (int64_t i = lane; i < num_taken; i += kWarp) before += taken[i].is_before(unit) ? taken[i].units : 0;
    before = __reduce_add_sync(kWholeWarp, before);
    const int64_t drawn = search.position_of(unit + before);
    const uint32_t begin = list.begin(drawn), units = list.units(drawn);
    for (int64_t i = lane; i < num_taken; i += kWarp) {
      if (taken[i].begin > begin) taken[i].before += units;
    }
    if (lane == 0) {
      taken[num_taken] = {begin, units, before};
      position[j] = drawn;
    }
    left -= units;
    __syncwarp();
  }
}

// Writes all edges of positive weight that are not excluded.
template <typename Edges>
__device__ void put_weighted(const Edges& edges, const ListMass& list, const ExcludedRef& excluded, int lane) {
  int64_t at = 0;
  for (int64_t first = 0; first < list.degree; first += kWarp) {
    const int64_t position = first + lane;
    const bool is_drawn = position < list.degree && list.units(position) > 0 && !excluded.has(position);
    const unsigned drawn = __ballot_sync(kWholeWarp, is_drawn);
    if (is_drawn) edges.put(at + __popc(drawn & ((1U << lane) - 1)), position);
    at += __popc(drawn);
  }
}

// One warp a frontier node, as draw_kernel. taken: [edges of the hop + exclusions], or null where no node draws more
// than a warp and nothing is excluded.
template <bool kEdgeIds>
__global__ void __launch_bounds__(kBlockThreads, 4)
    draw_weighted_kernel(DrawGraph graph, DrawWeightsRef weights, DrawArrays arrays, TakenUnits* taken, int64_t size,
                         DrawKey key) {
  const int lane = threadIdx.x % kWarp;
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  for (int64_t i = grid_first() / kWarp; i < start.lists; i += grid_step() / kWarp) {
    const int64_t node = arrays.frontier[start.node + i];
    const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first, edge = start.edge + first;
    if (picks == 0) continue;
    const DrawnList drawn = arrays.list[i];
    for (int64_t j = lane; j < picks; j += kWarp) {
      arrays.target[edge + j] = arrays.first_target + static_cast<int32_t>(start.node + i);
    }
    const int64_t* ends = graph.indptr + (node - graph.first_target);
    const ListMass list = weights.of_list(ends);
    const ExcludedRef excluded = arrays.exclusions.of_list(i);
    // Positions count the whole list.
    const DrawnEdges<kEdgeIds, false> edges{.list = drawn,
                                            .index_bytes = graph.index_bytes,
                                            .first_source = graph.first_source,
                                            .first_visit = arrays.first_visit,
                                            .visit = arrays.visit + static_cast<uint64_t>(first),
                                            .neighbour = arrays.neighbour + edge,
                                            .first_id = ends[0],
                                            .e_id = kEdgeIds ? arrays.e_id + edge : nullptr,
                                            .excluded = {}};
    if (!weights.positive) {
      for (int64_t j = lane; j < picks; j += kWarp) edges.put(j, draw_top(weights.of_edges + ends[0], excluded, j));
    } else if (picks == list.degree) {
      for (int64_t j = lane; j < picks; j += kWarp) edges.put(j, j);
    } else if (picks == drawn.degree) {
      put_weighted(edges, list, excluded, lane);
    } else if (picks <= kWarp && excluded.count == 0) {
      const int64_t position = draw_few_units(list, key, node, static_cast<int>(picks), lane);
      put_ranked(edges, position, static_cast<int>(picks), lane);
    } else {
      const int64_t excluded_before = arrays.exclusions.starts ? arrays.exclusions.starts[i] : 0;
      draw_many_units(list, excluded, key, node, picks, lane, arrays.position + first, taken + first + excluded_before);
      put_ranked(edges, arrays.position + first, picks, lane);
    }
  }
}

}  // namespace
}  // namespace cohort::sampler
