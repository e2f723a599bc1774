#include "sampler/neighbor_sampler.h"

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cstring>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>

#include "base/launch.h"
#include "sampler/draw.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

// A batch's places number its seeds, then its edges as they are drawn. A node is known by the first place that reaches
// it, so ids follow first occurrence. An entry of first_place is that place with the batch's generation above it: later
// generations are smaller, and entries of earlier batches, larger than any of this one, need not be cleared.
constexpr int kPlaceBits = 32;
constexpr int64_t kMaxPlaces = int64_t{1} << kPlaceBits;
constexpr uint32_t kGenerations = UINT32_MAX;  // below a cleared entry's

constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
constexpr int kWarp = 32;
constexpr int kNumUses = 2 * cache::kNumTiers;
static_assert(sizeof(cache::ListUses) == kNumUses * sizeof(unsigned long long));

__global__ void place_seeds_kernel(const int64_t* n_id, int64_t num_seeds, uint64_t generation,
                                   unsigned long long* first_place, int32_t* id_of_place) {
  for (int64_t i = grid_first(); i < num_seeds; i += grid_step()) {
    first_place[n_id[i]] = generation + static_cast<uint64_t>(i);
    id_of_place[i] = static_cast<int32_t>(i);
  }
}

// What one thread counts of each tier, in registers: lists, and neighbours drawn (fewer than kMaxPlaces in a batch).
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

// picks: int64 [size + 1], the last 0; lists: [size]; use: uint64 [kNumUses], added to. Waits for memory most of its
// time, so as many threads as an SM holds.
__global__ void __launch_bounds__(kBlockThreads, 2048 / kBlockThreads)
    count_picks_kernel(const __grid_constant__ TopologyRef topology, const int64_t* frontier, int64_t size,
                       int64_t fanout, int64_t* picks, DrawnList* lists, unsigned long long* use) {
  UseCounter counter;
  for (int64_t i = grid_first(); i < size; i += grid_step()) {
    const cache::ListRef list = topology.list(frontier[i]);
    const int64_t drawn = num_picks(list.degree, fanout);
    picks[i] = drawn;
    lists[i] = {list.neighbours, list.degree};
    counter.add(list.tier, drawn);
  }
  if (grid_first() == 0) picks[size] = 0;
  counter.sum_block(topology.index_bytes, use);
}

