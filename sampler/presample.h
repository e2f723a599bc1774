// A short run of the sampler that counts what it reads, for the cache's planner.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/plan/hotness.h"
#include "dataset/dataset.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/schedule.h"

namespace cohort::sampler {

// How a run asks for the batches that are counted (channel/request.h).
struct CountedDraws {
  channel::Draw draw = channel::Draw::kUniform;
  uint64_t dependency = 0;  // as NodeNumbers has it, as the next
  bool layer_dependency = false;
  bool importance = false;
  bool disjoint = false;
  std::vector<int64_t> times{};                      // int64 [n], of the seeds; none: edges of any time
  std::vector<int64_t> time_window{};                // int64 [num_relations]; none: edges of any age
  std::shared_ptr<const Communities> communities{};  // of the seeds, as EpochOrders has them, as the next
  double seed_mix = 1;
};

// What to count: a JSON file with these members.
struct PresampleOptions : DrawOptions {
  std::filesystem::path dataset;  // folder; the file of counts goes there
  std::vector<int32_t> fanout;    // int32 [num_relations, num_hops], entry 0 next to the seeds
  uint32_t batch_size = 1024;
  std::string split = "train";  // whose seeds: "train", "val" or "test"
  std::filesystem::path
      seeds;  // a .npy file of seeds, int64 [n], as the sampler counts nodes, in place of a split's; empty: none
  int64_t max_batches = 200;     // two epochs when that is less
  bool refresh = false;          // count again though there is a file
  std::string draw = "uniform";  // and what follows: see CountedDraws
  bool disjoint = false;
  std::filesystem::path times;  // a .npy file, of `seeds`
  std::vector<int64_t> time_window;
};

// Throws Error naming file and member for anything missing, unknown or out of range.
PresampleOptions read_presample_options(const std::filesystem::path& json);

// Of counts of these seeds, int64 [n], as Query has them. Throws Error for a fanout that does not fit the graph.
cache::HotnessKey hotness_key(const GraphView& graph, std::span<const int64_t> seeds, const PresampleOptions& options,
                              const CountedDraws& how = {});

// Samples as many shuffled batches of one epoch as of another on the CPU, keyed apart from every training epoch, until
// `max_batches` or the epochs' end, the first of an epoch or, of seeds with communities, some from all of it; then a
// quarter as many of a third epoch, which tell what these counts promise. Feature rows are not read. `seeds`: as Query
// has them; `fanout`: of each relation.
cache::Hotness presample(const GraphView& graph, std::span<const int64_t> seeds, const cache::HotnessKey& key,
                         std::span<const int32_t> fanout, int64_t max_batches, const CountedDraws& how = {});

// Makes the file of counts unless a good one is there. Returns JSON {"file", "batches", "reused", "max_batch_nodes",
// "max_batch_edges"}.
std::string presample_to_file(const PresampleOptions& options);

}  // namespace cohort::sampler
