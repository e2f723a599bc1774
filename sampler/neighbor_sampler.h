// Draw and relabel on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/host_device.h"
#include "base/owners.h"
#include "base/pinned_scratch.h"
#include "base/scratch.h"
#include "base/tier_use.h"
#include "cache/list_ref.h"
#include "channel/layout.h"
#include "sampler/backend.h"
#include "sampler/draw.h"
#include "sampler/tree_visits.h"
#include "sampler/weighted_draw.h"

namespace cohort::sampler {

// Topology that kernels can read: all of it in GPU memory or in host memory, some lists also in slabs of GPUs.
struct TopologyRef {
  const int64_t* indptr = nullptr;  // int64 [V + 1]
  const void* indices = nullptr;    // int32 or int64 [E]
  int index_bytes = 4;              // of a neighbour, also in slabs
  cache::CachedListsRef cached{};   // read from there what is there
  int64_t first_target = 0;         // the node that has the first list
  int64_t first_source = 0;         // the node that lists call 0
  int64_t first_list = 0;           // what `cached` calls the first list

  // Tier::kHost: from indices, wherever that is.
  COHORT_HOST_DEVICE cache::ListRef list(int64_t node) const {
    const int64_t number = node - first_target;
    const cache::ListRef found = cached.find(first_list + number);
    if (found.neighbours) return found;
    const int64_t* ends = indptr + number;
    return {static_cast<const std::byte*>(indices) + ends[0] * index_bytes, ends[1] - ends[0], cache::Tier::kHost};
  }
};

// Edges from nodes of one type to nodes of another, as kernels read them.
struct GpuRelation {
  int source_type = 0;
  int target_type = 0;
  TopologyRef topology{};
  DrawWeightsRef weights{};
  const int64_t* edge_times = nullptr;  // int64 [edges], for seeds with times; null: edges of any time are drawn
};

// A frontier node's list, looked up once: counting its picks leaves it for drawing them.
struct alignas(16) DrawnList {
  const std::byte* neighbours;  // int32 or int64, all of the list
  int64_t degree;               // what may be drawn: without those that are excluded, or weigh nothing
};

// A batch's seeds and edges are numbered through as visits of nodes, in 32 bits.
constexpr int64_t kMaxVisits = int64_t{1} << 32;

// Sizes of a batch, in GPU memory: the GPU counts them while the host, which knows only bounds, has put all of the
// batch's kernels on the stream already (bounded_hops.cu).
struct BatchCounts {
  int64_t too_small;                                 // not 0: a hop has more lists or edges than the host's bounds
  unsigned long long list_use[2 * base::kNumTiers];  // as base::ListUses
  int64_t first_node[channel::kMaxHops + 2];         // as SampledRef has them, of a graph of one type
  int64_t first_edge[channel::kMaxHops + 1];         // the same
  int32_t next_id;                                   // of the next node that is reached
};

// Those of a hop. Null: the host knows the sizes, and its pointers lead to the hop's own nodes and edges; else they
// lead to those of the batch.
struct HopCounts {
  int64_t* first_node = nullptr;  // int64 [3]: of the hop's lists, of the nodes that it reaches, and behind them
  int64_t* first_edge = nullptr;  // int64 [2]: of the hop, and behind it
  int64_t* too_small = nullptr;
  int32_t* next_id = nullptr;
  int64_t most_edges = 0;  // of the hop
  int64_t end_edge = 0;    // of the batch up to the hop, at most
};

// An edge whose units are taken, see weighted_draw.h.
struct TakenUnits {
  uint32_t begin, units;
  uint32_t before;  // units that are taken by edges before it

  // Whether it lies before unit t of those that are not taken.
  COHORT_HOST_DEVICE bool is_before(uint32_t t) const { return begin - before <= t; }
};

// Importance sampling: the least degree of each node, as lists call it, with the generation above it: later ones are
// smaller, so entries of earlier hops and batches, larger than any of this one, are cleared once in kGenerations. In 32
// bits, because a cache has more of them.
struct LeastDegreesRef {
  static constexpr uint32_t kGenerations = UINT32_MAX >> LeastDegrees::kBits;  // below a cleared entry's
  uint32_t* of_node = nullptr;                                                 // uint32 [nodes of the source type]
  uint32_t generation = 0;

