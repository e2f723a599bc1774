#include "sampler/presample.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "dataset/check.h"
#include "sampler/draw.h"
#include "sampler/load.h"
#include "sampler/schedule.h"

namespace cohort::sampler {
namespace {

// Seed and epoch that no run of training uses together: its seeds are below 2^63.
constexpr uint64_t kSeed = uint64_t{1} << 63;
constexpr uint64_t kCountedEpochs = 2;
constexpr int64_t kHashedIndices = int64_t{1} << 20;

std::span<const int64_t> seeds_of(const dataset::Dataset& data, const std::string& split) {
  if (split == "train") return data.train_ids();
  if (split == "val") return data.val_ids();
  if (split == "test") return data.test_ids();
  throw base::Error({"split", "train, val or test", split, ""});
}

uint64_t hash_graph(const GraphView& graph) {
  const std::vector<int64_t> sizes = {graph.num_nodes, graph.num_edges};
  uint64_t hash = cache::hash_words(sizes);
  hash = cache::hash_words(std::span(graph.indptr, static_cast<std::size_t>(graph.num_nodes) + 1), hash);
  const int64_t count = std::min(graph.num_edges, kHashedIndices);
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t position = graph.num_edges / count * i;
    sample.push_back(graph.index_bytes == 4 ? static_cast<const int32_t*>(graph.indices)[position]
                                            : static_cast<const int64_t*>(graph.indices)[position]);
  }
  return cache::hash_words(sample, hash);
}

// One batch's ids and edges in host memory; without rows.
class BatchMemory {
 public:
  cache::SampledBatch fetch(Backend& backend, const BatchSizes& counts, std::span<const int64_t> input_id) {
    const auto num_nodes = static_cast<std::size_t>(counts.num_nodes);
    const auto num_edges = static_cast<std::size_t>(counts.num_edges);
    n_id_.resize(std::max(n_id_.size(), num_nodes));
    edge_index_.resize(std::max(edge_index_.size(), 2 * num_edges));
    input_id_.resize(std::max(input_id_.size(), input_id.size()));
    backend.fetch({n_id_.data(), nullptr, edge_index_.data(), input_id_.data(), nullptr}, input_id);
    base::require(backend.finished(), "a backend on the CPU, which is done when fetch() returns");
    return {std::span(n_id_).first(num_nodes), counts.num_nodes - counts.nodes_per_hop.back(),
            std::span(edge_index_).subspan(num_edges, num_edges)};
  }

 private:
  std::vector<int64_t> n_id_, edge_index_, input_id_;
};

std::string describe(const std::filesystem::path& file, const cache::HotnessTotals& totals, bool reused) {
  const nlohmann::json json = {{"file", file.string()},
                               {"batches", totals.num_batches},
                               {"reused", reused},
                               {"max_batch_nodes", totals.max_batch_nodes},
                               {"max_batch_edges", totals.max_batch_edges}};
  return json.dump();
}

}  // namespace

cache::HotnessKey hotness_key(const dataset::Dataset& data, std::span<const int64_t> seeds,
                              const PresampleOptions& options) {
  return {hash_graph(topology_of(data)), cache::hash_words(seeds), options.fanout, options.batch_size};
}

cache::Hotness presample(const GraphView& graph, std::span<const int64_t> seeds, const cache::HotnessKey& key,
                         int64_t max_batches, Backend& backend) {
  const SeedSet set({seeds.begin(), seeds.end()});
  EpochOrders orders(kSeed);
  channel::Request request{};
  request.batch_size = key.batch_size;
  request.shuffle = 1;
  cache::Hotness hotness(key, graph.num_nodes, kSeed);
  BatchMemory memory;
  const auto add_batch = [&](Schedule& schedule, uint64_t step) {
    const BatchSizes counts = backend.sample({schedule.seeds(step), key.fanout, batch_key(kSeed, request.epoch, step)});
    hotness.add(memory.fetch(backend, counts, schedule.positions(step)));
  };
  uint64_t num_batches = static_cast<uint64_t>(std::max<int64_t>(1, max_batches / 2));  // of an epoch
  const uint64_t num_epochs = max_batches > 1 ? kCountedEpochs : 1;
  for (request.epoch = 0; request.epoch < num_epochs; ++request.epoch) {
    Schedule schedule(set, request.batch_size, orders.of(set, request));
    num_batches = std::min(num_batches, schedule.num_steps());
    for (uint64_t step = 0; step < num_batches; ++step) add_batch(schedule, step);
  }
  if (max_batches <= 1) return hotness;
  hotness.begin_trial();
  Schedule schedule(set, request.batch_size, orders.of(set, request));
  for (uint64_t step = 0; step < (num_batches + 1) / 2; ++step) add_batch(schedule, step);
  hotness.end_trial();
  return hotness;
}

std::string presample_to_file(const PresampleOptions& options) {
  const dataset::Dataset data = dataset::Dataset::open(options.dataset);
  const std::vector<int64_t> own =
      options.seeds.empty() ? std::vector<int64_t>() : read_seeds(options.seeds, data.num_nodes());
  const std::span<const int64_t> seeds = options.seeds.empty() ? seeds_of(data, options.split) : own;
  if (seeds.empty()) throw base::Error({options.split, "at least one seed", "none", "choose another split"});
  const cache::HotnessKey key = hotness_key(data, seeds, options);
  const std::filesystem::path file = cache::hotness_path(options.dataset, key);
  if (!options.refresh && std::filesystem::exists(file)) {
    return describe(file, cache::Hotness::load_totals(file, &key), true);  // who reads the counts checks them
  }
  dataset::demand_in_range(data);
  const GraphView graph = topology_of(data);  // counting reads no rows
  const auto backend = make_host_backend(graph, {});
  const cache::Hotness hotness = presample(graph, seeds, key, options.max_batches, *backend);
  hotness.save(file);
  return describe(file, hotness.totals(), false);
}

}  // namespace cohort::sampler
