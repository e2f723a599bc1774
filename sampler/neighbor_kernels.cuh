// The kernels that draw and relabel a batch. Internal to neighbor_sampler.cu.
#pragma once

#include "base/launch.h"
#include "sampler/draw.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {
namespace {

using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

// Each seed and each drawn edge visits a node. A batch's visits are numbered, seeds first, then edges as they are
// drawn, with gaps between hops where the host only knows bounds of their sizes. A node is known by its first visit, so
// ids follow first occurrence. An entry of first_visit is that visit with the batch's generation above it: later
// generations are smaller, and entries of earlier batches, larger than any of this one, need not be cleared.
constexpr uint32_t kGenerations = UINT32_MAX;  // below a cleared entry's

constexpr int kMostParts = 128;  // types or relations
constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
constexpr int kWarp = 32;
constexpr int kWarpsOfBlock = kBlockThreads / kWarp;
constexpr int64_t kLongList = 1024;  // neighbours, from which on all warps of a block look at them
constexpr int kNumUses = 2 * cache::kNumTiers;
static_assert(sizeof(cache::ListUses) == kNumUses * sizeof(unsigned long long));

// Calls use(i) by all threads of a block for those of `size` items that are its own and that `is_one` of them.
template <typename IsOne, typename Use>
__device__ void for_each_of_block(int64_t size, IsOne is_one, Use use) {
  for (int64_t first = int64_t{blockIdx.x} * kWarp; first < size; first += int64_t{gridDim.x} * kWarp) {
    const int64_t own = first + threadIdx.x % kWarp;
    for (unsigned left = __ballot_sync(kWholeWarp, own < size && is_one(own)); left; left &= left - 1) {
      use(first + __ffs(static_cast<int>(left)) - 1);
    }
  }
}

// seeds: int64 [num_seeds], in host memory. The batch's counts begin with its seeds.
__global__ void number_seeds_kernel(const int64_t* seeds, int64_t num_seeds, uint64_t generation,
                                    unsigned long long* first_visit, int32_t* id_of_visit, int64_t* n_id,
                                    BatchCounts* counts) {
  if (blockIdx.x == 0 && threadIdx.x < kNumUses) counts->list_use[threadIdx.x] = 0;
  if (grid_first() == 0) {
    counts->too_small = counts->first_node[0] = counts->first_edge[0] = 0;
    counts->first_node[1] = num_seeds;
    counts->next_id = static_cast<int32_t>(num_seeds);
  }
  for (int64_t i = grid_first(); i < num_seeds; i += grid_step()) {
    const int64_t seed = seeds[i];
    n_id[i] = seed;
    first_visit[seed] = generation + static_cast<uint64_t>(i);
    id_of_visit[i] = static_cast<int32_t>(i);
  }
}

// Where a hop's lists and edges begin in the arrays that the host gives, and how many lists it has: fewer than
// kMaxVisits each, and kernels are short of registers.
struct HopStart {
  uint32_t node, edge, lists;
};

// For the kernel that counts edges. `most_lists`: that many if the host knows it.
__device__ HopStart start_count(const HopCounts& counts, int64_t most_lists) {
  if (!counts.first_node) return {0, 0, static_cast<uint32_t>(most_lists)};
  const int64_t first = counts.first_node[0], lists = counts.first_node[1] - first;
  const bool fits = lists <= most_lists;
  if (!fits && grid_first() == 0) *counts.too_small = 1;
  return {static_cast<uint32_t>(first), 0, fits ? static_cast<uint32_t>(lists) : 0};
}

// Lists that the hop might have had have no edges. picks: int64 [most_lists + 1].
__device__ void end_count(const HopStart& start, int64_t most_lists, int64_t* picks) {
  for (int64_t i = start.lists + grid_first(); i <= most_lists; i += grid_step()) picks[i] = 0;
}

// For the kernel that draws `num_edges` edges, if the host has room for as many: it ends the hop's edges.
__device__ HopStart start_draw(const HopCounts& counts, int64_t most_lists, const int64_t* num_edges) {
  if (!counts.first_node) return {0, 0, static_cast<uint32_t>(most_lists)};
  const int64_t node = counts.first_node[0], lists = counts.first_node[1] - node;
  const int64_t edge = counts.first_edge[0], edges = *num_edges;
  const bool fits = lists <= most_lists && edges <= counts.most_edges && edge + edges <= counts.end_edge;
  if (grid_first() == 0) {
    counts.first_edge[1] = edge + (fits ? edges : 0);
    if (!fits) *counts.too_small = 1;
  }
  return {static_cast<uint32_t>(node), static_cast<uint32_t>(edge), fits ? static_cast<uint32_t>(lists) : 0};
}

// What one thread counts of each tier, in registers: lists, and neighbours drawn (fewer than kMaxVisits in a batch).
struct UseCounter {
  uint32_t count[kNumUses] = {};

