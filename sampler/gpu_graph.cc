#include "sampler/gpu_graph.h"

#include <algorithm>

#include "base/check.h"
#include "base/device.h"
#include "base/host_memory.h"
#include "base/parallel_copy.h"
#include "base/staged_copy.h"
#include "cache/plan/gpu_bytes.h"
#include "cache/row_subset.h"
#include "sampler/draw_weights.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

constexpr std::size_t kPieceBytes = std::size_t{64} << 20;  // on their way to a GPU

base::HostTable host_copy(const void* from, std::size_t bytes) {
  base::HostTable to(bytes);
  base::parallel_copy(to.data(), from, bytes);
  return to;
}

base::DeviceBytes device_copy(const void* from, std::size_t bytes, const char* what) {
  base::DeviceBytes to(bytes, what);
  base::StagedCopy copy(std::min(bytes, kPieceBytes), what);
  for (std::size_t first = 0; first < bytes; first += kPieceBytes) {
    const std::size_t piece = std::min(kPieceBytes, bytes - first);
    base::parallel_copy(copy.next(), static_cast<const std::byte*>(from) + first, piece);
    copy.copy_to(to.data() + first, piece);
  }
  copy.finish();
  return to;
}

void check_host_memory(int64_t needed) {
  base::demand_bytes(
      needed, base::available_host_bytes(), "host memory", " for features and topology",
      "use a machine with more memory, or raise the limit of the container or job; where memory grows on use, "
      "say how much there is with COHORT_HOST_MEMORY_BYTES");
}

struct TopologyArray {
  const void* data;  // null: there is none
  std::size_t bytes;
  const char* what;  // the copy to a GPU
};

// What kernels read of a relation, as HostGraph::Arrays has it.
std::array<TopologyArray, 6> arrays_of(const Relation& relation) {
  const base::CscRef& lists = relation.lists;
  const auto nodes = static_cast<std::size_t>(lists.num_nodes), edges = static_cast<std::size_t>(lists.num_edges);
  const DrawWeightsRef weights = relation.draw_weights ? relation.draw_weights->ref() : DrawWeightsRef();
  constexpr const char* kToDraw = "copy what draws by weight read to the GPU";
  return {{{lists.indptr, (nodes + 1) * sizeof(int64_t), "copy indptr to the GPU"},
           {lists.indices, edges * static_cast<std::size_t>(lists.index_bytes), "copy indices to the GPU"},
           {relation.edge_weights, edges * sizeof(float), "copy edge weights to the GPU"},
           {relation.edge_times, edges * sizeof(int64_t), "copy edge times to the GPU"},
           {weights.of_edges, edges * sizeof(uint32_t), kToDraw},
           {weights.positive, nodes * sizeof(uint32_t), kToDraw}}};
}

// Of what lies where the topology does.
int64_t topology_bytes(const GraphView& graph) {
  std::size_t bytes = 0;
  for (const Relation& relation : graph.relations) {
    for (const TopologyArray& array : arrays_of(relation)) bytes += array.data ? array.bytes : 0;
  }
  return static_cast<int64_t>(bytes);
}

std::size_t label_bytes(const GraphView& graph) {
  const NodeRange& labelled = graph.types[static_cast<std::size_t>(graph.label_type)];
  return static_cast<std::size_t>(labelled.count) * static_cast<std::size_t>(graph.label_bytes);
}

// Feature rows of each type that GPUs fetch from host memory.
std::vector<cache::FeatureRows> rows_to_copy(const GraphView& graph) {
  if (graph.rows_in == channel::RowsIn::kTable) return {{graph.types[0].rows.shape, 0, nullptr, nullptr}};
  std::vector<cache::FeatureRows> rows;
  for (const NodeRange& type : graph.types) rows.push_back(type.rows);
  return rows;
}

bool copies_coded(const GraphView& graph, const cache::FeatureRows& rows) {
  return graph.coded_host_rows && graph.rows_in != channel::RowsIn::kTable && rows.encoded;
}

void refuse_more(int64_t needed, int64_t free, const char* hint) {
  base::demand_bytes(needed, free, "GPU memory", "", hint, "free");
}

}  // namespace

bool topology_lies_in_gpus(const GraphView& graph, std::span<const int> gpus, TopologyMemory memory,
                           int64_t cache_bytes) {
  const int64_t topology = topology_bytes(graph);
  const int64_t others = cache::bytes_of_nodes(graph.num_nodes, graph.label_bytes) + cache_bytes;
  bool fits = true;
  for (int gpu : gpus) {
    base::choose_gpu(gpu);
    const int64_t free = base::free_device_bytes();
    refuse_more(others, free, cache_bytes > 0 ? "use a smaller cache" : "use a GPU with more memory, or --device cpu");
    if (memory == TopologyMemory::kGpu) refuse_more(topology + others, free, "use --topology host, or a smaller cache");
    fits = fits && cache::takes_topology(free - others, topology);
  }
  return memory == TopologyMemory::kGpu || (memory == TopologyMemory::kAuto && fits);
}