  COHORT_HOST_DEVICE uint32_t entry(uint32_t degree) const { return generation << LeastDegrees::kBits | degree; }
  // Of a node that a list of the hop has.
  COHORT_HOST_DEVICE uint32_t degree(int64_t node) const {
    return of_node[node] & ((uint32_t{1} << LeastDegrees::kBits) - 1);
  }
};

// The same: all lists of one relation in a hop.
struct ImportanceLists {
  const DrawnList* list = nullptr;  // [size]
  int64_t size = 0;
  int index_bytes = 4;
  int64_t fanout = 1;
  ExclusionsRef exclusions{};
  HopCounts counts{};
  LeastDegreesRef least{};
  LeastDegrees* sums = nullptr;  // [size]; of lists that fewer than all are drawn from
};

// The sampled batch in GPU memory; valid until the next sample(). Its nodes are numbered as they were reached: by hop,
// type, and first occurrence among the drawn edges, which are ordered by hop and relation.
struct SampledRef {
  const int64_t* n_id = nullptr;    // int64 [num_nodes]
  const int32_t* source = nullptr;  // int32 [num_local_edges], positions in n_id
  const int32_t* target = nullptr;  // int32 [num_edges], positions in n_id
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_local_edges = 0;
  const int64_t* e_id = nullptr;         // int64 [num_edges], position in the relation's indices; null: not wanted
  const int64_t* source_node = nullptr;  // int64 [num_edges], global ids
  const int32_t* tree = nullptr;         // int32 [num_nodes], where the batch is disjoint
  const float* share = nullptr;          // float32 [num_edges], of the mean over a list; null: no importance sampling
  // In host memory: first node of each hop (0: the seeds) and type, [num_hops + 1, num_types], then num_nodes; first
  // edge of each hop and relation, [num_hops, num_relations], then num_edges.
  std::span<const int64_t> first_node;
  std::span<const int64_t> first_edge;

  int64_t num_nodes_of(std::size_t type, std::size_t num_types) const { return count_of(first_node, type, num_types); }
  int64_t num_edges_of(std::size_t relation, std::size_t num_relations) const {
    return count_of(first_edge, relation, num_relations);
  }

 private:
  static int64_t count_of(std::span<const int64_t> first, std::size_t which, std::size_t of) {
    int64_t count = 0;
    for (std::size_t i = which; i + 1 < first.size(); i += of) count += first[i + 1] - first[i];
    return count;
  }
};

class CudaNeighborSampler {
 public:
  // first_of_type: int64 [num_types], the first node of each type, ascending. `relations` stand by ascending
  // source_type.
  CudaNeighborSampler(std::vector<GpuRelation> relations, std::vector<int64_t> first_of_type, int64_t num_nodes,
                      int max_blocks);

  // Neighbour lists of all relations in slabs, from the next sample() on.
  void set_cached_lists(const cache::CachedListsRef& lists) {
    for (GpuRelation& relation : relations_) relation.topology.cached = lists;
  }
  // Of each launch, from the next sample() on.
  void set_max_blocks(int max_blocks) { max_blocks_ = max_blocks; }
  // Draws the batch on `stream`, and waits for it. The host gives the kernels bounds of the sizes: what there is memory
  // for since earlier batches. Batches beyond that, of several types, or of trees are drawn hop by hop, and the host
  // waits twice a hop for sizes. The arrays are the same.
  BatchSizes sample(const Query& query, cudaStream_t stream);
  // Of the last sample():
  SampledRef result() const;
  cache::ListUses list_use() const;
  const base::Event& ended() const { return ended_; }
  // How many batches were drawn within bounds, and how many others had to be drawn again because they were beyond.
  int64_t num_bounded() const { return num_bounded_; }
  int64_t num_repeated() const { return num_repeated_; }

 private:
  struct Hop {
    int number;
    bool gives_ids;                         // to sources
    std::vector<int32_t> fanout;            // [num_relations]
    std::vector<Draw> draw;                 // [num_relations]
    std::vector<int64_t> window;            // of each relation, see span_until()
    std::vector<int64_t> first_list;        // [num_relations + 1]: its lists are those of each relation in turn
    std::vector<ExclusionsRef> exclusions;  // [num_relations], in GPU memory
    int64_t first_edge;
    int64_t num_edges;
    HopCounts counts{};  // where the host does not wait; then first_edge is 0, and lists and edges are the most
  };
  std::size_t num_types() const { return first_of_type_.size(); }
  uint64_t generation() const { return uint64_t{generation_} << 32; }
  void begin_batch(const Query& query, cudaStream_t stream);
  void begin_generation(cudaStream_t stream);
  void number_seeds(const Query& query, cudaStream_t stream);
  void begin_trees(const Query& query, cudaStream_t stream);
  void copy_exclusions(const Query& query, cudaStream_t stream);
  std::vector<Hop> bounded_hops(const Query& query) const;
  bool sample_within(std::vector<Hop> hops, const Query& query, cudaStream_t stream);
  void sample_hop_by_hop(const Query& query, cudaStream_t stream);
  const BatchCounts& end_batch(cudaStream_t stream);
  Hop begin_hop(const Query& query, std::size_t hop) const;
  HopCounts hop_counts(std::size_t hop) const;
  bool has_weights() const {
    return std::ranges::any_of(relations_, [](const GpuRelation& each) { return each.weights.of_edges != nullptr; });
  }
  bool draws_by_weight(const Hop& hop, std::size_t relation) const;
  bool draws_by_importance(const Hop& hop, std::size_t relation) const {
    return numbers_.importance && hop.fanout[relation] > 0;
  }
  const int64_t* frontier(const Hop& hop, std::size_t relation) const;
  static std::size_t num_excluded(const Hop& hop, const Query& query);
  static bool needs_position(const Hop& hop, std::size_t excluded);
  void count_edges(const Hop& hop, cudaStream_t stream);
  void read_edges(Hop& hop, cudaStream_t stream);
  void draw(const Hop& hop, const Query& query, cudaStream_t stream);
  void begin_least_degrees(std::size_t relation, cudaStream_t stream);
  LeastDegreesRef least_degrees(std::size_t relation) const;
  ImportanceLists importance_lists(const Hop& hop, std::size_t relation);
  void count_by_importance(const ImportanceLists& lists, int64_t* picks, cudaStream_t stream);
  int64_t most_new_nodes(const Hop& hop) const;
  void relabel(const Hop& hop, cudaStream_t stream);
  TreeLists tree_lists(const Hop& hop, std::size_t relation);
  void end_hop(const Hop& hop, cudaStream_t stream);
  BatchSizes sizes() const;
  const int64_t* read_back(const int64_t* values, std::size_t count, cudaStream_t stream);