// Floyd's draw by one warp for up to 32 picks: lane j owns pick j.
__device__ int64_t draw_in_registers(base::PhiloxKey key, int64_t node, int hop, int picks, int64_t degree, int lane) {
  const int64_t candidate = lane < picks ? draw_candidate(key, node, hop, lane, picks, degree) : -1;
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

// Where the edges of one node go that are drawn from its list.
template <bool kEdgeIds>
struct DrawnEdges {
  const DrawnList& list;
  int index_bytes;
  unsigned long long* first_place;  // uint64 [V], or null: sources get no local ids
  uint64_t place;                   // of the first edge, with the generation
  int64_t* neighbour;               // int64 [picks]
  int64_t first_id;                 // where the list lies in the graph's indices
  int64_t* e_id;                    // int64 [picks]

  __device__ void put(int64_t at, int64_t position) const {
    const int64_t source = neighbour_at(list, position, index_bytes);
    neighbour[at] = source;
    if constexpr (kEdgeIds) e_id[at] = first_id + position;
    if (!first_place) return;
    const unsigned long long mine = place + static_cast<uint64_t>(at);
    unsigned long long* entry = first_place + source;
    if (*static_cast<volatile unsigned long long*>(entry) > mine) atomicMin(entry, mine);
  }
};

// Writes `picks` <= 32 drawn edges, by ascending position.
template <bool kEdgeIds>
__device__ void draw_few(const DrawnEdges<kEdgeIds>& edges, base::PhiloxKey key, int64_t node, int hop, int picks,
                         int lane) {
  const int64_t position = draw_in_registers(key, node, hop, picks, edges.list.degree, lane);
  int rank = 0;
  for (int j = 0; j < picks; ++j) rank += __shfl_sync(kWholeWarp, position, j) < position;
  if (lane < picks) edges.put(rank, position);
}

// The same for any number of picks; `position` int64 [picks] is this warp's scratch.
template <bool kEdgeIds>
__device__ void draw_many(const DrawnEdges<kEdgeIds>& edges, base::PhiloxKey key, int64_t node, int hop, int64_t picks,
                          int lane, int64_t* position) {
  const int64_t degree = edges.list.degree;
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t wanted = draw_candidate(key, node, hop, j, picks, degree);
    bool here = false;
    for (int64_t i = lane; i < j; i += kWarp) here |= position[i] == wanted;
    const bool taken = __any_sync(kWholeWarp, here);
    if (lane == 0) position[j] = taken ? degree - picks + j : wanted;
    __syncwarp();
  }
  for (int64_t j = lane; j < picks; j += kWarp) {
    int64_t rank = 0;
    for (int64_t i = 0; i < picks; ++i) rank += position[i] < position[j];
    edges.put(rank, position[j]);
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
  int32_t first_target;             // local id of frontier[0]
  uint64_t place;                   // of the first edge, with the generation
  unsigned long long* first_place;  // uint64 [V], or null: sources get no local ids
};

// One warp a frontier node. indptr: int64 [V + 1], read for edge ids alone.
template <bool kEdgeIds>
__global__ void draw_kernel(const int64_t* indptr, int index_bytes, DrawArrays arrays, int64_t size,
                            base::PhiloxKey key, int hop) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t i = grid_first() / kWarp; i < size; i += grid_step() / kWarp) {
    const int64_t node = arrays.frontier[i], first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
    const DrawnList list = arrays.list[i];
    for (int64_t j = lane; j < picks; j += kWarp) {
      arrays.target[first + j] = arrays.first_target + static_cast<int32_t>(i);
    }
    DrawnEdges<kEdgeIds> edges{
        list, index_bytes, arrays.first_place, arrays.place + static_cast<uint64_t>(first), arrays.neighbour + first,
        0,    nullptr};
    if constexpr (kEdgeIds) {
      edges.first_id = indptr[node];
      edges.e_id = arrays.e_id + first;
    }
    if (picks == list.degree) {
      for (int64_t j = lane; j < picks; j += kWarp) edges.put(j, j);
    } else if (picks <= kWarp) {
      draw_few(edges, key, node, hop, static_cast<int>(picks), lane);
    } else {
      draw_many(edges, key, node, hop, picks, lane, arrays.position + first);
    }
  }
}

// first: uint32 [num_edges], the first place of each edge's source.
__global__ void find_first_kernel(const int64_t* neighbour, int64_t num_edges, const unsigned long long* first_place,
                                  uint32_t* first) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    first[e] = static_cast<uint32_t>(first_place[neighbour[e]]);
  }
}

// 1 for an edge that reaches its source first.
struct ReachesFirst {
  const uint32_t* first;
  uint32_t place;  // of the first edge
  __host__ __device__ int32_t operator()(int64_t edge) const {
    return first[edge] == place + static_cast<uint32_t>(edge) ? 1 : 0;
  }
};

struct HopSources {
  const int64_t* neighbour;  // int64 [num_edges]
  int64_t num_edges;
  ReachesFirst reaches_first;
  const int32_t* id_of_place;  // int32 [places]: of an edge that reaches its source first, the source's local id
  int32_t nodes_before;
  int32_t* source;   // int32 [num_edges]
  int64_t* n_id;     // int64 [num_nodes]
  int64_t* num_new;  // int64 [1]
};

__global__ void name_sources_kernel(const __grid_constant__ HopSources hop) {
  for (int64_t e = grid_first(); e < hop.num_edges; e += grid_step()) {
    const int32_t id = hop.id_of_place[hop.reaches_first.first[e]];
    const int32_t is_new = hop.reaches_first(e);
    hop.source[e] = id;
    if (is_new) hop.n_id[id] = hop.neighbour[e];
    if (e + 1 == hop.num_edges) {
      *hop.num_new = hop.id_of_place[hop.reaches_first.place + e] + is_new - hop.nodes_before;
    }
  }
}

void check_launch() { cuda_check(cudaGetLastError(), "launch a sampler kernel"); }

}  // namespace

CudaNeighborSampler::CudaNeighborSampler(const TopologyRef& topology, int64_t num_nodes, int max_blocks)
    : topology_(topology),
      graph_nodes_(num_nodes),
      max_blocks_(max_blocks),
      first_place_(static_cast<std::size_t>(num_nodes), "allocate what relabels each node"),
      read_back_(sizeof(int64_t)),
      list_use_(kNumUses, "allocate counters of lists"),
      list_use_read_(sizeof(cache::ListUses)),
      num_new_(1) {}

