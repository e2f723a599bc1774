#include "sampler/gpu_graph.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/device.h"
#include "base/process.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

// Copies in parallel into pinned memory.
base::PinnedBytes pinned_copy(const void* from, std::size_t bytes) {
  base::PinnedBytes to(bytes);
  constexpr std::size_t kChunk = std::size_t{1} << 22;
#pragma omp parallel for schedule(dynamic)
  for (std::size_t first = 0; first < bytes; first += kChunk) {
    std::memcpy(to.data() + first, static_cast<const std::byte*>(from) + first, std::min(kChunk, bytes - first));
  }
  return to;
}

base::DeviceBytes device_copy(const void* from, std::size_t bytes, const char* what) {
  base::DeviceBytes to(bytes, what);
  if (bytes > 0) cuda_check(cudaMemcpy(to.data(), from, bytes, cudaMemcpyHostToDevice), what);
  return to;
}

bool topology_fits(std::size_t topology_bytes, std::size_t other_bytes, TopologyPlace place) {
  const auto free = static_cast<std::size_t>(base::free_device_bytes());
  const auto refuse = [free](std::size_t needed, const char* hint) {
    if (needed <= free) return;
    throw base::Error({"GPU memory", base::format_bytes(static_cast<double>(needed)),
                       base::format_bytes(static_cast<double>(free)) + " free", hint});
  };
  refuse(other_bytes, "use a GPU with more memory, or --device cpu");
  if (place == TopologyPlace::kHost) return false;
  if (place == TopologyPlace::kAuto) return topology_bytes <= free / 2;
  refuse(topology_bytes + other_bytes, "use --topology host");
  return true;
}

void check_host_memory(std::size_t needed) {
  const int64_t available = base::available_host_bytes();
  if (static_cast<int64_t>(needed) <= available) return;
  throw base::Error({"host memory", base::format_bytes(static_cast<double>(needed)) + " to pin",
                     base::format_bytes(static_cast<double>(available)) + " available",
                     "use a machine with more memory; where memory grows on use, say how much there is with "
                     "COHORT_HOST_MEMORY_BYTES"});
}

std::size_t indptr_bytes(const GraphView& graph) {
  return (static_cast<std::size_t>(graph.num_nodes) + 1) * sizeof(int64_t);
}

std::size_t indices_bytes(const GraphView& graph) {
  return static_cast<std::size_t>(graph.num_edges) * static_cast<std::size_t>(graph.index_bytes);
}

}  // namespace

void PinnedGraph::pin(bool with_topology) {
  const std::size_t feature_bytes =
      static_cast<std::size_t>(graph_.num_nodes) * static_cast<std::size_t>(graph_.row_bytes);
  const bool features_lack = features_.bytes() < feature_bytes, topology_lacks = with_topology && indptr_.bytes() == 0;
  check_host_memory((features_lack ? feature_bytes : 0) +
                    (topology_lacks ? indptr_bytes(graph_) + indices_bytes(graph_) : 0));
  if (topology_lacks) {
    indptr_ = pinned_copy(graph_.indptr, indptr_bytes(graph_));
    indices_ = pinned_copy(graph_.indices, indices_bytes(graph_));
  }
  if (features_lack) features_ = pinned_copy(graph_.features, feature_bytes);
}

GraphOnGpu::GraphOnGpu(const GraphView& graph, std::shared_ptr<PinnedGraph> pinned, TopologyPlace place)
    : pinned_(std::move(pinned)) {
  const auto nodes = static_cast<std::size_t>(graph.num_nodes);
  const std::size_t label_bytes = nodes * sizeof(int64_t);
  const bool in_gpu =
      topology_fits(indptr_bytes(graph) + indices_bytes(graph), label_bytes + nodes * sizeof(uint32_t), place);
  pinned_->pin(!in_gpu);
  if (in_gpu) {
    indptr_ = device_copy(graph.indptr, indptr_bytes(graph), "copy indptr to the GPU");
    indices_ = device_copy(graph.indices, indices_bytes(graph), "copy indices to the GPU");
  }
  labels_ = device_copy(graph.labels, label_bytes, "copy labels to the GPU");
  topology_ = {reinterpret_cast<const int64_t*>(in_gpu ? indptr_.data() : pinned_->indptr()),
               in_gpu ? indices_.data() : pinned_->indices(), graph.index_bytes};
  rows_ = {pinned_->features(), graph.row_bytes, reinterpret_cast<const int64_t*>(labels_.data()), graph.num_nodes};
}

}  // namespace cohort::sampler
