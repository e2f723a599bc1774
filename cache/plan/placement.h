// The placement of one clique: rows and lists in descending order of seconds saved per byte, each to the GPU with most
// room. Internal to cache/.
#pragma once

#include <array>
#include <vector>

#include "cache/plan/plan.h"

namespace cohort::cache {

struct Placement {
  std::vector<GpuPlan> gpus;  // [GPUs of the clique]
  std::array<CliqueRows, kNumKinds> rows;
};

// For a clique whose GPUs have these budgets, and all read what `counts` say.
Placement place_items(const Costs& costs, const IndexCost& index, const Counts& counts,
                      const std::vector<int64_t>& budget_bytes);

}  // namespace cohort::cache
