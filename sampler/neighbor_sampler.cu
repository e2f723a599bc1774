#include "sampler/neighbor_sampler.h"

#include <thrust/iterator/counting_iterator.h>

#include <cstring>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "base/launch.h"
#include "sampler/draw.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

// Entries of local_id: below kCandidate a batch-local id; from kCandidate on, kCandidate + an edge of this hop that
// wants to reach the node (the smallest wins, so ids follow first occurrence); kUnset outside the batch.
constexpr uint32_t kCandidate = 0x80000000u;
constexpr uint32_t kUnset = 0xFFFFFFFFu;
constexpr int64_t kMaxHopEdges = kUnset - kCandidate;

constexpr unsigned kWholeWarp = 0xFFFFFFFFu;
constexpr int kWarp = 32;
constexpr int kNumUses = 2 * cache::kNumTiers;
static_assert(sizeof(cache::ListUses) == kNumUses * sizeof(unsigned long long));

__global__ void forget_kernel(const int64_t* n_id, int64_t num_nodes, uint32_t* local_id) {
  for (int64_t i = grid_first(); i < num_nodes; i += grid_step()) local_id[n_id[i]] = kUnset;
}

__global__ void place_seeds_kernel(const int64_t* n_id, int64_t num_seeds, uint32_t* local_id) {
  for (int64_t i = grid_first(); i < num_seeds; i += grid_step()) local_id[n_id[i]] = static_cast<uint32_t>(i);
}

// What one thread counts of each tier, in registers: lists, and neighbours drawn (fewer than kMaxHopEdges in a hop).
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
  int64_t first_id;    // place of the list in the graph's indices
  int64_t* neighbour;  // int64 [picks]
  int64_t* e_id;       // int64 [picks]

  __device__ void put(int64_t at, int64_t position) const {
    neighbour[at] = neighbour_at(list, position, index_bytes);
    if constexpr (kEdgeIds) e_id[at] = first_id + position;
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
  const int64_t* frontier;  // int64 [size], global ids
  const int64_t* offset;    // int64 [size + 1]
  const DrawnList* list;    // [size]
  int64_t* position;        // int64 [edges], or null when no node draws more than a warp
  int64_t* neighbour;       // int64 [edges]
  int64_t* e_id;            // int64 [edges], or null when nobody wants them
  int32_t* target;          // int32 [edges]
  int32_t first_target;     // local id of frontier[0]
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
    DrawnEdges<kEdgeIds> edges{list, index_bytes, 0, arrays.neighbour + first, nullptr};
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

__global__ void mark_candidates_kernel(const int64_t* neighbour, int64_t num_edges, uint32_t* local_id) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    const uint32_t mine = kCandidate + static_cast<uint32_t>(e);
    uint32_t* entry = local_id + neighbour[e];
    if (*static_cast<volatile uint32_t*>(entry) > mine) atomicMin(entry, mine);
  }
}

// True for the edge that reaches its source first.
struct ReachesFirst {
  const int64_t* neighbour;
  const uint32_t* local_id;
  __device__ bool operator()(int64_t edge) const {
    return local_id[neighbour[edge]] == kCandidate + static_cast<uint32_t>(edge);
  }
};

__global__ void assign_ids_kernel(const int64_t* first, const int64_t* num_new, const int64_t* neighbour,
                                  int64_t nodes_before, int64_t* n_id, uint32_t* local_id) {
  for (int64_t i = grid_first(); i < *num_new; i += grid_step()) {
    const int64_t node = neighbour[first[i]];
    local_id[node] = static_cast<uint32_t>(nodes_before + i);
    n_id[nodes_before + i] = node;
  }
}

__global__ void localize_kernel(const int64_t* neighbour, int64_t num_edges, const uint32_t* local_id,
                                int32_t* source) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    source[e] = static_cast<int32_t>(local_id[neighbour[e]]);
  }
}

void check_launch() { cuda_check(cudaGetLastError(), "launch a sampler kernel"); }

}  // namespace

CudaNeighborSampler::CudaNeighborSampler(const TopologyRef& topology, int64_t num_nodes, int max_blocks)
    : topology_(topology),
      graph_nodes_(num_nodes),
      max_blocks_(max_blocks),
      local_id_(static_cast<std::size_t>(num_nodes), "allocate the local id of each node"),
      read_back_(sizeof(int64_t)),
      list_use_(kNumUses, "allocate counters of lists"),
      list_use_read_(sizeof(cache::ListUses)),
      selected_(1) {
  base::fill_gpu(local_id_.data(), 0xFF, local_id_.size() * sizeof(uint32_t), "clear local ids");
}