SampledRef CudaNeighborSampler::result() const {
  const int64_t* e_id = edge_ids_ ? e_id_.data() : nullptr;
  const int64_t* nodes = source_node_.data();
  return {n_id_.data(), source_.data(), target_.data(), num_nodes_, num_edges_, num_local_edges_, e_id, nodes};
}

cache::ListUses CudaNeighborSampler::list_use() const {
  cache::ListUses use;
  std::memcpy(&use, list_use_read_.data(), sizeof(use));
  for (int tier = 0; tier < cache::kNumTiers; ++tier) {
    auto& [lists, bytes] = use[static_cast<std::size_t>(tier)];
    bytes += lists * cache::list_head_bytes(static_cast<cache::Tier>(tier));
  }
  return use;
}

BatchSizes CudaNeighborSampler::sample(const Query& query, cudaStream_t stream) {
  begin_batch(stream);
  edge_ids_ = query.edge_ids;
  place_seeds(query, stream);
  BatchSizes counts;
  counts.nodes_per_hop = {num_nodes_};
  int64_t frontier_begin = 0;
  for (std::size_t i = 0; i < query.fanout.size(); ++i) {
    const bool gives_ids = !query.last_hop_global || i + 1 < query.fanout.size();
    Hop hop{static_cast<int>(i), query.fanout[i], frontier_begin, num_nodes_, num_edges_, 0, gives_ids};
    hop.num_edges = count_edges(hop, stream);
    draw(hop, query, stream);
    const int64_t num_new = gives_ids ? relabel(hop, stream) : 0;
    frontier_begin = num_nodes_;
    num_nodes_ += num_new;
    num_edges_ += hop.num_edges;
    if (gives_ids) num_local_edges_ = num_edges_;
    counts.nodes_per_hop.push_back(num_new);
    counts.edges_per_hop.push_back(hop.num_edges);
  }
  counts.num_nodes = num_nodes_;
  counts.num_edges = num_edges_;
  counts.num_local_edges = num_local_edges_;
  cuda_check(
      cudaMemcpyAsync(list_use_read_.data(), list_use_.data(), sizeof(cache::ListUses), cudaMemcpyDeviceToHost, stream),
      "read the counts of lists");
  return counts;
}

void CudaNeighborSampler::begin_batch(cudaStream_t stream) {
  num_nodes_ = num_edges_ = num_local_edges_ = num_places_ = 0;
  if (generation_ == 0) {
    const std::size_t bytes = first_place_.size() * sizeof(unsigned long long);
    cuda_check(cudaMemsetAsync(first_place_.data(), 0xFF, bytes, stream), "clear first places");
    generation_ = kGenerations;
  }
  --generation_;
  cuda_check(cudaMemsetAsync(list_use_.data(), 0, sizeof(cache::ListUses), stream), "clear the counts of lists");
}

void CudaNeighborSampler::place_seeds(const Query& query, cudaStream_t stream) {
  num_nodes_ = num_places_ = static_cast<int64_t>(query.seeds.size());
  n_id_.reserve(query.seeds.size());
  cuda_check(
      cudaMemcpyAsync(n_id_.data(), query.seeds.data(), query.seeds.size_bytes(), cudaMemcpyHostToDevice, stream),
      "copy seeds");
  place_seeds_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(
      n_id_.data(), num_nodes_, generation(), first_place_.data(), id_of_place_.reserve(query.seeds.size()));
  check_launch();
}

int64_t CudaNeighborSampler::count_edges(const Hop& hop, cudaStream_t stream) {
  const int64_t size = hop.frontier_end - hop.frontier_begin;
  int64_t* offset = offset_.reserve(static_cast<std::size_t>(size) + 1);
  DrawnList* list = list_.reserve(static_cast<std::size_t>(size));
  count_picks_kernel<<<base::grid_for(size, max_blocks_), kBlockThreads, 0, stream>>>(
      topology_, n_id_.data() + hop.frontier_begin, size, hop.fanout, offset, list, list_use_.data());
  check_launch();
  std::size_t bytes = 0;
  cuda_check(cub::DeviceScan::ExclusiveSum(nullptr, bytes, offset, offset, size + 1, stream), "size a scan");
  std::byte* temporary = temporary_.reserve(bytes);
  cuda_check(cub::DeviceScan::ExclusiveSum(temporary, bytes, offset, offset, size + 1, stream), "scan edge counts");
  const int64_t num_edges = read_back(offset + size, stream);
  if (num_places_ + num_edges > kMaxPlaces) {
    throw base::Error({"a batch", "at most " + std::to_string(kMaxPlaces) + " seeds and edges",
                       std::to_string(num_places_ + num_edges), "use a smaller --batch-size or --fanout"});
  }
  return num_edges;
}

