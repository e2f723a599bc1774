// The graph in memory that kernels can read: features in host memory, labels in GPU memory, topology in one of the two.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/host_table.h"
#include "base/owners.h"
#include "cache/host_features.h"
#include "sampler/backend.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {

// In GPU memory.
struct LabelsRef {
  const std::byte* rows;  // [num_nodes, row_bytes]
  int64_t row_bytes;
};

// The parts of a graph that GPUs read in place from host memory; one copy serves all GPUs of the process.
class HostGraph {
 public:
  // Host memory that it takes.
  static int64_t bytes_of(const GraphView& graph, bool with_topology, std::span<const FarTable> far_tables);
  // Copies the feature rows that are fetched, and the topology if it is wanted. Throws Error naming need and supply of
  // host memory before it allocates.
  // `far_tables`: of each node type, which of its rows are here; none: all.
  HostGraph(const GraphView& graph, bool with_topology, std::span<const FarTable> far_tables = {});
  // Of each node type.
  const std::vector<std::shared_ptr<const cache::HostFeatures>>& rows() const { return rows_; }
  // Of the edges of each relation; null: none.
  const std::vector<std::shared_ptr<const cache::HostFeatures>>& edge_rows() const { return edge_rows_; }
  void open_topology_to_gpu() const;  // before kernels of the current GPU read it
  // Of each relation indptr, indices, edge weights, edge times, and the arrays of DrawWeightsRef; empty: it has none.
  using Arrays = std::array<base::HostTable, 6>;
  // Of each relation; none: it is not here.
  const std::vector<Arrays>& topology() const { return topology_; }

 private:
  std::vector<std::shared_ptr<const cache::HostFeatures>> rows_, edge_rows_;
  std::vector<Arrays> topology_;
};

class GraphOnGpu {
 public:
  // Copies the labels, and the topology unless the host has it, to the current GPU.
  GraphOnGpu(const GraphView& graph, std::shared_ptr<const HostGraph> on_host);
  const std::vector<GpuRelation>& relations() const { return relations_; }
  LabelsRef labels() const { return {labels_.data(), label_bytes_}; }
  // Of each relation, float32 [num_edges] beside the topology; or null.
  const std::vector<const float*>& edge_weights() const { return edge_weights_; }
  const HostGraph& on_host() const { return *on_host_; }

 private:
  std::shared_ptr<const HostGraph> on_host_;
  std::vector<base::DeviceBytes> topology_;  // that the host does not have
  base::DeviceBytes labels_;
  std::vector<GpuRelation> relations_;
  int64_t label_bytes_;
  std::vector<const float*> edge_weights_;
};

}  // namespace cohort::sampler