SampledRef CudaNeighborSampler::result() const {
  return {n_id_.data(), source_.data(), target_.data(), num_nodes_, num_edges_, edge_ids_ ? e_id_.data() : nullptr};
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

Counts CudaNeighborSampler::sample(const Query& query, cudaStream_t stream) {
  forget_last_batch(stream);
  edge_ids_ = query.edge_ids;
  place_seeds(query, stream);
  Counts counts;
  counts.nodes_per_hop = {num_nodes_};
  int64_t frontier_begin = 0;
  for (std::size_t i = 0; i < query.fanout.size(); ++i) {
    Hop hop{static_cast<int>(i), query.fanout[i], frontier_begin, num_nodes_, num_edges_, 0};
    hop.num_edges = count_edges(hop, stream);
    draw(hop, query, stream);
    const int64_t num_new = relabel(hop, stream);
    frontier_begin = num_nodes_;
    num_nodes_ += num_new;
    num_edges_ += hop.num_edges;
    counts.nodes_per_hop.push_back(num_new);
    counts.edges_per_hop.push_back(hop.num_edges);
  }
  counts.num_nodes = num_nodes_;
  counts.num_edges = num_edges_;
  cuda_check(
      cudaMemcpyAsync(list_use_read_.data(), list_use_.data(), sizeof(cache::ListUses), cudaMemcpyDeviceToHost, stream),
      "read the counts of lists");
  return counts;
}

void CudaNeighborSampler::forget_last_batch(cudaStream_t stream) {
  if (num_nodes_ > 0) {
    forget_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(n_id_.data(), num_nodes_,
                                                                                         local_id_.data());
    check_launch();
  }
  num_nodes_ = num_edges_ = 0;
  cuda_check(cudaMemsetAsync(list_use_.data(), 0, sizeof(cache::ListUses), stream), "clear the counts of lists");
}

void CudaNeighborSampler::place_seeds(const Query& query, cudaStream_t stream) {
  num_nodes_ = static_cast<int64_t>(query.seeds.size());
  n_id_.reserve(query.seeds.size());
  cuda_check(
      cudaMemcpyAsync(n_id_.data(), query.seeds.data(), query.seeds.size_bytes(), cudaMemcpyHostToDevice, stream),
      "copy seeds");
  place_seeds_kernel<<<base::grid_for(num_nodes_, max_blocks_), kBlockThreads, 0, stream>>>(n_id_.data(), num_nodes_,
                                                                                            local_id_.data());
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
  if (num_edges >= kMaxHopEdges) {
    throw base::Error({"a batch", "fewer than 2147483647 edges in a hop", std::to_string(num_edges),
                       "use a smaller --batch-size or --fanout"});
  }
  return num_edges;
}

void CudaNeighborSampler::draw(const Hop& hop, const Query& query, cudaStream_t stream) {
  const auto edges = static_cast<std::size_t>(hop.num_edges), before = static_cast<std::size_t>(hop.first_edge);
  source_.extend(before + edges, before, stream);
  target_.extend(before + edges, before, stream);
  if (query.edge_ids) e_id_.extend(before + edges, before, stream);
  const DrawArrays arrays{n_id_.data() + hop.frontier_begin,
                          offset_.data(),
                          list_.data(),
                          hop.fanout > kWarp ? position_.reserve(edges) : nullptr,
                          neighbour_.reserve(edges),
                          query.edge_ids ? e_id_.data() + before : nullptr,
                          target_.data() + before,
                          static_cast<int32_t>(hop.frontier_begin)};
  const int64_t size = hop.frontier_end - hop.frontier_begin;
  const auto kernel = query.edge_ids ? draw_kernel<true> : draw_kernel<false>;
  kernel<<<base::grid_for(size * kWarp, max_blocks_), kBlockThreads, 0, stream>>>(
      topology_.indptr, topology_.index_bytes, arrays, size, query.key, hop.number);
  check_launch();
}

int64_t CudaNeighborSampler::relabel(const Hop& hop, cudaStream_t stream) {
  if (hop.num_edges == 0) return 0;
  const int grid = base::grid_for(hop.num_edges, max_blocks_);
  mark_candidates_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour_.data(), hop.num_edges, local_id_.data());
  check_launch();
  int64_t* first = first_.reserve(static_cast<std::size_t>(hop.num_edges));
  const thrust::counting_iterator<int64_t> edge(0);
  const ReachesFirst reaches_first{neighbour_.data(), local_id_.data()};
  std::size_t bytes = 0;
  cuda_check(cub::DeviceSelect::If(nullptr, bytes, edge, first, selected_.data(), hop.num_edges, reaches_first, stream),
             "size a selection");
  std::byte* temporary = temporary_.reserve(bytes);
  cuda_check(
      cub::DeviceSelect::If(temporary, bytes, edge, first, selected_.data(), hop.num_edges, reaches_first, stream),
      "select new nodes");
  const auto nodes = static_cast<std::size_t>(num_nodes_);
  n_id_.extend(nodes + static_cast<std::size_t>(std::min(hop.num_edges, graph_nodes_ - num_nodes_)), nodes, stream);
  assign_ids_kernel<<<grid, kBlockThreads, 0, stream>>>(first, selected_.data(), neighbour_.data(), num_nodes_,
                                                        n_id_.data(), local_id_.data());
  check_launch();
  localize_kernel<<<grid, kBlockThreads, 0, stream>>>(neighbour_.data(), hop.num_edges, local_id_.data(),
                                                      source_.data() + hop.first_edge);
  check_launch();
  return read_back(selected_.data(), stream);
}

int64_t CudaNeighborSampler::read_back(const int64_t* value, cudaStream_t stream) {
  auto* host = reinterpret_cast<int64_t*>(read_back_.data());
  cuda_check(cudaMemcpyAsync(host, value, sizeof(int64_t), cudaMemcpyDeviceToHost, stream), "read a size");
  cuda_check(cudaStreamSynchronize(stream), "read a size");
  return *host;
}

}  // namespace cohort::sampler
