#include "sampler/cache_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/whole_file.h"
#include "cache/host_rows.h"
#include "cache/plan/hotness.h"
#include "cache/plan/stand_in.h"

#ifdef COHORT_WITH_CUDA
#include "base/device.h"
#endif

namespace cohort::sampler {
namespace {

using nlohmann::json;

constexpr int64_t kStandInPicks = 10;  // of a list, where nothing was counted
constexpr const char* kTiers[] = {"local", "peer", "host", "recent", "disk", "remote"};

// How often nodes are read: counted, or a stand-in.
class Reads {
 public:
  Reads(const Options& options, const GraphView& graph) : policy_(options.cache_policy) {
    if (policy_ != "plan") {
      stand_in_ = cache::counts_of_policy(policy_, numbered_lists(graph), graph.num_nodes, kStandInPicks);
      return;
    }
    files_ = options.rank_hotness;
    if (files_.empty()) files_ = {options.hotness.string()};
    for (const std::string& file : files_) load(file, graph.num_nodes, cache::end_of(numbered_lists(graph)));
  }

  bool are_counted() const { return policy_ == "plan"; }
  // One for all cliques of ranks, or one a clique.
  std::vector<cache::Counts> counts(const std::vector<std::vector<int>>& cliques) const {
    if (!are_counted()) return {stand_in_.counts()};
    if (files_.size() == 1) return {counted_.at(files_[0]).counts()};
    std::vector<cache::Counts> counts;
    for (const std::vector<int>& clique : cliques) counts.push_back(counted_.at(file_of(clique)).counts());
    return counts;
  }
  json source() const {
    if (!are_counted()) return nullptr;
    if (files_.size() == 1) return source_of(files_[0]);
    json sources = json::array();
    for (const std::string& file : files_) sources.push_back(source_of(file));
    return sources;
  }
  json note() const {
    if (are_counted()) return nullptr;
    return base::format("policy {} orders rows by a stand-in for counts: what to expect of a batch is not known",
                        policy_);
  }

 private:
  void load(const std::string& file, int64_t num_nodes, int64_t num_lists) {
    if (counted_.contains(file)) return;  // ranks of a clique share it
    const cache::Hotness& counted = counted_.emplace(file, cache::Hotness::load(file)).first->second;
    const auto demand = [&](const char* what, int64_t wanted, int64_t found) {
      if (found == wanted) return;
      throw base::Error({file, base::format("counts of {} {}", wanted, what), base::format("{}", found),
                         "they are of another data set"});
    };
    demand("nodes", num_nodes, counted.num_nodes());
    demand("neighbour lists", num_lists, counted.num_lists());
  }
  const std::string& file_of(const std::vector<int>& clique) const {
    const std::string& first = files_[static_cast<std::size_t>(clique[0])];
    for (const int rank : clique) {
      const std::string& file = files_[static_cast<std::size_t>(rank)];
      if (file != first) {
        throw base::Error({"rank_hotness", "one file for the ranks of a clique, which share a cache",
                           base::format("{} and {}", first, file), ""});
      }
    }
    return first;
  }
  json source_of(const std::string& file) const {
    return {{"file", file}, {"batches", counted_.at(file).num_batches()}};
  }

