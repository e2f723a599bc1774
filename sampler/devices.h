// What `cohort-sampler --devices`, `--memory`, `--probe` and `--probe-disk` say of this machine.
#pragma once

#include <span>
#include <string>

namespace cohort::sampler {

// Backends of this build and the visible GPUs, as JSON: {"cuda_build": bool, "gpus": [{ordinal, name, uuid, bytes}],
// "cliques": [[ordinal, ...], ...], "versions": [driver, runtime], of CUDA}; the GPUs of a clique read each other's
// memory.
std::string describe_devices();

// Bytes in use on each of these GPUs (ordinals), as JSON: {"used_bytes": [...]}. This process's CUDA context is in
// them, and under MPS all that a limit keeps from its clients.
std::string describe_memory(std::span<const int> gpus);

// What these GPUs (ordinals; none: all that are visible) get from each kind of memory (cache/probe.h), measured now, as
// JSON: {"gpus": [{uuid, local, peer or null, host}]}, in bytes a second.
std::string describe_links(std::span<const int> gpus);

// Random reads of a file of encoded rows for so long of each kind (cache/probe.h), as JSON: {is_direct,
// blocks_per_second, row_reads_per_second, rows_per_second}.
std::string describe_disk(const std::string& file, double seconds);

}  // namespace cohort::sampler
