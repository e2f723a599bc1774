// How often each row and each neighbour list is read: counts of a short run of the real sampler, and the file that
// keeps them (FORMAT.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/uninitialized_vector.h"
#include "cache/plan/cost.h"

namespace cohort::cache {

// What the counts depend on. Two keys with one digest stand for the same accesses.
struct HotnessKey {
  uint64_t dataset = 0;         // hash of the graph
  uint64_t split = 0;           // hash of the seeds, in order, and of further relations' fanouts, weights of draws
  std::vector<int32_t> fanout;  // int32 [num_hops], 1 to 16 of them, of the first relation
  uint32_t batch_size = 0;
  bool operator==(const HotnessKey&) const = default;
  uint64_t digest() const;
};

// A 64-bit hash of 64-bit words, or of what came before (its hash) and them. For keys; no defence against malice.
uint64_t hash_words(std::span<const int64_t> words, uint64_t before = 0);

// A sampled batch, as the accumulation sees it.
struct SampledBatch {
  std::span<const int64_t> nodes;        // int64 [num_nodes], global ids, each once: all feature rows that it reads
  std::span<const int64_t> lists;        // int64 [num_lists], each once: those that neighbours were drawn from
  std::span<const int64_t> picks;        // int64 [num_lists]: how many of each
  std::span<const int64_t> looked_at{};  // int64 [num_lists]: how many that took, where more than `picks`; else empty
};

// What a file of counts says of them before they come.
struct HotnessTotals {
  int64_t num_batches = 0;
  int64_t max_batch_nodes = 0;
  int64_t max_batch_edges = 0;
};

class Hotness {
 public:
  Hotness() = default;
  // Nothing counted yet.
  Hotness(HotnessKey key, int64_t num_nodes, int64_t num_lists, uint64_t seed);

  // Throws Error when a count would pass its type.
  void add(const SampledBatch& batch);
  // Counts of a part of the run promise less than they say where batches differ, and as much where the same seeds come
  // again. A trial tells how much: batches of yet another epoch, which are not counted, between these two.
  void begin_trial();
  // whole_lists_edges: of all lists, where batches looked at whole ones; then long lists count more in the mean. Else
  // 0.
  void end_trial(int64_t whole_lists_edges = 0);

  const HotnessKey& key() const { return key_; }
  int64_t num_nodes() const { return static_cast<int64_t>(node_reads_.size()); }
  int64_t num_lists() const { return static_cast<int64_t>(expansions_.size()); }
  int64_t num_batches() const { return totals_.num_batches; }
  uint64_t seed() const { return seed_; }
  int64_t max_batch_nodes() const { return totals_.max_batch_nodes; }
  int64_t max_batch_edges() const { return totals_.max_batch_edges; }
  const HotnessTotals& totals() const { return totals_; }
  std::span<const uint32_t> node_reads() const { return node_reads_; }  // uint32 [V]
  std::span<const uint32_t> expansions() const { return expansions_; }  // uint32 [lists]
  std::span<const uint64_t> edges_read() const { return edges_read_; }  // uint64 [lists]
  Promises promises() const { return {promised_[0], promised_[1]}; }
  Counts counts() const {
    return {totals_.num_batches, node_reads_.data(), expansions_.data(), edges_read_.data(), promises()};
  }

  // Writes the file whole or not at all.
  void save(const std::filesystem::path& path) const;
  // Throws Error when the file is missing, damaged, or of another key than `expected` (nullptr: any).
  static Hotness load(const std::filesystem::path& path, const HotnessKey* expected = nullptr);
  // The same of what comes before the counts, at which it does not look.
  static HotnessTotals load_totals(const std::filesystem::path& path, const HotnessKey* expected = nullptr);

 private:
  HotnessKey key_;
  uint64_t seed_ = 0;
  HotnessTotals totals_;
  base::UninitializedVector<uint32_t> node_reads_;
  base::UninitializedVector<uint32_t> expansions_;
  base::UninitializedVector<uint64_t> edges_read_;
  std::array<std::vector<double>, kNumKinds> promised_;  // as in Promises

  void try_batch(const SampledBatch& batch);
  // What a trial found, by the count of the rows and of the lists: reads, expansions.
  using Tried = std::array<std::vector<int64_t>, kNumKinds>;
  std::optional<Tried> tried_;
};

// Where a data set keeps its counts for a key: DIR/hotness-<digest as 16 hex digits>.bin.
std::filesystem::path hotness_path(const std::filesystem::path& dataset, const HotnessKey& key);

}  // namespace cohort::cache
