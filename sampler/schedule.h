// Which seeds make up which batch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <vector>

#include "channel/layout.h"

namespace cohort::sampler {

// One pass over a seed set: a shuffle keyed by (seed, epoch), cut into batches; the last may be smaller.
class Schedule {
 public:
  // seeds: int64 [n]. `seed` is the run's; throws Error on a batch size below 1.
  Schedule(std::span<const int64_t> seeds, const channel::Request& request, uint64_t seed);

  uint64_t num_steps() const { return num_steps_; }

  // Positions of the batch's seeds in the seed set (`input_id`), int64 [num_seeds].
  std::span<const int64_t> positions(uint64_t step) const;

  // The batch's seeds, int64 [num_seeds]. Valid until the next call.
  std::span<const int64_t> seeds(uint64_t step);

 private:
  std::span<const int64_t> set_;
  uint64_t batch_size_;
  uint64_t num_steps_;
  std::vector<int64_t> order_;  // int64 [n], a permutation of positions
  std::vector<int64_t> batch_;
};

// The seed sets of a channel: files seeds-<number>.npy (int64 [n]) in its folder, read when first asked for.
class SeedSets {
 public:
  SeedSets(std::filesystem::path folder, int64_t num_nodes) : folder_(std::move(folder)), num_nodes_(num_nodes) {}

  // Throws Error when the file is missing or malformed, an id is out of range, or one stands twice.
  std::span<const int64_t> get(uint32_t number);

 private:
  std::filesystem::path folder_;
  int64_t num_nodes_;
  std::map<uint32_t, std::vector<int64_t>> sets_;
};

// The numbers 0 .. size-1 in an order that depends on (seed, epoch) alone (Fisher-Yates).
std::vector<int64_t> shuffled(int64_t size, uint64_t seed, uint64_t epoch);

}  // namespace cohort::sampler