void CudaNeighborSampler::draw(const Hop& hop, const Query& query, cudaStream_t stream) {
  const auto edges = static_cast<std::size_t>(hop.num_edges), before = static_cast<std::size_t>(hop.first_edge);
  if (hop.gives_ids) source_.extend(before + edges, before, stream);
  target_.extend(before + edges, before, stream);
  if (query.edge_ids) e_id_.extend(before + edges, before, stream);
  const DrawArrays arrays{n_id_.data() + hop.frontier_begin,
                          offset_.data(),
                          list_.data(),
                          hop.fanout > kWarp ? position_.reserve(edges) : nullptr,
                          source_node_.extend(before + edges, before, stream) + before,
                          query.edge_ids ? e_id_.data() + before : nullptr,
                          target_.data() + before,
                          static_cast<int32_t>(hop.frontier_begin),
                          generation() + static_cast<uint64_t>(num_places_),
                          hop.gives_ids ? first_place_.data() : nullptr};
  const int64_t size = hop.frontier_end - hop.frontier_begin;
  const auto kernel = query.edge_ids ? draw_kernel<true> : draw_kernel<false>;
  kernel<<<base::grid_for(size * kWarp, max_blocks_), kBlockThreads, 0, stream>>>(
      topology_.indptr, topology_.index_bytes, arrays, size, query.key, hop.number);
  check_launch();
}

int64_t CudaNeighborSampler::relabel(const Hop& hop, cudaStream_t stream) {
  if (hop.num_edges == 0) return 0;
  const auto edges = static_cast<std::size_t>(hop.num_edges), places = static_cast<std::size_t>(num_places_);
  const auto nodes = static_cast<std::size_t>(num_nodes_);
  const int grid = base::grid_for(hop.num_edges, max_blocks_);
  uint32_t* first = first_.reserve(edges);
  const int64_t* neighbour = source_node_.data() + hop.first_edge;
  find_first_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour, hop.num_edges, first_place_.data(), first);
  check_launch();
  int32_t* ids = id_of_place_.extend(places + edges, places, stream);
  const ReachesFirst reaches_first{first, static_cast<uint32_t>(num_places_)};
  const auto is_new = thrust::make_transform_iterator(thrust::counting_iterator<int64_t>(0), reaches_first);
  const auto number = [&](std::byte* space, std::size_t& bytes) {
    cuda_check(cub::DeviceScan::ExclusiveScan(space, bytes, is_new, ids + places, cuda::std::plus<>{},
                                              static_cast<int32_t>(num_nodes_), hop.num_edges, stream),
               "number new nodes");
  };
  std::size_t bytes = 0;
  number(nullptr, bytes);
  number(temporary_.reserve(bytes), bytes);
  n_id_.extend(nodes + static_cast<std::size_t>(std::min(hop.num_edges, graph_nodes_ - num_nodes_)), nodes, stream);
  name_sources_kernel<<<grid, kBlockThreads, 0, stream>>>(
      {neighbour, hop.num_edges, reaches_first, ids, static_cast<int32_t>(num_nodes_), source_.data() + hop.first_edge,
       n_id_.data(), num_new_.data()});
  check_launch();
  num_places_ += hop.num_edges;
  return read_back(num_new_.data(), stream);
}

int64_t CudaNeighborSampler::read_back(const int64_t* value, cudaStream_t stream) {
  auto* host = reinterpret_cast<int64_t*>(read_back_.data());
  cuda_check(cudaMemcpyAsync(host, value, sizeof(int64_t), cudaMemcpyDeviceToHost, stream), "read a size");
  cuda_check(cudaStreamSynchronize(stream), "read a size");
  return *host;
}

}  // namespace cohort::sampler
