// Where one GPU of a clique finds what the clique caches, from the plan and from where each slab put its rows. For
// feature rows and neighbour lists alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/uninitialized_vector.h"
#include "cache/directory.h"
#include "cache/plan/plan.h"

namespace cohort::cache {

// The slab of one GPU, as it was filled.
struct FilledSlab {
  std::span<const uint32_t> nodes;    // uint32 [rows], Slab::nodes
  std::span<const uint64_t> entries;  // uint64 [rows], of these nodes in this slab; no region yet
};

// The entry of each node, for the GPU at position `member` of the clique: its own copy, first or replica; else that of
// the first `num_entries` rows of the clique, where the owner has it; else kNoEntry. The region is the position in the
// clique of the GPU whose slab it is. `slabs`: of the clique's GPUs, in its order. uint64 [num_nodes]
base::UninitializedVector<uint64_t> entries_seen_by(int member, const CliqueRows& rows, int64_t num_entries,
                                                    std::span<const FilledSlab> slabs, int64_t num_nodes);

// The same as a directory, for the GPU at position `member` of plan.cliques[clique]. `entries`: uint64 [GPUs of the
// clique][rows], of each slab of the plan as it was filled. Takes 8 bytes a node while it works.
DirectoryArrays directory_seen_by(int member, const Plan& plan, std::size_t clique, Kind kind,
                                  std::span<const std::span<const uint64_t>> entries, int64_t num_nodes);

}  // namespace cohort::cache