  std::vector<GpuRelation> relations_;
  std::vector<int64_t> first_of_type_;
  int64_t graph_nodes_;
  int max_blocks_;
  base::DeviceArray<unsigned long long> first_visit_;  // uint64 [V]: generation, visit
  uint32_t generation_ = 0;                            // 0: first_visit_ must be cleared
  base::PinnedBytes read_back_;                        // int64 [types or relations]
  base::PinnedScratch seeds_;                          // int64 [seeds], by type
  base::DeviceArray<BatchCounts> batch_counts_;        // [1]; hop by hop, only list_use
  base::PinnedBytes batch_counts_read_;                // the same
  base::Event ended_;
  base::DeviceArray<int64_t> counts_;      // int64 [types or relations], to be read back
  base::PinnedScratch staged_exclusions_;  // int64, starts, positions and nodes as Query has them
  base::Scratch<int64_t> excluded_;        // the same
  std::vector<ExclusionsRef> exclusions_;  // [num_relations], the same, of hop 0, or of all hops of a disjoint batch
  // Of disjoint batches:
  TreeVisits tree_visits_;
  base::PinnedScratch staged_times_, staged_trees_;  // of seeds, on their way to the GPU
  base::Scratch<int32_t> tree_;                      // int32 [num_nodes]
  base::Scratch<int64_t> seed_times_;                // int64 [num_seeds], where seeds have times
  base::Scratch<int64_t> first_candidate_;           // int64 [lists of the hop], see TreeLists
  bool disjoint_ = false, timed_ = false;            // of the last sample()
  // Of importance sampling:
  struct LeastDegreesOf {
    base::DeviceArray<uint32_t> of_node{};
    uint32_t generation = 0;  // 0: of_node must be cleared
  };
  std::vector<LeastDegreesOf> least_degree_;  // [num_relations]
  base::Scratch<LeastDegrees> least_sums_;    // [lists of the hop]
  base::Scratch<float> share_;                // float32 [num_edges]
  // Of each batch:
  base::Scratch<int64_t> n_id_;             // int64 [num_nodes]
  base::Scratch<int32_t> source_, target_;  // int32 [num_local_edges], [num_edges]
  base::Scratch<int64_t> e_id_;             // int64 [num_edges], where the query wants them
  base::Scratch<int64_t> offset_;           // int64 [lists of the hop + 1]
  base::Scratch<DrawnList> list_;           // [lists of the hop]
  base::Scratch<int64_t> source_node_;      // int64 [num_edges], global ids
  base::Scratch<int64_t> position_;         // int64 [edges of the hop], for what registers do not hold
  base::Scratch<TakenUnits> taken_;         // [edges of the hop + exclusions], for the same draws by weight
  base::Scratch<uint32_t> first_;           // uint32 [edges of the hop], the first visit of each source
  base::Scratch<int32_t> id_of_visit_;      // int32 [num_visits]
  base::Scratch<std::byte> temporary_;      // CUB
  int64_t num_nodes_ = 0, num_edges_ = 0, num_local_edges_ = 0, num_visits_ = 0;
  std::vector<int64_t> first_node_, first_edge_;  // as SampledRef has them
  bool edge_ids_ = false;                         // of the last sample()
  NodeNumbers numbers_{};                         // of the same
  int64_t num_bounded_ = 0, num_repeated_ = 0;
};

}  // namespace cohort::sampler
