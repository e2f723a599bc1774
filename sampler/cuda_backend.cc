#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/format.h"
#include "base/owners.h"
#include "base/pinned_scratch.h"
#include "base/shared_gpu_bytes.h"
#include "base/side_by_side.h"
#include "base/sm_partition.h"
#include "cache/feature_fetch.h"
#include "cache/fill_slabs.h"
#include "sampler/backend.h"
#include "sampler/batch_writer.h"
#include "sampler/gpu_graph.h"
#include "sampler/neighbor_sampler.h"
#include "sampler/pace.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::current_gpu;

int num_sms_of_current_gpu() {
  int num_sms = 0;
  cuda_check(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, current_gpu()), "count SMs");
  return num_sms;
}

// Blocks that keep so many SMs busy.
constexpr int blocks_for(int num_sms) {
  constexpr int kBlocksPerSm = 8;
  return num_sms * kBlocksPerSm;
}

std::vector<int64_t> first_of_types(const GraphView& graph) {
  std::vector<int64_t> first;
  for (const NodeRange& type : graph.types) first.push_back(type.first);
  return first;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const GraphView& graph, std::shared_ptr<const HostGraph> on_host, const CudaSettings& settings,
              const Faults& faults, std::span<const FarTable> far_tables)
      : faults_(faults),
        in_flight_(far_tables.empty() ? 2
                                      : static_cast<std::size_t>(std::clamp(settings.ahead, 2, settings.num_slots))),
        graph_(graph, std::move(on_host)),
        fetch_sms_(settings.fetch_sms > 0 ? settings.fetch_sms : cache::kDefaultFetchSms),
        max_blocks_(blocks_for(num_sms_of_current_gpu())),
        sampler_(graph_.relations(), first_of_types(graph), graph.num_nodes, max_blocks_),
        writer_(graph),
        pool_share_(settings.pool_share) {
    const cache::FetchSettings fetch{fetch_sms_, settings.order_host_rows, settings.host_bytes_per_second,
                                     in_flight_.size()};
    for (const NodeRange& type : graph.types) {
      const int64_t row_bytes = graph.fetched_row_bytes(type);
      rows_.push_back(std::make_unique<cache::FeatureFetch>(graph_.on_host().rows()[rows_.size()], row_bytes, fetch));
      if (!far_tables.empty() && far_tables[rows_.size() - 1].rows) {
        const FarTable& table = far_tables[rows_.size() - 1];
        const int64_t buffer_bytes = table.disk ? cache::kBufferBytesOfDisks : cache::kBufferBytesOfMachines;
        rows_.back()->set_far({table.rows, &table.in_memory, settings.staging_bytes, buffer_bytes});
      }
      Pool& pool = pools_.emplace_back();
      if (graph.rows_in != channel::RowsIn::kPool || row_bytes == 0) continue;
      rows_.back()->use_pool(type.count, settings.reuse_rows);
      pool.row_bytes = row_bytes;
      pool.most_rows = settings.reuse_rows ? type.count : settings.num_slots * type.count;
      pool.memory = base::GrowingGpuBytes(static_cast<std::size_t>(pool.most_rows * pool.row_bytes));
    }
    table_row_bytes_ = graph.types[0].rows.row_bytes;
    for (const Relation& relation : graph.relations) {
      std::unique_ptr<cache::FeatureFetch>& rows = edge_rows_.emplace_back();
      if (relation.edge_rows.row_bytes == 0) continue;
      rows = std::make_unique<cache::FeatureFetch>(graph_.on_host().edge_rows()[edge_rows_.size() - 1],
                                                   relation.edge_rows.row_bytes, fetch);
    }
  }

  int64_t pool_rows(std::size_t type) const override { return rows_[type]->pool_rows(); }
  int64_t most_pool_rows(std::size_t type) const override { return pools_[type].most_rows; }

  double most_pool_bytes() override {
    if (!most_pool_bytes_) most_pool_bytes_ = pool_share_ * static_cast<double>(base::free_device_bytes());
    return *most_pool_bytes_;
  }

  const base::SharedGpuBytes* grow_pool(std::size_t type, int64_t needed, int64_t preferred) override {
    Pool& pool = pools_[type];
    const auto missing_bytes = [&pool](int64_t rows) {
      return std::max(static_cast<std::size_t>(rows * pool.row_bytes), pool.memory.bytes()) - pool.memory.bytes();
    };
    const auto free_bytes = static_cast<std::size_t>(base::free_device_bytes());
    const std::size_t bytes = missing_bytes(missing_bytes(preferred) <= free_bytes ? preferred : needed);
    base::demand_bytes(static_cast<int64_t>(bytes), static_cast<int64_t>(free_bytes), "GPU memory for rows of batches",
                       "", "use a smaller cache, --batch-size or --fanout, fewer --slots, or --topology host", "free");
    const base::SharedGpuBytes& piece = pool.memory.add(bytes, "allocate a pool of rows");
    const auto room = static_cast<int64_t>(pool.memory.bytes()) / pool.row_bytes;
    rows_[type]->grow_pool(std::min(room, pool.most_rows), sampling_);
    return &piece;
  }

  void set_all_rows(base::SharedGpuBytes rows) { all_rows_ = std::move(rows); }
  const base::SharedGpuBytes* all_rows() const override { return all_rows_.data() ? &all_rows_ : nullptr; }

  void set_rows(std::size_t type, cache::SlabView view) { rows_[type]->set_slabs(std::move(view)); }
  void set_lists(cache::CachedLists lists) {
    lists_ = std::move(lists);
    sampler_.set_cached_lists(lists_.ref());
  }

  void enter_thread() override { base::choose_gpu(gpu_); }

  void use_sms(int num_sms) override {
    if (num_sms == partition_sms_) return;
    partition_sms_ = num_sms;
    std::optional<base::SmPartition> part;
    if (num_sms > 0) part.emplace(num_sms, base::SmPartition::Part::kFirst);
    const auto stream = [&](base::Priority priority = base::Priority::kNormal) {
      return part ? part->make_stream(priority) : base::Stream(priority);
    };
    sampling_ = stream();
    for (InFlight& flight : in_flight_) flight.stream = stream();
    const int sms = part ? part->num_sms() : num_sms_of_current_gpu();
    max_blocks_ = blocks_for(sms);
    sampler_.set_max_blocks(max_blocks_);
    pace_ = Pace(part ? std::clamp(fetch_sms_, 1, sms - sms / 4) : fetch_sms_);  // a quarter at least is for sampling
    for (const auto* tables : {&rows_, &edge_rows_}) {
      for (const auto& rows : *tables) {
        if (rows) rows->run_on(stream, pace_.sms());
      }
    }
  }

  BatchSizes sample(const Query& query) override {
    started_.record(sampling_);
    BatchSizes counts = sampler_.sample(query, sampling_);
    counts.time = until_now(started_, sampler_.ended());
    sampled_us_ = counts.time.end_us;
    counts.lists = sampler_.list_use();
    if (graph_.on_host().topology().empty())
      std::swap(counts.lists[0], counts.lists[cache::kHostTier]);  // all lists are local
    return counts;
  }

  std::size_t most_fetches() const override { return in_flight_.size(); }

  void before_fetch(const std::function<void(base::GpuStream)>& order) override { order(sampling_); }

  void fill(std::byte* data, std::size_t bytes, int value) override {
    cuda_check(cudaMemsetAsync(data, value, bytes, sampling_), "poison a slot");
  }

  // The sampled batch goes to the slot before the sampler's stream may draw the next; rows are fetched beside that.
  void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) override {
    InFlight& flight = in_flight_[num_fetches_ % in_flight_.size()];
    flight.sampled_us = sampled_us_;  // another thread may sample the next one before this one is fetched
    flight.started.record(sampling_);
    const SampledRef batch = sampler_.result();
    flight.input_id.copy_to(slot.input_id, input_id, sampling_, "copy input ids");
    writer_.write(batch, graph_.labels(), graph_.edge_weights(), slot, max_blocks_, sampling_);
    flight.written.record(sampling_);
    flight.written.wait_on(flight.stream);
    inject_faults(flight.stream);
    fetch_rows(batch, slot, flight.stream);
    flight.fetched.record(flight.stream);
    flight.num_rows = batch.num_nodes + batch.num_edges - batch.num_local_edges;
    ++num_fetches_;
  }

  bool finished() override {
    return oldest().fetched.done() && std::ranges::all_of(rows_, [](const auto& rows) { return rows->far_ended(); });
  }

  FetchUse fetched() override {
    const InFlight& flight = oldest();
    FetchUse use{until_now(flight.started, flight.fetched)};
    for (const auto& rows : rows_) add(rows->use(), use.rows);
    cache::TierUses of_edges{};
    for (const auto& rows : edge_rows_) {
      if (rows) add(rows->use(), of_edges);
    }
    use.edge_rows = of_edges[cache::kHostTier];
    use.time.begin_us = std::min(
        use.time.begin_us, use.time.end_us - std::max(use.rows[cache::kDiskTier].us, use.rows[cache::kRemoteTier].us));
    use.time.begin_us = std::max(use.time.begin_us, last_fetch_end_us_);
    last_fetch_end_us_ = use.time.end_us;
    if (all_rows_.data()) use.rows[cache::kLocalTier] = {flight.num_rows, flight.num_rows * table_row_bytes_, 0};
    pace_.learn(flight.sampled_us, use.time);
    ++num_told_;
    return use;
  }

 private:
  // A fetch that is under way: while one has its rows read, the next is looked up.
  struct InFlight {
    base::Stream stream;
    base::Event started, written, fetched;
    base::PinnedScratch input_id;  // int64 [seeds or pairs]
    double sampled_us = 0;         // when sampling ended
    int64_t num_rows = 0;
  };
  // Of rows of a type; empty where there is none.
  struct Pool {
    int64_t row_bytes = 0, most_rows = 0;
    base::GrowingGpuBytes memory;
  };
  // Each type's rows after those of the type before, then those of edges: together they share the link and the SMs that
  // fetches have.
  void fetch_rows(const SampledRef& batch, const SlotArrays& slot, cudaStream_t stream) {
    const cache::PoolBatch number{static_cast<uint32_t>(slot.number), static_cast<uint32_t>(slot.oldest_in_use)};
    int64_t first = 0;  // node of the type
    for (std::size_t type = 0; type < rows_.size(); ++type) {
      const int64_t count = batch.num_nodes_of(type, rows_.size());
      std::byte* pool = pools_[type].memory.data();
      rows_[type]->set_num_sms(pace_.sms());
      rows_[type]->fetch(slot.n_id + first, count,
                         {.rows = pool ? pool : slot.x_of(type),
                          .row_index = pool ? slot.row_index + first : nullptr,
                          .batch = number,
                          .poison = slot.poison,
                          .plane_a = slot.plane_a},
                         stream);
      first += count;
    }
    const int64_t* e_id = slot.e_id;
    for (std::size_t relation = 0; relation < slot.edge_attr.size(); ++relation) {
      const int64_t count = batch.num_edges_of(relation, edge_rows_.size());
      if (edge_rows_[relation]) {
        edge_rows_[relation]->set_num_sms(pace_.sms());
        edge_rows_[relation]->fetch(e_id, count, {.rows = slot.edge_attr[relation]}, stream);
      }
      e_id += count;
    }
  }

  static void add(const cache::TierUses& more, cache::TierUses& sums) {
    for (std::size_t tier = 0; tier < sums.size(); ++tier) {
      sums[tier].rows += more[tier].rows;
      sums[tier].bytes += more[tier].bytes;
      sums[tier].us += more[tier].us;
    }
  }

  const InFlight& oldest() const { return in_flight_[num_told_ % in_flight_.size()]; }

  // Between two events, the second of which has just been seen.
  static base::Span until_now(const base::Event& begin, const base::Event& end) {
    const auto now_us = static_cast<double>(base::monotonic_us());
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begin, end), "time a batch");
    return {now_us - 1e3 * ms, now_us};
  }

  void inject_faults(cudaStream_t stream) {
    if (faults_.slow_fetch_us > 0) {
      std::uniform_int_distribution<int64_t> delay_us(0, faults_.slow_fetch_us);
      delay(delay_us(delays_), stream);
    }
    if (static_cast<int64_t>(num_fetches_) == faults_.illegal_access_batch) access_illegally(stream);
  }

  Faults faults_;
  int gpu_ = current_gpu();
  base::Stream sampling_;
  base::Event started_;
  std::vector<InFlight> in_flight_;  // in turn
  uint64_t num_fetches_ = 0, num_told_ = 0;
  GraphOnGpu graph_;
  int partition_sms_ = 0;  // as asked for; 0: all
  int fetch_sms_;          // that the user or the default gives the fetch
  int max_blocks_;
  Pace pace_{fetch_sms_};
  double sampled_us_ = 0, last_fetch_end_us_ = 0;
  CudaNeighborSampler sampler_;
  BatchWriter writer_;
  std::vector<std::unique_ptr<cache::FeatureFetch>> rows_;       // [num_types]
  std::vector<std::unique_ptr<cache::FeatureFetch>> edge_rows_;  // [num_relations], of edges; null: none
  std::vector<Pool> pools_;                                      // [num_types]
  double pool_share_;
  std::optional<double> most_pool_bytes_;
  base::SharedGpuBytes all_rows_;  // the table, where there is one
  int64_t table_row_bytes_ = 0;
  cache::CachedLists lists_;
  std::mt19937_64 delays_{std::random_device{}()};
};

