#include <omp.h>

#include <cstring>
#include <random>
#include <string>

#include "base/check.h"
#include "base/device.h"
#include "base/owners.h"
#include "base/process.h"
#include "sampler/backend.h"
#include "sampler/gather.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

// Enough blocks to keep all SMs of the current GPU busy.
int blocks_for_whole_gpu() {
  int gpu = 0, num_sms = 0;
  cuda_check(cudaGetDevice(&gpu), "read the current GPU");
  cuda_check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, gpu), "count SMs");
  constexpr int kBlocksPerSm = 8;
  return num_sms * kBlocksPerSm;
}

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

// The graph where kernels can read it.
class GraphOnGpu {
 public:
  GraphOnGpu(const GraphView& graph, TopologyPlace place) {
    const auto nodes = static_cast<std::size_t>(graph.num_nodes);
    const std::size_t indptr_bytes = (nodes + 1) * sizeof(int64_t);
    const std::size_t indices_bytes = static_cast<std::size_t>(graph.num_edges) * graph.index_bytes;
    const std::size_t label_bytes = nodes * sizeof(int64_t);
    const std::size_t feature_bytes = nodes * graph.row_bytes;
    const bool in_gpu = topology_fits(indptr_bytes + indices_bytes, label_bytes + nodes * sizeof(uint32_t), place);
    check_host_memory(feature_bytes + (in_gpu ? 0 : indptr_bytes + indices_bytes));
    if (in_gpu) {
      gpu_indptr_ = device_copy(graph.indptr, indptr_bytes, "copy indptr to the GPU");
      gpu_indices_ = device_copy(graph.indices, indices_bytes, "copy indices to the GPU");
    } else {
      host_indptr_ = pinned_copy(graph.indptr, indptr_bytes);
      host_indices_ = pinned_copy(graph.indices, indices_bytes);
    }
    labels_ = device_copy(graph.labels, label_bytes, "copy labels to the GPU");
    features_ = pinned_copy(graph.features, feature_bytes);
    topology_ = {reinterpret_cast<const int64_t*>(in_gpu ? gpu_indptr_.data() : host_indptr_.data()),
                 in_gpu ? gpu_indices_.data() : host_indices_.data(), graph.index_bytes};
    rows_ = {features_.data(), graph.row_bytes, reinterpret_cast<const int64_t*>(labels_.data()), graph.num_nodes};
  }
  const TopologyRef& topology() const { return topology_; }
  const RowsRef& rows() const { return rows_; }

 private:
  static bool topology_fits(std::size_t topology_bytes, std::size_t other_bytes, TopologyPlace place) {
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

  static void check_host_memory(std::size_t needed) {
    const int64_t available = base::available_host_bytes();
    if (static_cast<int64_t>(needed) <= available) return;
    throw base::Error({"host memory", base::format_bytes(static_cast<double>(needed)) + " to pin",
                       base::format_bytes(static_cast<double>(available)) + " available",
                       "use a machine with more memory; where memory grows on use, say how much there is with "
                       "COHORT_HOST_MEMORY_BYTES"});
  }

  base::DeviceBytes gpu_indptr_, gpu_indices_, labels_;
  base::PinnedBytes host_indptr_, host_indices_, features_;
  TopologyRef topology_;
  RowsRef rows_;
};

class CudaBackend final : public Backend {
 public:
  CudaBackend(const GraphView& graph, TopologyPlace place, const Faults& faults)
      : faults_(faults),
        graph_(graph, place),
        sampler_(graph_.topology(), graph.num_nodes, blocks_for_whole_gpu()),
        gather_(graph_.rows(), blocks_for_whole_gpu()) {}

  Counts sample(const Query& query) override {
    started_.record(stream_);
    Counts counts = sampler_.sample(query, stream_);
    sampled_.record(stream_);
    return counts;
  }

  void before_fetch(const std::function<void(void*)>& order) override { order(static_cast<cudaStream_t>(stream_)); }

  void fill(std::byte* data, std::size_t bytes, int value) override {
    cuda_check(cudaMemsetAsync(data, value, bytes, stream_), "poison a slot");
  }

  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    inject_faults();
    fetching_.record(stream_);
    const SampledRef batch = sampler_.result();
    cuda_check(cudaMemcpyAsync(slot.input_id, input_id.data(), input_id.size_bytes(), cudaMemcpyHostToDevice, stream_),
               "copy input ids");
    gather_.write_graph(batch, slot, stream_);
    gather_.write_rows(batch, slot, stream_);
    fetched_.record(stream_);
  }

  bool finished() override { return fetched_.done(); }

  BatchTimes times() override {
    float sample_ms = 0, fetch_ms = 0;
    cuda_check(cudaEventElapsedTime(&sample_ms, started_, sampled_), "time the sampling");
    cuda_check(cudaEventElapsedTime(&fetch_ms, fetching_, fetched_), "time the fetch");
    return {1e3 * sample_ms, 1e3 * fetch_ms};
  }

 private:
  void inject_faults() {
    if (faults_.slow_fetch_us > 0) {
      std::uniform_int_distribution<int64_t> delay_us(0, faults_.slow_fetch_us);
      delay(delay_us(delays_), stream_);
    }
    if (fetches_++ == faults_.illegal_access_batch) access_illegally(stream_);
  }

  Faults faults_;
  base::Stream stream_;
  base::Event started_, sampled_, fetching_, fetched_;
  GraphOnGpu graph_;
  CudaNeighborSampler sampler_;
  CudaGather gather_;
  int64_t fetches_ = 0;
  std::mt19937_64 delays_{std::random_device{}()};
};

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const GraphView& graph, TopologyPlace place, const Faults& faults) {
  if (graph.num_nodes > INT32_MAX) {
    throw base::Error({"data set", "at most 2147483647 nodes", std::to_string(graph.num_nodes), "local ids are int32"});
  }
  return std::make_unique<CudaBackend>(graph, place, faults);
}

}  // namespace cohort::sampler