  __device__ void add(cache::Tier tier, int64_t picks) {
#pragma unroll
    for (int t = 0; t < cache::kNumTiers; ++t) {
      if (t != static_cast<int>(tier) || picks == 0) continue;
      ++count[2 * t];
      count[2 * t + 1] += static_cast<uint32_t>(picks);
    }
  }

  // To be called once by all threads of the block: adds what they counted to `total`, cache::ListUses as uint64.
  __device__ void sum_block(int index_bytes, unsigned long long* total) const {
    __shared__ unsigned long long of_warp[kBlockThreads / kWarp][kNumUses];
#pragma unroll
    for (int use = 0; use < kNumUses; ++use) {
      unsigned long long sum = count[use];
      for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_down_sync(kWholeWarp, sum, step);
      if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp][use] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= kNumUses) return;
    unsigned long long sum = 0;
    for (const auto& uses : of_warp) sum += uses[threadIdx.x];
    if (threadIdx.x % 2 == 1) sum *= static_cast<unsigned long long>(index_bytes);
    if (sum > 0) atomicAdd(total + threadIdx.x, sum);
  }
};

// Threads that an SM holds: 2048 with compute capability 8.0, 9.0 and 10.x, 1536 otherwise.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1100)
constexpr int kSmThreads = 1536;
#else
constexpr int kSmThreads = 2048;
#endif

// picks: int64 [size + 1], 0 behind the last list; lists: [size]; use: uint64 [kNumUses], added to. reads_all: all
// neighbours are read of a list that any is drawn from. Waits for memory most of its time, so as many threads as an SM
// holds. kExcludes: `exclusions` has any.
template <bool kExcludes>
__global__ void __launch_bounds__(kBlockThreads, kSmThreads / kBlockThreads)
    count_picks_kernel(const __grid_constant__ TopologyRef topology, const int64_t* frontier, int64_t size,
                       Picks how_many, bool reads_all, int64_t* picks, DrawnList* lists, unsigned long long* use,
                       ExclusionsRef exclusions, HopCounts counts) {
  UseCounter counter;
  const HopStart start = start_count(counts, size);
  for (int64_t i = grid_first(); i < start.lists; i += grid_step()) {
    cache::ListRef list = topology.list(frontier[start.node + i]);
    if constexpr (kExcludes) list.degree -= exclusions.of_list(i).count;
    const int64_t drawn = how_many.of(list.degree);
    picks[i] = drawn;
    lists[i] = {list.neighbours, list.degree};
    counter.add(list.tier, reads_all && drawn > 0 ? list.degree : drawn);
  }
  end_count(start, size, picks);
  counter.sum_block(topology.index_bytes, use);
}

// Of all draws of a hop from one relation.
struct DrawKey {
  base::PhiloxKey batch;
  int hop, relation;
  Draw draw;
};

// Floyd's draw by one warp for up to 32 picks: lane j owns pick j.
__device__ int64_t draw_in_registers(const DrawKey& key, int64_t node, int picks, int64_t degree, int lane) {
  const int64_t candidate =
      lane < picks ? draw_candidate(key.batch, node, key.hop, lane, picks, degree, key.relation) : -1;
  int64_t mine = -1;
  for (int j = 0; j < picks; ++j) {
    const int64_t wanted = __shfl_sync(kWholeWarp, candidate, j);
    const bool taken = __any_sync(kWholeWarp, lane < j && mine == wanted);
    if (lane == j) mine = taken ? degree - picks + j : wanted;
  }
  return mine;
}

__device__ int64_t neighbour_at(const DrawnList& list, int64_t position, int index_bytes) {
  return index_bytes == 4 ? reinterpret_cast<const int32_t*>(list.neighbours)[position]
                          : reinterpret_cast<const int64_t*>(list.neighbours)[position];
}

