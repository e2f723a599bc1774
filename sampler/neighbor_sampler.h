// Draw and relabel on the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "base/host_device.h"
#include "base/owners.h"
#include "sampler/backend.h"
#include "base/scratch.h"

namespace cohort::sampler {

// Topology that kernels can read: GPU memory, or pinned host memory.
struct TopologyRef {
  const int64_t* indptr = nullptr;  // int64 [V + 1]
  const void* indices = nullptr;    // int32 or int64 [E]
  int index_bytes = 4;

  COHORT_HOST_DEVICE int64_t neighbour(int64_t position) const {
    return index_bytes == 4 ? static_cast<const int32_t*>(indices)[position]
                            : static_cast<const int64_t*>(indices)[position];
  }
};

// The sampled batch in GPU memory; valid until the next sample().
struct SampledRef {
  const int64_t* n_id = nullptr;    // int64 [num_nodes]
  const int32_t* source = nullptr;  // int32 [num_edges], batch-local
  const int32_t* target = nullptr;  // int32 [num_edges], batch-local
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
};

class CudaNeighborSampler {
 public:
  CudaNeighborSampler(const TopologyRef& topology, int64_t num_nodes, int max_blocks);

  // Draws the batch on `stream`; the host waits for sizes, two small reads a hop.
  Counts sample(const Query& query, cudaStream_t stream);
  SampledRef result() const;

 private:
  struct Hop {
    int number;
    int64_t fanout;
    int64_t frontier_begin, frontier_end;  // local ids
    int64_t first_edge;                    // edges of earlier hops
    int64_t num_edges;
  };
  void forget_last_batch(cudaStream_t stream);
  void place_seeds(const Query& query, cudaStream_t stream);
  int64_t count_edges(const Hop& hop, cudaStream_t stream);
  void draw(const Hop& hop, base::PhiloxKey key, cudaStream_t stream);
  int64_t relabel(const Hop& hop, cudaStream_t stream);  // returns the number of new nodes
  int64_t read_back(const int64_t* value, cudaStream_t stream);

  TopologyRef topology_;
  int64_t graph_nodes_;
  int max_blocks_;
  base::DeviceArray<uint32_t> local_id_;  // uint32 [V], see kUnset
  base::PinnedBytes read_back_;           // int64 [1]
  base::DeviceArray<int64_t> selected_;   // int64 [1]
  base::Scratch<int64_t> n_id_;                 // int64 [num_nodes]
  base::Scratch<int32_t> source_, target_;      // int32 [num_edges]
  base::Scratch<int64_t> offset_;               // int64 [frontier + 1]
  base::Scratch<int64_t> neighbour_;            // int64 [edges of the hop], global ids
  base::Scratch<int64_t> position_;             // int64 [edges of the hop], for fanouts above a warp
  base::Scratch<int64_t> first_;                // int64 [edges of the hop], edges that reach a new node
  base::Scratch<std::byte> temporary_;          // CUB
  int64_t num_nodes_ = 0, num_edges_ = 0;
};

}  // namespace cohort::sampler
