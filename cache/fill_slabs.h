// From a plan to feature rows and neighbour lists in the memory of the GPUs that it names.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/shared_gpu_bytes.h"
#include "cache/feature_fetch.h"
#include "cache/list_ref.h"
#include "cache/list_slab.h"
#include "cache/plan/plan.h"
#include "cache/slab_rows.h"

namespace cohort::cache {

// Both fill the slab of each GPU of the plan, those of a clique side by side, and give each GPU the directory of its
// clique; `gpus`: CUDA ordinals, by the plan's numbers. GPUs of a clique get access to each other's memory. They throw
// base::Error naming need and supply when a GPU has no room, or cannot read a peer's memory. Another GPU may be the
// current one afterwards.

// The rows of one node type (plan_of_table()). Rows that are longer than planned leave the last of a slab uncached.
std::vector<SlabView> fill_row_slabs(const Plan& plan, std::span<const int> gpus, const SlabRows& rows,
                                     int64_t num_nodes);

// All feature rows as they are, raw_row_stride() apart, in the order of the nodes, in the memory of each of `gpus`.
std::vector<base::SharedGpuBytes> all_rows_on(std::span<const int> gpus, const SlabRows& rows, int64_t num_nodes);

// The neighbour lists of a clique as one of its GPUs reads them.
struct CachedLists {
  Directory directory;
  std::vector<std::shared_ptr<const ListSlab>> slabs;  // by member of the clique
  uint32_t own = 0;
  CachedListsRef ref() const;  // for kernels
};
std::vector<CachedLists> fill_list_slabs(const Plan& plan, std::span<const int> gpus,
                                         const std::vector<RelationLists>& relations);

}  // namespace cohort::cache