  std::string policy_;
  std::vector<std::string> files_;
  std::map<std::string, cache::Hotness> counted_;  // by file
  cache::StandIn stand_in_;
};

cache::PlanInput plan_input(const Options& options, const GraphView& graph, const SizesOfRows& rows,
                            bool topology_in_plan) {
  cache::PlanInput input;
  for (const NodeRange& type : graph.types) {
    const std::size_t at = input.sizes.tables.size();
    input.sizes.tables.push_back({type.count, rows.in_slab[at].ref(), rows.in_host[at].ref()});
  }
  if (topology_in_plan) input.sizes.relations = numbered_lists(graph);
  if (options.reuse && options.device == "cuda" && options.cache_policy == "plan" &&
      graph.rows_in != channel::RowsIn::kTable) {
    input.sizes.pool_slots = options.num_slots;
  }
  if (!options.row_owners.hosts.empty() && options.host_bytes < 0) {  // else memory has hot rows of others, too
    input.sizes.parts = {static_cast<int>(options.row_owners.hosts.size()), options.row_owners.own};
  }
  input.budget_bytes = options.cache_bytes;
  for (std::size_t tier = 0; tier < input.links.size(); ++tier) {
    input.links[tier] = {options.bytes_per_second[tier], options.seconds_per_line[tier]};
  }
  input.index = cache::index_cost(input.sizes);
  return input;
}

json describe(const std::array<cache::Use, cache::kNumTiers>& use) {
  json tiers;
  for (std::size_t tier = 0; tier < use.size(); ++tier) {
    tiers[kTiers[tier]] = {{"reads", use[tier].reads},
                           {"bytes", use[tier].bytes},
                           {"lines", use[tier].lines},
                           {"seconds", use[tier].seconds}};
  }
  return tiers;
}

// `num_rows`: that the GPU holds; `expected`: of rows and of lists.
json describe(const cache::GpuPlan& gpu, int64_t num_rows, const json& expected_rows, const json& expected_lists) {
  const auto& [features, topology] = gpu.slabs;
  return {{"budget_bytes", gpu.budget_bytes},
          {"index_bytes", gpu.index_bytes},
          {"used_bytes", gpu.used_bytes()},
          {"alpha", gpu.alpha()},
          {"features", {{"rows", num_rows}, {"bytes", features.bytes}, {"expected", expected_rows}}},
          {"topology", {{"lists", topology.nodes.size()}, {"bytes", topology.bytes}, {"expected", expected_lists}}}};
}

json describe(const Options& options, const std::vector<std::vector<int>>& cliques, json ranks, json counts,
              json note) {
  return {{"policy", options.cache_policy},
          {"cliques", cliques},
          {"counts", std::move(counts)},
          {"note", std::move(note)},
          {"ranks", std::move(ranks)}};
}

// What a slab has of each of these ranges of items: [{name: how many, "bytes"}]. `first`: ascending, of each range.
json describe_parts(const cache::Slab& slab, cache::Kind kind, const cache::Costs& costs, const char* name,
                    const std::vector<int64_t>& first) {
  std::vector<std::pair<int64_t, int64_t>> parts(first.size());  // items, bytes
  for (const uint32_t item : slab.nodes) {
    const auto part = std::ranges::upper_bound(first, int64_t{item}) - first.begin() - 1;
    auto& [count, bytes] = parts[static_cast<std::size_t>(part)];
    ++count;
    bytes += costs.stored_bytes(kind, item);
  }
  json told = json::array();
  for (const auto& [count, bytes] : parts) told.push_back({{name, count}, {"bytes", bytes}});
  return told;
}

// Adds to what is told of each rank what its slabs have of each node type and of each relation.
void describe_types(const GraphView& graph, const cache::Plan& plan, const cache::PlanInput& input, json& ranks) {
  const cache::Costs costs(input.sizes, input.links);
  std::vector<int64_t> first_rows, first_lists;
  for (const NodeRange& type : graph.types) first_rows.push_back(type.first);
  for (const cache::RelationLists& relation : input.sizes.relations) first_lists.push_back(relation.first);
  for (std::size_t rank = 0; rank < plan.gpus.size(); ++rank) {
    const auto& [rows, lists] = plan.gpus[rank].slabs;
    ranks[rank]["features"]["types"] = describe_parts(rows, cache::Kind::kFeature, costs, "rows", first_rows);
    if (first_lists.empty()) continue;
    ranks[rank]["topology"]["relations"] = describe_parts(lists, cache::Kind::kTopology, costs, "lists", first_lists);
  }
}

json describe(const GraphView& graph, const cache::Plan& plan, const cache::PlanInput& input, const Reads& reads,
              const Options& options, bool topology_in_plan) {
  std::vector<std::vector<int>> cliques;
  for (const cache::CliquePlan& clique : plan.cliques) cliques.push_back(clique.gpus);
  json ranks = json::array();
  for (const cache::GpuPlan& gpu : plan.gpus) {
    const bool counted = reads.are_counted();
    ranks.push_back(describe(gpu, std::ssize(gpu.slabs[0].nodes), counted ? describe(gpu.use[0]) : json(),
                             counted && topology_in_plan ? describe(gpu.use[1]) : json()));
  }
  describe_types(graph, plan, input, ranks);
  return describe(options, cliques, std::move(ranks), reads.source(), reads.note());
}

// What the rows of a type take in host memory.
cache::RowSizes host_row_sizes(const GraphView& graph, const NodeRange& type) {
  const cache::FeatureRows& rows = type.rows;
  if (!graph.coded_host_rows || !rows.encoded) return {rows.row_bytes, {}};
  if (const int64_t bytes = rows.encoded->stored_bytes_of_any()) return {bytes, {}};
  return {0, rows.encoded->stored_bytes_of_each()};
}

}  // namespace

bool has_cache(const Options& options) { return !options.cache_bytes.empty() && options.cache_policy != "none"; }

std::vector<cache::SlabRows> slab_rows(const GraphView& graph) {
  std::vector<cache::SlabRows> rows;
  for (const NodeRange& type : graph.types) {
    rows.emplace_back(type.rows, graph.coded_slab_rows && type.rows.row_bytes > 0);
  }
  return rows;
}

SizesOfRows row_sizes(const GraphView& graph, std::span<const cache::SlabRows> rows) {
  SizesOfRows sizes;
  for (const NodeRange& type : graph.types) {
    sizes.in_slab.push_back(rows[sizes.in_slab.size()].sizes());
    sizes.in_host.push_back(host_row_sizes(graph, type));
  }
  return sizes;
}

std::vector<std::vector<int>> rank_cliques(const Options& options) {
  if (options.cliques != "auto") return cache::cliques_named(options.cliques, options.num_ranks);
#ifdef COHORT_WITH_CUDA
  if (options.device == "cuda") {
    std::vector<int> ranks(static_cast<std::size_t>(options.num_ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    const auto gpu_of = [&](int rank) { return options.gpus[static_cast<std::size_t>(rank)]; };
    return base::cliques_of(ranks, cache::kMaxCliqueGpus,
                            [&](int a, int b) { return base::can_read_peer(gpu_of(a), gpu_of(b)); });
  }
#endif
  return cache::cliques_named("none", options.num_ranks);
}

std::optional<cache::Plan> plan_cache(const Options& options, const GraphView& graph,
                                      std::vector<std::vector<int>> cliques, const SizesOfRows& rows,
                                      bool topology_in_plan) {
  if (!has_cache(options)) return std::nullopt;
  const Reads reads(options, graph);
  cache::PlanInput input = plan_input(options, graph, rows, topology_in_plan);
  input.counts = reads.counts(cliques);
  input.cliques = std::move(cliques);
  cache::Plan plan = cache::make_plan(input);
  if (!options.plan_file.empty()) {
    const json told = describe(graph, plan, input, reads, options, topology_in_plan);
    base::write_whole(options.plan_file, told.dump(2) + "\n");
  }
  return plan;
}

void describe_rows_in_place(const Options& options, const GraphView& graph) {
  if (options.plan_file.empty()) return;
  json ranks = json::array();
  for (const int64_t budget : options.cache_bytes) {
    cache::GpuPlan gpu;
    gpu.budget_bytes = budget;
    gpu.slabs[0].bytes = graph.num_nodes * cache::raw_row_stride(graph.types[0].rows.row_bytes);
    ranks.push_back(describe(gpu, graph.num_nodes, {}, {}));
  }
  const auto cliques = cache::cliques_named("none", options.num_ranks);
  const char* note = "every GPU has all rows, and the model reads them there: nothing is planned";
  base::write_whole(options.plan_file, describe(options, cliques, std::move(ranks), {}, note).dump(2) + "\n");
}

}  // namespace cohort::sampler