// Where the edges of one node go that are drawn from its list. Positions count what is not excluded.
template <bool kEdgeIds, bool kExcludes>
struct DrawnEdges {
  const DrawnList& list;
  int index_bytes;
  int64_t first_source;             // the node that the list calls 0
  unsigned long long* first_visit;  // uint64 [V], or null: sources get no local ids
  uint64_t visit;                   // of the first edge, with the generation
  int64_t* neighbour;               // int64 [picks]
  int64_t first_id;                 // where the list lies in the graph's indices
  int64_t* e_id;                    // int64 [picks]
  ExcludedRef excluded;             // of the list

  // The position in the whole list.
  __device__ int64_t in_list(int64_t position) const {
    if constexpr (kExcludes) return pass_over(excluded, position);
    return position;
  }
  // position: in the whole list.
  __device__ int64_t neighbour_of(int64_t position) const {
    return first_source + neighbour_at(list, position, index_bytes);
  }

  __device__ void put(int64_t at, int64_t position) const {
    position = in_list(position);
    const int64_t source = neighbour_of(position);
    neighbour[at] = source;
    if constexpr (kEdgeIds) e_id[at] = first_id + position;
    if (!first_visit) return;
    const unsigned long long mine = visit + static_cast<uint64_t>(at);
    unsigned long long* entry = first_visit + source;
    if (*static_cast<volatile unsigned long long*>(entry) > mine) atomicMin(entry, mine);
  }
};

// Writes `picks` <= 32 drawn edges, by ascending position; lane j has that of pick j.
template <typename Edges>
__device__ void put_ranked(const Edges& edges, int64_t position, int picks, int lane) {
  int rank = 0;
  for (int j = 0; j < picks; ++j) rank += __shfl_sync(kWholeWarp, position, j) < position;
  if (lane < picks) edges.put(rank, position);
}

// The same for any number of picks. position: int64 [picks], in memory.
template <typename Edges>
__device__ void put_ranked(const Edges& edges, const int64_t* position, int64_t picks, int lane) {
  for (int64_t j = lane; j < picks; j += kWarp) {
    int64_t rank = 0;
    for (int64_t i = 0; i < picks; ++i) rank += position[i] < position[j];
    edges.put(rank, position[j]);
  }
}

// Draws `picks` <= 32 edges.
template <typename Edges>
__device__ void draw_few(const Edges& edges, const DrawKey& key, int64_t node, int picks, int lane) {
  put_ranked(edges, draw_in_registers(key, node, picks, edges.list.degree, lane), picks, lane);
}

// Draws any number of edges; `position` int64 [picks] is this warp's scratch.
template <typename Edges>
__device__ void draw_many(const Edges& edges, const DrawKey& key, int64_t node, int64_t picks, int lane,
                          int64_t* position) {
  const int64_t degree = edges.list.degree;
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t wanted = draw_candidate(key.batch, node, key.hop, j, picks, degree, key.relation);
    bool here = false;
    for (int64_t i = lane; i < j; i += kWarp) here |= position[i] == wanted;
    const bool taken = __any_sync(kWholeWarp, here);
    if (lane == 0) position[j] = taken ? degree - picks + j : wanted;
    __syncwarp();
  }
  put_ranked(edges, position, picks, lane);
}

// Draws any number of edges with replacement.
template <typename Edges>
__device__ void draw_replaced_edges(const Edges& edges, const DrawKey& key, int64_t node, int64_t picks, int lane) {
  for (int64_t j = lane; j < picks; j += kWarp) {
    edges.put(j, draw_replaced(key.batch, node, key.hop, j, edges.list.degree, key.relation));
  }
}

struct DrawArrays {
  const int64_t* frontier;          // int64 [size], global ids
  const int64_t* offset;            // int64 [size + 1]
  const DrawnList* list;            // [size]
  int64_t* position;                // int64 [edges], or null when no node draws more than a warp
  int64_t* neighbour;               // int64 [edges]
  int64_t* e_id;                    // int64 [edges], or null when nobody wants them
  int32_t* target;                  // int32 [edges]
  int32_t first_target;             // id in the batch of frontier[0]
  uint64_t visit;                   // of the first edge, with the generation
  unsigned long long* first_visit;  // uint64 [V], or null: sources get no local ids
  ExclusionsRef exclusions;
  HopCounts counts;
};

