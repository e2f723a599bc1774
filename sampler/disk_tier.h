// Feature rows beyond the host memory that a run may use: they stay in the files of encoded rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/disk_rows.h"
#include "cache/plan/plan.h"
#include "cache/tiered_rows.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/start_log.h"

namespace cohort::sampler {

// Whether rows stay on a disk: those of nodes, encoded, do not all find room in options.host_bytes. Throws Error when
// they do not, and are not encoded.
bool has_disk_tier(const Options& options, const GraphView& graph);

// Where the rows of each node type are; the rows that are read most often, by the counts of the options, are in memory.
// `plan`: rows that all of its cliques hold need no place there; null: nothing is cached. Throws Error when
// options.host_bytes have no room for what finds rows.
std::vector<DiskTable> disk_tables(const Options& options, const GraphView& graph, const cache::Plan* plan);

// Page-locked memory through which the rows of one table go to one GPU.
int64_t staging_bytes(const Options& options, const GraphView& graph);

// Says how many bytes of rows stay on the disk, and how they are read.
void tell(const StartLog& log, const std::vector<DiskTable>& tables);

// Of each node type, for CPUs, with the rows that are to be in host memory there; null: without features.
std::vector<std::shared_ptr<const cache::TieredRows>> tiered_rows(std::vector<DiskTable> tables, const StartLog& log);

}  // namespace cohort::sampler
