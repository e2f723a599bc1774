// From a data set on disk to what the backend works on.
#pragma once

#include <memory>

#include "channel/publisher.h"
#include "dataset/dataset.h"
#include "sampler/backend.h"
#include "sampler/options.h"

namespace cohort::sampler {

// The graph as the backend reads it; its rows are encoded where the options and the data set have it so. Throws Error
// when they ask for encoded rows that were not prepared, and when what must be decoded does not fit in memory.
GraphView view_of(const dataset::Dataset& data, const Options& options);

channel::ChannelOptions channel_options(const Options& options, const dataset::Dataset& data);

// The backend that the options name. Throws Error when this build or machine does not have it.
std::unique_ptr<Backend> make_backend(const Options& options, const GraphView& graph);

// Backends of this build and the visible GPUs, as JSON: {"cuda_build": bool, "gpus": [{ordinal, name, uuid, bytes}]}.
std::string describe_devices();

// When the process that started the run is gone, nobody else removes the channel's folder.
void remove_channel_of_dead_owner(const Options& options);

}  // namespace cohort::sampler
