#include <future>

#include "sampler/cache_plan.h"
#include "sampler/disk_tier.h"
#include "sampler/load.h"

namespace cohort::sampler {

#ifdef COHORT_WITH_CUDA
namespace {

std::vector<std::unique_ptr<Backend>> backends_on_gpus(const Options& options, const GraphView& graph,
                                                       const StartLog& log) {
  CudaSettings settings;
  settings.topology_in_gpus = topology_in_gpus(graph, options);
  settings.fetch_sms = options.fetch_sms;
  settings.order_host_rows = options.order == "address";
  settings.reuse_rows = options.reuse;
  settings.num_slots = options.num_slots;
  settings.host_bytes_per_second = options.link_bytes_per_second[cache::kHostTier];
  settings.ahead = options.ahead;
  CacheContents contents;
  std::vector<cache::SlabRows> rows;
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
  std::vector<DiskTable> on_disk;
  if (has_disk_tier(options, graph)) {
    on_disk = disk_tables(options, graph, contents.plan.valid() ? &contents.plan.get() : nullptr);
    settings.staging_bytes = staging_bytes(options, graph);
    contents.on_disk = on_disk;
    tell(log, on_disk);
  }
  return make_cuda_backends(graph, options.gpus, settings, contents, options.faults, log);
}

}  // namespace
#endif

std::vector<std::unique_ptr<Backend>> make_backends(const Options& options, const GraphView& graph,
                                                    const StartLog& log) {
#ifdef COHORT_WITH_CUDA
  if (options.device == "cuda") return backends_on_gpus(options, graph, log);
#endif
  TieredTables tiered{{}, static_cast<std::size_t>(options.ahead)};
  if (has_disk_tier(options, graph)) tiered.of_types = tiered_rows(disk_tables(options, graph, nullptr), log);
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    backends.push_back(make_host_backend(graph, options.faults, tiered));
  }
  return backends;
}

}  // namespace cohort::sampler
