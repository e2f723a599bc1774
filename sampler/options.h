// What run.json tells the sampler (its member "sampler"); launch and trainer write it.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sampler/backend.h"
#include "sampler/option_list.h"
#include "sampler/schedule.h"

namespace cohort::sampler {

inline constexpr int kMaxRanks = 1024;
inline constexpr int64_t kMostDependency = int64_t{1} << 20;

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

using Tiers = std::array<double, 3>;  // local, peer and host memory

#define COHORT_MEMBER(type, name, default_value, rule, about) type name = default_value;
struct DrawOptions {
  COHORT_DRAW_OPTIONS(COHORT_MEMBER)

  // As NodeNumbers has it.
  uint64_t dependency() const { return sampling == "labor" ? static_cast<uint64_t>(batch_dependency) : 0; }
  // By which seeds are ordered. Throws Error for a file that has none of so many nodes.
  NodeCommunities communities(int64_t num_nodes) const;
};

struct Options : DrawOptions {
  COHORT_SAMPLER_OPTIONS(COHORT_MEMBER)
#undef COHORT_MEMBER

  Faults faults() const { return {slow_fetch_us, illegal_access_batch}; }
};

// The folder of a rank's channel.
std::filesystem::path rank_folder(const Options& options, int rank);

// Reads options from a run.json. Throws Error naming file and member for anything missing, unknown or out of range.
Options read_options(const std::filesystem::path& run_json);

// The options as a table in Markdown.
std::string options_table();

}  // namespace cohort::sampler
