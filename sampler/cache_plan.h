// What the cache of a run is to hold, by its options.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cache/plan/plan.h"
#include "cache/slab_rows.h"
#include "sampler/backend.h"
#include "sampler/options.h"

namespace cohort::sampler {

// True when the options ask for a cache: for budgets, and another policy than "none".
bool has_cache(const Options& options);

// The rows of each node type as slabs keep them.
std::vector<cache::SlabRows> slab_rows(const GraphView& graph);

// What feature rows take, of each node type.
struct SizesOfRows {
  std::vector<cache::RowSizes> in_slab, in_host;
};
SizesOfRows row_sizes(const GraphView& graph, std::span<const cache::SlabRows> rows);

// The ranks whose GPUs read each other's memory, every rank once: as the options name them; "auto": as the CUDA runtime
// says of their GPUs, and each alone on the CPU.
std::vector<std::vector<int>> rank_cliques(const Options& options);

// Places the rows of all node types and (if `topology_in_plan`) neighbour lists by the options' policy and budgets, one
// a rank, and writes what to expect of it to options.plan_file. `cliques`: of ranks. nullopt without a cache: no
// budgets, or policy "none". Throws Error when the counts are those of another graph, or the file cannot be written.
//
// The file is JSON: {"policy", "cliques", "counts": {"file", "batches"}, "note", "ranks": [{"budget_bytes",
// "index_bytes", "used_bytes", "alpha", "features": {"rows", "bytes", "expected", "types": [{"rows", "bytes"}]},
// "topology": {"lists", "bytes", "expected", "relations": [{"lists", "bytes"}]}}]}, "types" and "relations" where there
// are several, in the order of the data set; "expected" is {"local"|"peer"|"host"|"recent"|"remote": {"reads", "bytes",
// "lines", "seconds"}}, a batch, or null where nothing was counted or lists are read elsewhere; "counts" is null for
// stand-ins, and "note" says why; it is a list, one a rank, where ranks have counts of their own.
std::optional<cache::Plan> plan_cache(const Options& options, const GraphView& graph,
                                      std::vector<std::vector<int>> cliques, const SizesOfRows& rows,
                                      bool topology_in_plan);

// Writes options.plan_file for GPUs that each hold all feature rows, where the trainer reads them: without counts, with
// nothing expected, and a note that says why.
void describe_rows_in_place(const Options& options, const GraphView& graph);

}  // namespace cohort::sampler
