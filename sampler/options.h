// What run.json tells the sampler (its member "sampler"); launch and trainer write it, docs/architecture.md lists it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sampler/backend.h"

namespace cohort::sampler {

struct Options {
  std::filesystem::path dataset;  // folder
  std::filesystem::path channel;  // folder for the channel of rank 0, exists; the others' are in it, see rank_folder
  std::string device = "cpu";     // "cpu" or "cuda"
  int num_ranks = 1;              // trainers to serve, each by a pipeline of its own
  std::vector<int> gpus = {0};    // one a rank: CUDA ordinals among the visible GPUs
  std::string topology = "auto";  // where the topology lives: "auto", "gpu" or "host"
  std::string compress = "auto";  // rows kept encoded: "none", "cache", "host", "both"; "auto": host if prepared
  int num_slots = 3;
  int fetch_blocks = 32;  // GPU: blocks that read rows from host memory
  uint64_t seed = 0;
  int32_t owner_pid = 0;         // the process that started the run; the sampler ends when it does
  bool end_with_parent = false;  // ask the kernel to end the sampler with its parent
  bool poison_slots = false;     // debug: fill a slot with 0xFF before it is refilled
  Faults faults;                 // tests only
};

// The folder of a rank's channel.
std::filesystem::path rank_folder(const Options& options, int rank);

// Reads options from a run.json. Throws Error naming file and member for anything missing, unknown or out of range.
Options read_options(const std::filesystem::path& run_json);

}  // namespace cohort::sampler
