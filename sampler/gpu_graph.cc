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

std::size_t indptr_bytes(const base::CscRef& lists) {
  return (static_cast<std::size_t>(lists.num_nodes) + 1) * sizeof(int64_t);
}

std::size_t indices_bytes(const base::CscRef& lists) {
  return static_cast<std::size_t>(lists.num_edges) * static_cast<std::size_t>(lists.index_bytes);
}

// Of edge weights, and of what DrawWeightsRef has.
std::size_t word_bytes(int64_t count) { return static_cast<std::size_t>(count) * sizeof(uint32_t); }

std::size_t time_bytes(const Relation& relation) {
  return relation.edge_times ? static_cast<std::size_t>(relation.lists.num_edges) * sizeof(int64_t) : 0;
}

// Of what lies where the topology does.
std::size_t topology_bytes(const GraphView& graph) {
  std::size_t bytes = 0;
  for (const Relation& relation : graph.relations) {
    bytes += indptr_bytes(relation.lists) + indices_bytes(relation.lists) + time_bytes(relation);
    if (relation.edge_weights) bytes += word_bytes(relation.lists.num_edges);
    if (relation.draw_weights) bytes += static_cast<std::size_t>(DrawWeights::bytes_of(relation.lists));
  }
  return bytes;
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

bool topology_lies_in_gpus(const GraphView& graph, std::span<const int> gpus, TopologyPlace place,
                           int64_t cache_bytes) {
  const auto topology = static_cast<int64_t>(topology_bytes(graph));
  const int64_t others = cache::bytes_of_nodes(graph.num_nodes, graph.label_bytes) + cache_bytes;
  bool fits = true;
  for (int gpu : gpus) {
    base::choose_gpu(gpu);
    const int64_t free = base::free_device_bytes();
    refuse_more(others, free, cache_bytes > 0 ? "use a smaller cache" : "use a GPU with more memory, or --device cpu");
    if (place == TopologyPlace::kGpu) refuse_more(topology + others, free, "use --topology host, or a smaller cache");
    fits = fits && cache::takes_topology(free - others, topology);
  }
  return place == TopologyPlace::kGpu || (place == TopologyPlace::kAuto && fits);
}

int64_t HostGraph::bytes_of(const GraphView& graph, bool with_topology, std::span<const FarTable> far_tables) {
  int64_t bytes = with_topology ? static_cast<int64_t>(topology_bytes(graph)) : 0;
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
      const base::CscRef& lists = relation.lists;
      Lists& own = topology_.emplace_back();
      own.indptr = host_copy(lists.indptr, indptr_bytes(lists));
      own.indices = host_copy(lists.indices, indices_bytes(lists));
      if (relation.edge_weights) own.edge_weights = host_copy(relation.edge_weights, word_bytes(lists.num_edges));
      if (relation.edge_times) own.edge_times = host_copy(relation.edge_times, time_bytes(relation));
      if (!relation.draw_weights) continue;
      const auto [cumulative, positive] = relation.draw_weights->ref();
      own.cumulative = host_copy(cumulative, word_bytes(lists.num_edges));
      own.positive = host_copy(positive, word_bytes(lists.num_nodes));
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
  for (const Lists& lists : topology_) {
    lists.indptr.open_to_gpu();
    lists.indices.open_to_gpu();
    lists.cumulative.open_to_gpu();
    lists.positive.open_to_gpu();
    lists.edge_weights.open_to_gpu();
    lists.edge_times.open_to_gpu();
  }
}

GraphOnGpu::GraphOnGpu(const GraphView& graph, std::shared_ptr<const HostGraph> on_host)
    : on_host_(std::move(on_host)), label_bytes_(graph.label_bytes) {
  on_host_->open_topology_to_gpu();
  const std::vector<cache::RelationLists> numbered = numbered_lists(graph);
  const bool in_gpu = on_host_->topology().empty();
  for (const Relation& relation : graph.relations) {
    const base::CscRef& lists = relation.lists;
    const HostGraph::Lists nothing;
    const HostGraph::Lists& host = in_gpu ? nothing : on_host_->topology()[relations_.size()];
    // Where kernels read what lies in `from`: from its copy on the host, or from one that is made.
    const auto place = [&](const base::HostTable& copy, const void* from, std::size_t bytes, const char* what) {
      return in_gpu ? topology_.emplace_back(device_copy(from, bytes, what)).data() : copy.data();
    };
    const std::byte* indptr = place(host.indptr, lists.indptr, indptr_bytes(lists), "copy indptr to the GPU");
    const std::byte* indices = place(host.indices, lists.indices, indices_bytes(lists), "copy indices to the GPU");
    const std::size_t of_edges = word_bytes(lists.num_edges);
    const std::byte* edge_weights = nullptr;
    if (relation.edge_weights) {
      edge_weights = place(host.edge_weights, relation.edge_weights, of_edges, "copy edge weights to the GPU");
    }
    edge_weights_.push_back(reinterpret_cast<const float*>(edge_weights));
    const std::byte* edge_times = nullptr;
    if (relation.edge_times) {
      edge_times = place(host.edge_times, relation.edge_times, time_bytes(relation), "copy edge times to the GPU");
    }
    DrawWeightsRef weights;
    if (relation.draw_weights) {
      constexpr const char* kWhat = "copy what draws by weight read to the GPU";
      weights = relation.draw_weights->ref();
      const std::byte* cumulative = place(host.cumulative, weights.cumulative, of_edges, kWhat);
      const std::byte* positive = place(host.positive, weights.positive, word_bytes(lists.num_nodes), kWhat);
      weights = {reinterpret_cast<const uint32_t*>(cumulative), reinterpret_cast<const uint32_t*>(positive)};
    }
    const cache::RelationLists& own = numbered[relations_.size()];
    relations_.push_back({relation.source_type,
                          relation.target_type,
                          {.indptr = reinterpret_cast<const int64_t*>(indptr),
                           .indices = indices,
                           .index_bytes = lists.index_bytes,
                           .first_target = own.first_target,
                           .first_source = own.first_source,
                           .first_list = own.first},
                          weights,
                          reinterpret_cast<const int64_t*>(edge_times)});
  }
  labels_ = device_copy(graph.labels, label_bytes(graph), "copy labels to the GPU");
}

}  // namespace cohort::sampler
