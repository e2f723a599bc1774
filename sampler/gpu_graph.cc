#include "sampler/gpu_graph.h"

#include <algorithm>

#include "base/check.h"
#include "base/device.h"
#include "base/host_memory.h"
#include "base/parallel_copy.h"
#include "base/staged_copy.h"
#include "cache/plan/gpu_bytes.h"

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
  const int64_t available = base::available_host_bytes();
  if (needed <= available) return;
  throw base::Error(
      {"host memory", base::format_bytes(static_cast<double>(needed)) + " for features and topology",
       base::format_bytes(static_cast<double>(available)) + " available",
       "use a machine with more memory, or raise the limit of the container or job; where memory grows on use, "
       "say how much there is with COHORT_HOST_MEMORY_BYTES"});
}

std::size_t indptr_bytes(const GraphView& graph) {
  return (static_cast<std::size_t>(graph.num_nodes) + 1) * sizeof(int64_t);
}

std::size_t indices_bytes(const GraphView& graph) {
  return static_cast<std::size_t>(graph.num_edges) * static_cast<std::size_t>(graph.index_bytes);
}

std::size_t weight_bytes(const GraphView& graph) {
  return graph.edge_weights ? static_cast<std::size_t>(graph.num_edges) * sizeof(float) : 0;
}

// Of what lies where the topology does.
std::size_t topology_bytes(const GraphView& graph) {
  return indptr_bytes(graph) + indices_bytes(graph) + weight_bytes(graph);
}

std::size_t label_bytes(const GraphView& graph) {
  return static_cast<std::size_t>(graph.num_nodes) * static_cast<std::size_t>(graph.label_bytes);
}

// Feature rows that GPUs fetch from host memory.
cache::FeatureRows rows_to_copy(const GraphView& graph) {
  return graph.rows_in_place ? cache::FeatureRows{graph.row_shape, 0, nullptr, nullptr} : feature_rows(graph);
}

bool copies_coded_rows(const GraphView& graph) { return graph.coded_host_rows && !graph.rows_in_place; }

void refuse_more(int64_t needed, int64_t free, const char* hint) {
  if (needed <= free) return;
  throw base::Error({"GPU memory", base::format_bytes(static_cast<double>(needed)),
                     base::format_bytes(static_cast<double>(free)) + " free", hint});
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

int64_t HostGraph::bytes_of(const GraphView& graph, bool with_topology) {
  return cache::HostFeatures::bytes_of(rows_to_copy(graph), copies_coded_rows(graph)) +
         (with_topology ? static_cast<int64_t>(topology_bytes(graph)) : 0);
}

HostGraph::HostGraph(const GraphView& graph, bool with_topology) {
  check_host_memory(bytes_of(graph, with_topology));
  if (with_topology) {
    indptr_ = host_copy(graph.indptr, indptr_bytes(graph));
    indices_ = host_copy(graph.indices, indices_bytes(graph));
    if (graph.edge_weights) edge_weights_ = host_copy(graph.edge_weights, weight_bytes(graph));
  }
  rows_ = std::make_shared<cache::HostFeatures>(rows_to_copy(graph), copies_coded_rows(graph));
}

void HostGraph::open_topology_to_gpu() const {
  for (const base::HostTable* table : {&indptr_, &indices_, &edge_weights_}) table->open_to_gpu();
}

GraphOnGpu::GraphOnGpu(const GraphView& graph, std::shared_ptr<const HostGraph> on_host)
    : on_host_(std::move(on_host)), label_bytes_(graph.label_bytes) {
  const bool in_gpu = on_host_->indptr() == nullptr;
  on_host_->open_topology_to_gpu();
  if (in_gpu) {
    indptr_ = device_copy(graph.indptr, indptr_bytes(graph), "copy indptr to the GPU");
    indices_ = device_copy(graph.indices, indices_bytes(graph), "copy indices to the GPU");
    if (graph.edge_weights) {
      edge_weights_ = device_copy(graph.edge_weights, weight_bytes(graph), "copy edge weights to the GPU");
    }
  }
  labels_ = device_copy(graph.labels, label_bytes(graph), "copy labels to the GPU");
  topology_ = {reinterpret_cast<const int64_t*>(in_gpu ? indptr_.data() : on_host_->indptr()),
               in_gpu ? indices_.data() : on_host_->indices(), graph.index_bytes};
  edge_weights_ref_ = reinterpret_cast<const float*>(in_gpu ? edge_weights_.data() : on_host_->edge_weights());
}

}  // namespace cohort::sampler