// What kernels need of a TopologyRef to draw from lists that were looked up; indptr is read for edge ids alone.
struct DrawGraph {
  const int64_t* indptr;
  int index_bytes;
  int64_t first_target, first_source;
};

// Draws `picks` edges of a list by a warp. position: int64 [picks], scratch.
template <typename Edges>
__device__ void draw_edges(const Edges& edges, const DrawKey& key, int64_t node, int64_t picks, int lane,
                           int64_t* position) {
  if (key.draw == Draw::kReplaced) {
    draw_replaced_edges(edges, key, node, picks, lane);
  } else if (picks == edges.list.degree) {
    for (int64_t j = lane; j < picks; j += kWarp) edges.put(j, j);
  } else if (picks <= kWarp) {
    draw_few(edges, key, node, static_cast<int>(picks), lane);
  } else {
    draw_many(edges, key, node, picks, lane, position);
  }
}

// Of list i of the hop, of which `first` edges are drawn before.
template <bool kEdgeIds, bool kExcludes>
__device__ DrawnEdges<kEdgeIds, kExcludes> edges_of(const DrawGraph& graph, const DrawArrays& arrays,
                                                    const HopStart& start, const DrawnList& list, int64_t i,
                                                    int64_t first) {
  const int64_t edge = start.edge + first;
  DrawnEdges<kEdgeIds, kExcludes> edges{.list = list,
                                        .index_bytes = graph.index_bytes,
                                        .first_source = graph.first_source,
                                        .first_visit = arrays.first_visit,
                                        .visit = arrays.visit + static_cast<uint64_t>(first),
                                        .neighbour = arrays.neighbour + edge,
                                        .first_id = 0,
                                        .e_id = nullptr,
                                        .excluded = {}};
  if constexpr (kExcludes) edges.excluded = arrays.exclusions.of_list(i);
  if constexpr (kEdgeIds) {
    edges.first_id = graph.indptr[arrays.frontier[start.node + i] - graph.first_target];
    edges.e_id = arrays.e_id + edge;
  }
  return edges;
}

// The target of the edges that are drawn from list i, by one warp.
__device__ void put_target(const DrawArrays& arrays, const HopStart& start, int64_t i, int64_t first, int64_t picks,
                           int lane) {
  for (int64_t j = lane; j < picks; j += kWarp) {
    arrays.target[start.edge + first + j] = arrays.first_target + static_cast<int32_t>(start.node + i);
  }
}

// One warp a frontier node.
template <bool kEdgeIds, bool kExcludes>
__global__ void draw_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, DrawKey key) {
  const int lane = threadIdx.x % kWarp;
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  for (int64_t i = grid_first() / kWarp; i < start.lists; i += grid_step() / kWarp) {
    const int64_t node = arrays.frontier[start.node + i];
    const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
    const DrawnList list = arrays.list[i];
    put_target(arrays, start, i, first, picks, lane);
    const auto edges = edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first);
    draw_edges(edges, key, node, picks, lane, arrays.position + first);
  }
}

