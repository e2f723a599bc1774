// Building one batch: draw, relabel, fetch. Two bodies, bit-identical: host_backend.cc (OpenMP) and cuda_backend.cu.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"

namespace cohort::cache {
class HostRows;
}

namespace cohort::sampler {

// The graph and its rows in host memory; the owner is the data set, but for rows that are not as it has them.
struct GraphView {
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  const int64_t* indptr = nullptr;                 // int64 [num_nodes + 1], in-neighbours
  const void* indices = nullptr;                   // int32 or int64 [num_edges]
  int index_bytes = 4;                             // 4 or 8
  const int64_t* labels = nullptr;                 // int64 [num_nodes]
  const std::byte* features = nullptr;             // [num_nodes, row_bytes]; may be null when `encoded` is set
  int64_t row_bytes = 0;                           // of a decoded row
  std::shared_ptr<const cache::HostRows> encoded;  // set: rows are fetched from here
  std::shared_ptr<const std::byte[]> decoded;      // keeps `features` that were decoded when the run began
};

// Which batch.
struct Query {
  std::span<const int64_t> seeds;   // int64 [num_seeds], different nodes
  std::span<const int32_t> fanout;  // int32 [num_hops], entry 0 next to the seeds
  base::PhiloxKey key{};            // batch_key(seed, epoch, step)
};

// How large the batch came out.
struct Counts {
  std::vector<int64_t> nodes_per_hop;  // [num_hops + 1]: seeds, then nodes first reached in each hop
  std::vector<int64_t> edges_per_hop;  // [num_hops]
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
};

// Where the batch goes: arrays inside a slot, on the backend's device.
struct SlotArrays {
  int64_t* n_id = nullptr;        // int64 [num_nodes]
  int64_t* y = nullptr;           // int64 [num_nodes]
  int64_t* edge_index = nullptr;  // int64 [2, num_edges]
  int64_t* input_id = nullptr;    // int64 [num_seeds]
  std::byte* x = nullptr;         // [num_nodes, row_bytes]
};

// Places to read from: the GPU's own memory, a peer's, host memory. On the CPU all is host memory.
inline constexpr int kNumTiers = 3;
inline constexpr std::size_t kHostTier = 2;

// Feature rows of a batch that were read from one of them.
struct TierRows {
  int64_t rows = 0;
  int64_t bytes = 0;  // as stored there (encoded)
  double us = 0;      // time of its reads; several may be read side by side
};

// Neighbour lists of a batch that were read from one of them.
struct TierLists {
  int64_t lists = 0;  // that neighbours were drawn from
  int64_t bytes = 0;  // of the neighbours drawn
};

// What a finished batch took.
struct BatchTimes {
  double sample_us = 0;
  double fetch_us = 0;
  std::array<TierRows, kNumTiers> rows{};
  std::array<TierLists, kNumTiers> lists{};
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Called by the thread that will use the backend, before anything else: makes its GPU the thread's.
  virtual void enter_thread() {}

  // Draws and relabels; the result stays in the backend until the next call. Seeds come first, then nodes in order of
  // first occurrence among the drawn edges; edges are ordered by hop, target, and position in the target's neighbours.
  virtual Counts sample(const Query& query) = 0;

  // Puts `order` (which makes a stream wait for the slot's last readers) before the next fetch. Nothing to do on the
  // CPU.
  virtual void before_fetch(const std::function<void(void* stream)>& order) = 0;

  // Fills memory of the slot with a byte; ordered before fetch().
  virtual void fill(std::byte* data, std::size_t bytes, int value) = 0;

  // Starts writing the sampled batch into the slot. On a GPU this is asynchronous.
  virtual void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) = 0;

  // True once everything started by fetch() is in the slot.
  virtual bool finished() = 0;

  // Times of the batch, once it is finished.
  virtual BatchTimes times() = 0;
};

// Deliberate faults and delays, for tests.
struct Faults {
  int64_t slow_fetch_us = 0;          // delay each fetch by up to this many microseconds, at random
  int64_t illegal_access_batch = -1;  // GPU: make an illegal access while fetching this batch (counted from 0)
};

std::unique_ptr<Backend> make_host_backend(const GraphView& graph, const Faults& faults);

#ifdef COHORT_WITH_CUDA
enum class TopologyPlace { kAuto, kGpu, kHost };

// One backend for each of `gpus` (CUDA ordinals). Copies features into pinned memory that they share, topology and
// labels into the memory of each GPU (topology into pinned memory where it would take more than half of the free GPU
// memory, or where `place` says so). Throws Error naming need and supply before anything large is allocated.
// `fetch_blocks`: blocks of 256 threads that read feature rows from host memory.
std::vector<std::unique_ptr<Backend>> make_cuda_backends(const GraphView& graph, std::span<const int> gpus,
                                                         TopologyPlace place, int fetch_blocks, const Faults& faults);

#endif

}  // namespace cohort::sampler
