// Draw and relabel on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "base/host_device.h"
#include "base/owners.h"
#include "base/scratch.h"
#include "cache/list_ref.h"
#include "sampler/backend.h"

namespace cohort::sampler {

// Topology that kernels can read: all of it in GPU memory or in host memory, some lists also in slabs of GPUs.
struct TopologyRef {
  const int64_t* indptr = nullptr;  // int64 [V + 1]
  const void* indices = nullptr;    // int32 or int64 [E]
  int index_bytes = 4;              // of a neighbour, also in slabs
  cache::CachedListsRef cached{};   // read from there what is there

  // Tier::kHost: from indices, wherever that is.
  COHORT_HOST_DEVICE cache::ListRef list(int64_t node) const {
    const cache::ListRef found = cached.find(node);
    if (found.neighbours) return found;
    const int64_t row = indptr[node];
    return {static_cast<const std::byte*>(indices) + row * index_bytes, indptr[node + 1] - row, cache::Tier::kHost};
  }
};

// A frontier node's list, looked up once: counting its picks leaves it for drawing them.
struct alignas(16) DrawnList {
  const std::byte* neighbours;  // int32 or int64 [degree]
  int64_t degree;
};

// The sampled batch in GPU memory; valid until the next sample().
struct SampledRef {
  const int64_t* n_id = nullptr;    // int64 [num_nodes]
  const int32_t* source = nullptr;  // int32 [num_local_edges], batch-local
  const int32_t* target = nullptr;  // int32 [num_edges], batch-local
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_local_edges = 0;
  const int64_t* e_id = nullptr;         // int64 [num_edges], place in the graph's indices; null: the query did without
  const int64_t* source_node = nullptr;  // int64 [num_edges], global ids
};

class CudaNeighborSampler {
 public:
  CudaNeighborSampler(const TopologyRef& topology, int64_t num_nodes, int max_blocks);

  // Neighbour lists in slabs, from the next sample() on.
  void set_cached_lists(const cache::CachedListsRef& lists) { topology_.cached = lists; }
  // Of each launch, from the next sample() on.
  void set_max_blocks(int max_blocks) { max_blocks_ = max_blocks; }
  // Draws the batch on `stream`; the host waits for sizes, two small reads a hop.
  BatchSizes sample(const Query& query, cudaStream_t stream);
  SampledRef result() const;
  // Of the last sample(), once its work on the stream is done.
  cache::ListUses list_use() const;

 private:
  struct Hop {
    int number;
    int64_t fanout;
    int64_t frontier_begin, frontier_end;  // local ids
    int64_t first_edge;                    // edges of earlier hops
    int64_t num_edges;
    bool gives_ids;  // to sources
  };
  uint64_t generation() const { return uint64_t{generation_} << 32; }
  void begin_batch(cudaStream_t stream);
  void place_seeds(const Query& query, cudaStream_t stream);
  int64_t count_edges(const Hop& hop, cudaStream_t stream);
  void draw(const Hop& hop, const Query& query, cudaStream_t stream);
  int64_t relabel(const Hop& hop, cudaStream_t stream);  // returns the number of new nodes
  int64_t read_back(const int64_t* value, cudaStream_t stream);

  TopologyRef topology_;
  int64_t graph_nodes_;
  int max_blocks_;
  base::DeviceArray<unsigned long long> first_place_;  // uint64 [V]: generation, place
  uint32_t generation_ = 0;                            // 0: first_place_ must be cleared
  base::PinnedBytes read_back_;                        // int64 [1]
  base::DeviceArray<unsigned long long> list_use_;     // uint64 [tiers][2], as cache::ListUse
  base::PinnedBytes list_use_read_;                    // the same
  base::DeviceArray<int64_t> num_new_;                 // int64 [1]
  base::Scratch<int64_t> n_id_;                        // int64 [num_nodes]
  base::Scratch<int32_t> source_, target_;             // int32 [num_local_edges], [num_edges]
  base::Scratch<int64_t> e_id_;                        // int64 [num_edges], where the query wants them
  base::Scratch<int64_t> offset_;                      // int64 [frontier + 1]
  base::Scratch<DrawnList> list_;                      // [frontier]
  base::Scratch<int64_t> source_node_;                 // int64 [num_edges], global ids
  base::Scratch<int64_t> position_;                    // int64 [edges of the hop], for fanouts above a warp
  base::Scratch<uint32_t> first_;                      // uint32 [edges of the hop], the first place of each source
  base::Scratch<int32_t> id_of_place_;                 // int32 [num_places]
  base::Scratch<std::byte> temporary_;                 // CUB
  int64_t num_nodes_ = 0, num_edges_ = 0, num_local_edges_ = 0, num_places_ = 0;
  bool edge_ids_ = false;  // of the last sample()
};

}  // namespace cohort::sampler
