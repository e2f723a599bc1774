// Feature rows beyond the host memory that a run may use: they stay in the files of encoded rows, or in the memory of
// the run's other machines.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/far_rows.h"
#include "cache/plan/plan.h"
#include "cache/remote/other_machines.h"
#include "cache/tiered_rows.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/start_log.h"

namespace cohort::sampler {

// Those that keep a part of the rows each; null: there are none. The listener of the options is the result's.
std::unique_ptr<cache::OtherMachines> other_machines(const Options& options);
// Tells the rows of all node types from others.
uint32_t tables_digest(const GraphView& graph);

// Whether rows are far: those of nodes, encoded, do not all find room in options.host_bytes, or each machine keeps a
// part of them. Throws Error when they are not encoded.
bool has_far_tier(const Options& options, const GraphView& graph);

// Where the rows of each node type are; the rows that are read most often, by the counts of the options, are in memory.
// `plan`: rows that all of its cliques hold need no place there; null: nothing is cached. `peers`: rows of which
// another machine is the owner are asked for there; this machine's own have room in memory before the others, and
// beyond options.host_bytes they stay on the disk; null: all rows do. Throws Error when there is no room for what must
// be in memory.
std::vector<FarTable> far_tables(const Options& options, const GraphView& graph, const cache::Plan* plan,
                                 const std::shared_ptr<cache::RowPeers>& peers);

// Page-locked memory through which the rows of one table go to one GPU.
int64_t staging_bytes(const Options& options, const GraphView& graph);

// Says how many bytes of rows are far, and where.
void tell(const StartLog& log, const std::vector<FarTable>& tables);

// Of each node type, for CPUs, with the rows that are to be in host memory there; null: without features.
std::vector<std::shared_ptr<const cache::TieredRows>> tiered_rows(const std::vector<FarTable>& tables,
                                                                  const StartLog& log);

}  // namespace cohort::sampler
