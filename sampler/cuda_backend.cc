#include <random>
#include <string>

#include "base/check.h"
#include "base/owners.h"
#include "sampler/backend.h"
#include "sampler/gather.h"
#include "sampler/gpu_graph.h"
#include "sampler/neighbor_sampler.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;

int current_gpu() {
  int gpu = 0;
  cuda_check(cudaGetDevice(&gpu), "read the current GPU");
  return gpu;
}

// Enough blocks to keep all SMs of the current GPU busy.
int blocks_for_whole_gpu() {
  int num_sms = 0;
  cuda_check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, current_gpu()), "count SMs");
  constexpr int kBlocksPerSm = 8;
  return num_sms * kBlocksPerSm;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const GraphView& graph, std::shared_ptr<PinnedGraph> pinned, TopologyPlace place, int fetch_blocks,
              const Faults& faults)
      : faults_(faults),
        graph_(graph, std::move(pinned), place),
        sampler_(graph_.topology(), graph.num_nodes, blocks_for_whole_gpu()),
        gather_(graph_.rows(), blocks_for_whole_gpu(), fetch_blocks) {}

  void enter_thread() override { cuda_check(cudaSetDevice(gpu_), "choose the backend's GPU"); }

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
    num_rows_ = batch.num_nodes;
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
    BatchTimes times{1e3 * sample_ms, 1e3 * fetch_ms};
    times.rows[kHostTier] = {num_rows_, num_rows_ * graph_.rows().row_bytes, times.fetch_us};
    return times;
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
  int gpu_ = current_gpu();
  base::Stream stream_;
  base::Event started_, sampled_, fetching_, fetched_;
  GraphOnGpu graph_;
  CudaNeighborSampler sampler_;
  CudaGather gather_;
  int64_t fetches_ = 0;
  int64_t num_rows_ = 0;
  std::mt19937_64 delays_{std::random_device{}()};
};

}  // namespace

std::vector<std::unique_ptr<Backend>> make_cuda_backends(const GraphView& graph, std::span<const int> gpus,
                                                         TopologyPlace place, int fetch_blocks, const Faults& faults) {
  if (graph.num_nodes > INT32_MAX) {
    throw base::Error({"data set", "at most 2147483647 nodes", std::to_string(graph.num_nodes), "local ids are int32"});
  }
  const auto pinned = std::make_shared<PinnedGraph>(graph);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int gpu : gpus) {
    cuda_check(cudaSetDevice(gpu), "choose the backend's GPU");
    backends.push_back(std::make_unique<CudaBackend>(graph, pinned, place, fetch_blocks, faults));
  }
  return backends;
}

}  // namespace cohort::sampler