// The same where no list has more than `most_picks` <= kLanes edges drawn, without replacement: kLanes lanes a frontier
// node. The lists of a warp go through all steps together.
template <int kLanes, bool kEdgeIds, bool kExcludes>
__global__ void draw_few_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, DrawKey key, int most_picks) {
  const int lane = threadIdx.x % kLanes, in_warp = threadIdx.x % kWarp / kLanes;
  const unsigned own_lanes = ((1u << kLanes) - 1) << (in_warp * kLanes);
  const HopStart start = start_draw(arrays.counts, size, arrays.offset + size);
  constexpr int kAtOnce = kWarp / kLanes;
  for (int64_t begin = grid_first() / kWarp * kAtOnce; begin < start.lists; begin += grid_step() / kLanes) {
    const int64_t i = begin + in_warp;
    const bool is_list = i < start.lists;
    const int64_t first = is_list ? arrays.offset[i] : 0, picks = is_list ? arrays.offset[i + 1] - first : 0;
    const DrawnList list = is_list ? arrays.list[i] : DrawnList{nullptr, 0};
    if (lane < picks) {
      arrays.target[start.edge + first + lane] = arrays.first_target + static_cast<int32_t>(start.node + i);
    }
    const bool chooses = picks < list.degree;
    int64_t position = lane;
    int rank = lane;
    if (__any_sync(kWholeWarp, chooses)) {
      const int64_t candidate = chooses && lane < picks
                                    ? draw_candidate(key.batch, arrays.frontier[start.node + i], key.hop, lane, picks,
                                                     list.degree, key.relation)
                                    : -1;
      int64_t mine = -1;
      for (int j = 0; j < most_picks; ++j) {
        const int64_t wanted = __shfl_sync(kWholeWarp, candidate, j, kLanes);
        const unsigned equal = __ballot_sync(kWholeWarp, lane < j && mine == wanted);
        if (lane == j) mine = equal & own_lanes ? list.degree - picks + j : wanted;
      }
      if (chooses) position = mine, rank = 0;
      for (int j = 0; j < most_picks; ++j) {
        const int64_t other = __shfl_sync(kWholeWarp, position, j, kLanes);
        rank += chooses && j < picks && other < position ? 1 : 0;
      }
    }
    if (lane < picks) edges_of<kEdgeIds, kExcludes>(graph, arrays, start, list, i, first).put(rank, position);
  }
}

// Of a hop after its draw: its first edge, and how many it has, `most` if the host knows that.
struct DrawnRange {
  int64_t first, size;
};
__device__ DrawnRange drawn_edges(const HopCounts& counts, int64_t most) {
  if (!counts.first_edge) return {0, most};
  return {counts.first_edge[0], counts.first_edge[1] - counts.first_edge[0]};
}

// first: uint32 [num_edges], the first visit of each edge's source; behind the hop's last edge a visit of no edge.
__global__ void find_first_kernel(const int64_t* neighbour, int64_t num_edges, const unsigned long long* first_visit,
                                  uint32_t* first, HopCounts counts) {
  const DrawnRange drawn = drawn_edges(counts, num_edges);
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    first[e] = e < drawn.size ? static_cast<uint32_t>(first_visit[neighbour[drawn.first + e]]) : 0;
  }
}

// 1 for an edge that reaches its source first.
struct ReachesFirst {
  const uint32_t* first;
  uint32_t visit;  // of the first edge
  __host__ __device__ int32_t operator()(int64_t edge) const {
    return first[edge] == visit + static_cast<uint32_t>(edge) ? 1 : 0;
  }
};

struct HopSources {
  const int64_t* neighbour;  // int64 [num_edges]
  int64_t num_edges;
  ReachesFirst reaches_first;
  const int32_t* id_of_visit;  // int32 [visits]: of an edge that reaches its source first, the source's local id
  int32_t* source;             // int32 [num_edges]
  int64_t* n_id;               // int64 [num_nodes]
  int64_t* num_nodes;          // int64 [1], after the hop
  HopCounts counts;
};

__global__ void name_sources_kernel(const __grid_constant__ HopSources hop) {
  const DrawnRange drawn = drawn_edges(hop.counts, hop.num_edges);
  if (drawn.size == 0 && grid_first() == 0) *hop.num_nodes = hop.counts.first_node[1];
  for (int64_t e = grid_first(); e < drawn.size; e += grid_step()) {
    const int32_t id = hop.id_of_visit[hop.reaches_first.first[e]];
    const int32_t is_new = hop.reaches_first(e);
    hop.source[drawn.first + e] = id;
    if (is_new) hop.n_id[id] = hop.neighbour[drawn.first + e];
    if (e + 1 == drawn.size) {
      const int32_t end = hop.id_of_visit[hop.reaches_first.visit + e] + is_new;
      *hop.num_nodes = end;
      if (hop.counts.next_id) *hop.counts.next_id = end;
    }
  }
}

// Positions in an array.
struct Positions {
  int64_t at[kMostParts];
  int size;
};

// out: int64 [positions.size]. One block.
template <typename T>
__global__ void gather_kernel(const T* values, const __grid_constant__ Positions positions, int64_t* out) {
  for (int i = threadIdx.x; i < positions.size; i += blockDim.x) out[i] = values[positions.at[i]];
}

}  // namespace
}  // namespace cohort::sampler
