#include <future>
#include <utility>

#include "sampler/cache_plan.h"
#include "sampler/far_tier.h"
#include "sampler/load.h"

#ifdef COHORT_WITH_CUDA
#include "cache/host_features.h"
#endif

namespace cohort::sampler {

namespace {

std::shared_ptr<cache::RowPeers> peers_of(cache::OtherMachines* others) { return others ? others->peers() : nullptr; }

// What other machines get.
std::vector<cache::ServedTable> served(const std::vector<std::shared_ptr<const cache::TieredRows>>& in_memory,
                                       const std::vector<FarTable>& tables) {
  std::vector<cache::ServedTable> all;
  for (std::size_t type = 0; type < tables.size(); ++type) {
    cache::ServedTable& table = all.emplace_back();
    const auto& rows = in_memory[type];
    if (rows) table = {rows->in_memory(), rows->chosen().ref(), rows->chosen().num_rows(), rows, tables[type].disk};
  }
  return all;
}

void share(std::vector<cache::ServedTable> tables, cache::OtherMachines& others, const StartLog& log) {
  others.share(std::move(tables));
  others.measure_network([&](int64_t bytes) { log.begin("measuring the network", bytes); });
}

#ifdef COHORT_WITH_CUDA
std::vector<cache::ServedTable> served(const std::vector<std::shared_ptr<const cache::HostFeatures>>& rows,
                                       const std::vector<FarTable>& tables) {
  struct Kept {
    std::shared_ptr<const cache::HostFeatures> rows;
    cache::RowBits chosen;
  };
  std::vector<cache::ServedTable> all;
  for (std::size_t type = 0; type < tables.size(); ++type) {
    cache::ServedTable& table = all.emplace_back();
    if (!tables[type].rows) continue;
    const auto kept = std::make_shared<const Kept>(rows[type], tables[type].in_memory);
    table = {kept->rows->encoded(), kept->chosen.ref(), kept->chosen.num_rows(), kept, tables[type].disk};
  }
  return all;
}

std::vector<std::unique_ptr<Backend>> backends_on_gpus(const Options& options, const GraphView& graph,
                                                       cache::OtherMachines* others, const StartLog& log) {
  CudaSettings settings;
  settings.topology_in_gpus = topology_in_gpus(graph, options);
  settings.fetch_sms = options.fetch_sms;
  settings.order_host_rows = options.order == "address";
  settings.reuse_rows = options.reuse;
  settings.pool_share = options.pool_share;
  settings.num_slots = options.num_slots;
  settings.host_bytes_per_second = options.bytes_per_second[cache::kHostTier];
  settings.ahead = options.ahead;
  std::vector<cache::SlabRows> rows;
  CacheContents contents;  // its end waits for the plan, which reads the above
  if (has_cache(options)) {
    rows = slab_rows(graph);
    contents.rows = rows;
    if (graph.rows_in == channel::RowsIn::kTable) {
      describe_rows_in_place(options, graph);
    } else {
      contents.plan = std::async(std::launch::async, [&] {
                        return *plan_cache(options, graph, rank_cliques(options), row_sizes(graph, rows),
                                           !settings.topology_in_gpus);
                      }).share();
    }
  }
  std::vector<FarTable> tables;
  if (has_far_tier(options, graph)) {
    tables = far_tables(options, graph, contents.plan.valid() ? &contents.plan.get() : nullptr, peers_of(others));
    settings.staging_bytes = staging_bytes(options, graph);
    contents.far_tables = tables;
    tell(log, tables);
  }
  if (others) contents.on_host = [&](const auto& on_host) { share(served(on_host, tables), *others, log); };
  return make_cuda_backends(graph, options.gpus, settings, contents, options.faults(), log);
}

#endif

}  // namespace

std::vector<std::unique_ptr<Backend>> make_backends(const Options& options, const GraphView& graph,
                                                    cache::OtherMachines* others, const StartLog& log) {
#ifdef COHORT_WITH_CUDA
  if (options.device == "cuda") return backends_on_gpus(options, graph, others, log);
#endif
  TieredTables tiered{{}, static_cast<std::size_t>(options.ahead)};
  std::vector<FarTable> tables;
  if (has_far_tier(options, graph)) {
    tables = far_tables(options, graph, nullptr, peers_of(others));
    tiered.of_types = tiered_rows(tables, log);
  }
  if (others) share(served(tiered.of_types, tables), *others, log);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    backends.push_back(make_host_backend(graph, options.faults(), tiered));
  }
  return backends;
}

}  // namespace cohort::sampler
