// Batches in GPU memory, for the sampler's tests.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/base/on_gpu.h"
#include "tests/sampler/host_batch.h"

namespace cohort::sampler {

// Where rows are in pools: the row of each node, and the batch's number.
struct Pooled {
  int64_t* row_index = nullptr;
  uint64_t number = 0, oldest_in_use = 0;
};

// A sampled batch in GPU memory, which is poisoned before.
class CudaBatch {
 public:
  CudaBatch(const GraphView& graph, const Query& query, BatchSizes sampled)
      : host_(graph, query, std::move(sampled)), input_id_(query.seeds.size()) {
    std::iota(input_id_.begin(), input_id_.end(), int64_t{0});
    for (const std::span<std::byte> array : host_.arrays()) {
      memory_.emplace_back(array.size() + kBehind);
      base::fill_gpu(memory_.back().data(), 0xFF, array.size() + kBehind);
    }
  }

  void start(Backend& backend, const Pooled& pooled = {}) {
    std::vector<std::byte*> memory;
    for (const base::DeviceBytes& array : memory_) memory.push_back(array.data());
    SlotArrays slot = host_.slot(memory);
    slot.row_index = pooled.row_index;
    slot.number = pooled.number;
    slot.oldest_in_use = pooled.oldest_in_use;
    slot.poison = true;
    backend.before_fetch([](base::GpuStream) {});
    backend.fetch(slot, input_id_);
  }

  // To be called in the order in which batches were started. Nothing is written behind an array.
  HostBatch finish(Backend& backend) {
    while (!backend.finished()) {
    }
    rows = backend.fetched().rows;
    const auto arrays = host_.arrays();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const std::vector<std::byte> copy = base::download(memory_[i]);
      const auto end = std::ranges::copy_n(copy.begin(), std::ssize(arrays[i]), arrays[i].begin()).in;
      EXPECT_TRUE(std::all_of(end, copy.end(), [](std::byte byte) { return byte == std::byte{0xFF}; }))
          << "array " << i;
    }
    return host_;
  }

  const BatchSizes& counts() const { return host_.counts; }
  // As the caller of fetch() may do when it has returned.
  void change_input_ids() { std::ranges::fill(input_id_, -1); }

  cache::TierUses rows{};  // of the fetch

 private:
  static constexpr std::size_t kBehind = 256;
  HostBatch host_;
  std::vector<int64_t> input_id_;
  std::vector<base::DeviceBytes> memory_;
};

inline HostBatch run_cuda(Backend& backend, const GraphView& graph, const Query& query,
                          cache::TierUses* rows = nullptr) {
  CudaBatch batch(graph, query, backend.sample(query));
  batch.start(backend);
  HostBatch found = batch.finish(backend);
  if (rows) *rows = batch.rows;
  return found;
}

}  // namespace cohort::sampler