void fill_caches(const GraphView& graph, const HostGraph& host, std::span<const int> gpus,
                 const CacheContents& contents, bool with_lists, std::vector<std::unique_ptr<CudaBackend>>& backends) {
  const cache::Plan& plan = contents.plan.get();
  for (std::size_t type = 0; type < graph.types.size(); ++type) {
    const NodeRange& nodes = graph.types[type];
    if (nodes.rows.row_bytes == 0) continue;
    const cache::SlabRows from = contents.rows[type].reading(host.rows()[type]->in_place_of(nodes.rows));
    cache::Plan part;
    if (graph.types.size() > 1) {
      part = cache::plan_of_table(plan, nodes.first, nodes.count, contents.rows[type].sizes().ref());
    }
    auto rows = cache::fill_row_slabs(graph.types.size() > 1 ? part : plan, gpus, from, nodes.count);
    if (!contents.far_tables.empty()) contents.far_tables[type].rows->release_pages();
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      backends[rank]->enter_thread();
      backends[rank]->set_rows(type, std::move(rows[rank]));
    }
  }
  if (!with_lists) return;
  auto lists = cache::fill_list_slabs(plan, gpus, numbered_lists(graph));
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) backends[rank]->set_lists(std::move(lists[rank]));
}

// Entries of rows are sorted as 31 bits and one that says that there is none.
void demand_edge_rows(const cache::FeatureRows& rows) {
  constexpr int64_t kMost = int64_t{1} << 31;
  cache::demand_row_of_gpu(rows.row_bytes);
  if (rows.row_bytes == 0 || rows.shape.num_rows <= kMost) return;
  throw base::Error({"features of edges", base::format("at most {} edges, on a GPU", kMost),
                     std::to_string(rows.shape.num_rows), "leave the features of edges out, or use --device cpu"});
}

}  // namespace

