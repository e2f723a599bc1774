// What run.json tells the sampler (its member "sampler"); launch and trainer write it, docs/architecture.md lists it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sampler/backend.h"

namespace cohort::sampler {

inline constexpr int kMaxRanks = 1024;

// The machines of a run, each of which keeps a part of the rows in its memory and gives them to the others.
struct RowOwners {
  std::vector<std::string> names;  // by machine, as errors have it
  std::vector<std::string> hosts;  // where its sampler listens
  std::vector<int> ports;
  int own = 0;          // this machine
  int listener = -1;    // the descriptor on which this sampler listens
  std::string key;      // 32 characters, of this attempt of the run
  double seconds = 60;  // in which a machine answers
};

struct Options {
  std::filesystem::path dataset;  // folder
  std::filesystem::path channel;  // folder for the channel of rank 0, exists; the others' are in it, see rank_folder
  std::string device = "cpu";     // "cpu" or "cuda"
  int num_ranks = 1;              // trainers to serve, each by a pipeline of its own
  std::vector<int> gpus = {0};    // one a rank: CUDA ordinals among the visible GPUs
  std::string topology = "auto";  // where the topology lives: "auto", "gpu" or "host"
  std::string compress = "auto";  // rows kept encoded: "none", "cache", "host", "both"; "auto": see load.cc
  int num_slots = 4;
  int fetch_sms = 0;        // GPU: SMs that fetch rows; 0: a default
  bool reuse = false;       // GPU: rows of batches before are found again in pools
  double pool_share = 0.5;  // GPU: of the memory that is free before the first batch, which pools may take
  uint64_t seed = 0;
  bool in_place = false;       // CPU: the trainer reads rows in the data set's file, where it can
  bool edge_ids = false;       // batches say which edges of the data set they have
  bool edge_weights = false;   // batches have the weights of their edges
  std::string weight_attr;     // neighbours are drawn by these weights: "edge_weight"; empty: uniformly
  bool edge_features = false;  // batches have the features of their edges
  bool edge_times = false;     // seeds may have times, and batches then edges up to these alone

  // The cache.
  std::vector<int64_t> cache_bytes;   // int64 [num_ranks], budget of each rank's GPU, index included; empty: no cache
  std::string cache_policy = "plan";  // what is hot: "plan" (as counted), "degree", "random"; "none": no cache
  int64_t host_bytes = -1;            // for feature rows, index included; others stay on a disk; -1: for all rows
  int ahead = 8;                      // with far rows: batches that are fetched at once, where slots are free
  std::string order = "address";      // how host rows of a batch are read: "address" (ascending) or "asis"
  std::filesystem::path hotness;      // file of counts (cache/FORMAT.md); policy "plan" needs it
  std::vector<std::string> rank_hotness;  // in place of it one a rank, where cliques have seeds of their own
  std::string cliques = "auto";  // ranks that read each other's memory: "auto" (peer access), or as cliques_named
  std::array<double, 3> link_bytes_per_second = {1500e9, 360e9, 51e9};  // local, peer, host
  std::array<double, 3> link_seconds_per_line = {0, 0, 0};              // of 128 bytes, on top
  RowOwners row_owners;             // each machine keeps a part of the rows in memory; no hosts: all rows
  std::filesystem::path plan_file;  // where to write what the plan expects (JSON); empty: nowhere

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
