// From a data set on disk to what the backend works on.
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "cache/remote/other_machines.h"
#include "dataset/dataset.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/start_log.h"

namespace cohort::sampler {

// The files of encoded rows of nodes, and of edges.
std::vector<std::filesystem::path> encoded_files(const dataset::Dataset& data, bool with_edges);
// Checks all of them meanwhile; get() throws Error for damage.
std::future<void> verify_rows(const dataset::Dataset& data, bool with_edges);

// The graph as the backend reads it; its rows are encoded where the options and the data set have it so, and then their
// bytes are still to be verified. Throws Error when they ask for encoded rows that were not prepared, and when what
// must be decoded does not fit in memory.
GraphView view_of(const dataset::Dataset& data, const Options& options, const StartLog& log = {});
// Where the rows of batches are to be; where no node has features, in slots. On the CPU, in slots, or, where the
// options allow it, in a table: the raw file (unless a cache is planned). On GPUs in pools, or, of a graph of one type,
// in a table where each GPU has room for the topology and, in its cache, for all rows as they are.
channel::RowsIn rows_lie_in(const GraphView& graph, const Options& options);
// The same without rows: their row_bytes are 0.
GraphView topology_of(const dataset::Dataset& data);

// Gives relations the times of their edges. Throws Error where the data set has none.
void add_edge_times(const dataset::Dataset& data, GraphView& graph);
// Has draws from the graph go by the data set's edge weights, if the options say so. Throws Error where it has none, or
// bad ones.
void add_draw_weights(const dataset::Dataset& data, const DrawOptions& options, GraphView& graph,
                      const StartLog& log = {});

// Of a list that holds a node several times, not all of them side by side: whose list it is, and that node.
struct ParallelEdges {
  int64_t target, source;
};
// The first such list; none: parallel edges stand side by side everywhere.
std::optional<ParallelEdges> parallel_edges_apart(const base::CscRef& lists);
// Throws Error where the options say layer sampling, and parallel edges stand apart: they would have one number, and so
// be drawn together.
void demand_parallel_edges_together(const dataset::Dataset& data, const DrawOptions& options, const GraphView& graph,
                                    const StartLog& log = {});

// Whether the whole topology is to lie in the memory of each GPU of the options. Throws as topology_lies_in_gpus().
bool topology_in_gpus(const GraphView& graph, const Options& options);

// The backends that the options name, one a rank. `others`: machines that keep a part of the rows each; null: there are
// none. Throws Error when this build or machine does not have them.
std::vector<std::unique_ptr<Backend>> make_backends(const Options& options, const GraphView& graph,
                                                    cache::OtherMachines* others = nullptr, const StartLog& log = {});

}  // namespace cohort::sampler
