// The graph in memory that kernels can read: features pinned in host memory, labels in GPU memory, topology where it
// fits.
#pragma once

#include "base/owners.h"
#include "sampler/backend.h"
#include "sampler/gather.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {

class GraphOnGpu {
 public:
  // Copies the graph. Throws Error naming need and supply before anything large is allocated.
  GraphOnGpu(const GraphView& graph, TopologyPlace place);
  const TopologyRef& topology() const { return topology_; }
  const RowsRef& rows() const { return rows_; }

 private:
  base::DeviceBytes gpu_indptr_, gpu_indices_, labels_;
  base::PinnedBytes host_indptr_, host_indices_, features_;
  TopologyRef topology_;
  RowsRef rows_;
};

}  // namespace cohort::sampler
