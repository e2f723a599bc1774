// From a data set on disk to what the backend works on.
#pragma once

#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "channel/publisher.h"
#include "dataset/dataset.h"
#include "sampler/backend.h"
#include "sampler/options.h"
#include "sampler/start_log.h"

namespace cohort::sampler {

// The graph as the backend reads it; its rows are encoded where the options and the data set have it so, and then their
// bytes are still to be verified. Throws Error when they ask for encoded rows that were not prepared, and when what
// must be decoded does not fit in memory.
GraphView view_of(const dataset::Dataset& data, const Options& options, const StartLog& log = {});
// Whether the trainer is to read all feature rows itself: where the options allow it, from the raw file on the CPU
// (unless a cache is planned), and on GPUs where each has room for the topology and, in its cache, for all rows as they
// are.
bool rows_lie_in_place(const GraphView& graph, const Options& options);
// Reads all encoded rows of the data set meanwhile; get() throws Error for damage.
std::future<void> verify_rows(const dataset::Dataset& data);
// The same without rows: row_bytes is 0.
GraphView topology_of(const dataset::Dataset& data);

// What is fixed for the channel of a rank. On a GPU it makes the rank's GPU the calling thread's.
channel::ChannelOptions channel_options(const Options& options, const dataset::Dataset& data, int rank);

// The backends that the options name, one a rank. Throws Error when this build or machine does not have them.
std::vector<std::unique_ptr<Backend>> make_backends(const Options& options, const GraphView& graph,
                                                    const StartLog& log = {});

// Backends of this build and the visible GPUs, as JSON: {"cuda_build": bool, "gpus": [{ordinal, name, uuid, bytes}],
// "cliques": [[ordinal, ...], ...], "versions": [driver, runtime], of CUDA}; the GPUs of a clique read each other's
// memory.
std::string describe_devices();

// What these GPUs (ordinals; none: all that are visible) get from each kind of memory (cache/probe.h), measured now, as
// JSON: {"gpus": [{uuid, local, peer or null, host}]}, in bytes a second.
std::string describe_links(std::span<const int> gpus);

// When the process that started the run is gone (`owner_died`: the kernel has said so), or has left the sampler to
// other ranks (a file `left` says so), nobody else removes the channel's folder; one that is no run's stays.
void remove_channel_of_dead_owner(const Options& options, bool owner_died);

}  // namespace cohort::sampler