int64_t HostGraph::bytes_of(const GraphView& graph, bool with_topology, std::span<const FarTable> far_tables) {
  int64_t bytes = with_topology ? topology_bytes(graph) : 0;
  for (const FarTable& table : far_tables) {
    if (table.rows) bytes += cache::RowSubset(table.rows->encoded(), table.in_memory).bytes();
  }
  for (const cache::FeatureRows& rows : rows_to_copy(graph)) {
    if (!far_tables.empty()) break;
    bytes += cache::HostFeatures::bytes_of(rows, copies_coded(graph, rows));
  }
  for (const Relation& relation : graph.relations) {
    const cache::FeatureRows& rows = relation.edge_rows;
    if (rows.row_bytes > 0) bytes += cache::HostFeatures::bytes_of(rows, graph.coded_edge_rows && rows.encoded);
  }
  return bytes;
}

HostGraph::HostGraph(const GraphView& graph, bool with_topology, std::span<const FarTable> far_tables) {
  check_host_memory(bytes_of(graph, with_topology, far_tables));
  if (with_topology) {
    for (const Relation& relation : graph.relations) {
      Arrays& own = topology_.emplace_back();
      const auto arrays = arrays_of(relation);
      for (std::size_t i = 0; i < arrays.size(); ++i) {
        if (arrays[i].data) own[i] = host_copy(arrays[i].data, arrays[i].bytes);
      }
    }
  }
  for (const cache::FeatureRows& rows : rows_to_copy(graph)) {
    if (rows_.size() < far_tables.size() && far_tables[rows_.size()].rows) {
      const FarTable& table = far_tables[rows_.size()];
      rows_.push_back(std::make_shared<cache::HostFeatures>(*table.rows, table.in_memory));
    } else {
      rows_.push_back(std::make_shared<cache::HostFeatures>(rows, copies_coded(graph, rows)));
    }
  }
  for (const Relation& relation : graph.relations) {
    const cache::FeatureRows& rows = relation.edge_rows;
    std::shared_ptr<const cache::HostFeatures>& copy = edge_rows_.emplace_back();
    if (rows.row_bytes == 0) continue;
    copy = std::make_shared<cache::HostFeatures>(rows, graph.coded_edge_rows && rows.encoded);
  }
}

void HostGraph::open_topology_to_gpu() const {
  for (const Arrays& arrays : topology_) {
    for (const base::HostTable& array : arrays) array.open_to_gpu();
  }
}

GraphOnGpu::GraphOnGpu(const GraphView& graph, std::shared_ptr<const HostGraph> on_host)
    : on_host_(std::move(on_host)), label_bytes_(graph.label_bytes) {
  on_host_->open_topology_to_gpu();
  const std::vector<cache::RelationLists> numbered = numbered_lists(graph);
  const bool in_gpu = on_host_->topology().empty();
  for (const Relation& relation : graph.relations) {
    // Where kernels read the arrays: from their copies on the host, or from some that are made.
    const auto arrays = arrays_of(relation);
    std::array<const std::byte*, arrays.size()> at{};
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const auto& [data, bytes, what] = arrays[i];
      if (!data) continue;
      at[i] = in_gpu ? topology_.emplace_back(device_copy(data, bytes, what)).data()
                     : on_host_->topology()[relations_.size()][i].data();
    }
    const auto [indptr, indices, edge_weights, edge_times, draws, positive] = at;
    edge_weights_.push_back(reinterpret_cast<const float*>(edge_weights));
    const cache::RelationLists& own = numbered[relations_.size()];
    relations_.push_back({relation.source_type,
                          relation.target_type,
                          {.indptr = reinterpret_cast<const int64_t*>(indptr),
                           .indices = indices,
                           .index_bytes = relation.lists.index_bytes,
                           .first_target = own.first_target,
                           .first_source = own.first_source,
                           .first_list = own.first},
                          {reinterpret_cast<const uint32_t*>(draws), reinterpret_cast<const uint32_t*>(positive)},
                          reinterpret_cast<const int64_t*>(edge_times)});
  }
  labels_ = device_copy(graph.labels, label_bytes(graph), "copy labels to the GPU");
}

}  // namespace cohort::sampler