std::vector<std::unique_ptr<Backend>> make_cuda_backends(const GraphView& graph, std::span<const int> gpus,
                                                         const CudaSettings& settings, const CacheContents& contents,
                                                         const Faults& faults, const StartLog& log) {
  if (graph.num_nodes > INT32_MAX) {
    throw base::Error({"data set", "at most 2147483647 nodes", std::to_string(graph.num_nodes), "local ids are int32"});
  }
  for (const NodeRange& type : graph.types) cache::demand_row_of_gpu(graph.fetched_row_bytes(type));
  for (const Relation& relation : graph.relations) demand_edge_rows(relation.edge_rows);
  log.begin("copying to host memory", HostGraph::bytes_of(graph, !settings.topology_in_gpus, contents.far_tables));
  const auto on_host = std::make_shared<const HostGraph>(graph, !settings.topology_in_gpus, contents.far_tables);
  if (contents.on_host) contents.on_host(on_host->rows());
  log.begin("preparing the GPUs");
  std::vector<std::unique_ptr<CudaBackend>> backends(gpus.size());
  base::side_by_side(gpus.size(), [&](std::size_t i) {
    base::choose_gpu(gpus[i]);
    backends[i] = std::make_unique<CudaBackend>(graph, on_host, settings, faults, contents.far_tables);
  });
  if (graph.rows_in == channel::RowsIn::kTable) {
    log.begin("filling the cache", graph.num_nodes * graph.types[0].rows.row_bytes * static_cast<int64_t>(gpus.size()));
    auto rows = cache::all_rows_on(gpus, contents.rows[0], graph.num_nodes);
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) backends[rank]->set_all_rows(std::move(rows[rank]));
  }
  if (contents.plan.valid()) {
    log.begin("planning the cache");
    contents.plan.wait();
    log.begin("filling the cache");
    fill_caches(graph, *on_host, gpus, contents, !settings.topology_in_gpus, backends);
  }
  return {std::make_move_iterator(backends.begin()), std::make_move_iterator(backends.end())};
}

}  // namespace cohort::sampler
