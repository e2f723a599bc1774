// From a plan to feature rows in the memory of the GPUs that it names.
#pragma once

#include <span>
#include <vector>

#include "cache/feature_fetch.h"
#include "cache/plan.h"
#include "cache/slab_rows.h"

namespace cohort::cache {

// Fills the slab of each GPU of the plan and gives each GPU the directory of its clique; `gpus`: CUDA ordinals, by the
// plan's numbers. Rows that are longer than planned leave the last of a slab uncached. GPUs of a clique get access to
// each other's memory. Throws base::Error naming need and supply when a GPU has no room, or cannot read a peer's
// memory. Another GPU may be the current one afterwards.
std::vector<SlabView> fill_slabs(const Plan& plan, std::span<const int> gpus, SlabRows& rows, int64_t num_nodes);

}  // namespace cohort::cache
