// The graph in memory that kernels can read: features pinned in host memory, labels in GPU memory, topology where it
// fits.
#pragma once

#include <memory>

#include "base/owners.h"
#include "sampler/backend.h"
#include "sampler/gather.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {

// The parts of a graph that GPUs read in place from pinned host memory; one copy serves all GPUs of the process.
class PinnedGraph {
 public:
  explicit PinnedGraph(const GraphView& graph) : graph_(graph) {}
  // Copies the feature rows, and the topology where it is wanted, unless they are there already. Throws Error naming
  // need and supply of host memory before it allocates.
  void pin(bool with_topology);
  const std::byte* features() const { return features_.data(); }  // [num_nodes, row_bytes]
  const std::byte* indptr() const { return indptr_.data(); }      // int64 [num_nodes + 1]
  const std::byte* indices() const { return indices_.data(); }    // int32 or int64 [num_edges]

 private:
  GraphView graph_;
  base::PinnedBytes features_, indptr_, indices_;
};

class GraphOnGpu {
 public:
  // Copies the graph to the current GPU. Throws Error naming need and supply before anything large is allocated.
  GraphOnGpu(const GraphView& graph, std::shared_ptr<PinnedGraph> pinned, TopologyPlace place);
  const TopologyRef& topology() const { return topology_; }
  const RowsRef& rows() const { return rows_; }

 private:
  std::shared_ptr<PinnedGraph> pinned_;
  base::DeviceBytes indptr_, indices_, labels_;
  TopologyRef topology_;
  RowsRef rows_;
};

}  // namespace cohort::sampler
