#include "sampler/presample.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/format.h"
#include "base/host_memory.h"
#include "base/side_by_side.h"
#include "dataset/check.h"
#include "sampler/draw.h"
#include "sampler/draw_weights.h"
#include "sampler/load.h"
#include "sampler/schedule.h"

namespace cohort::sampler {
namespace {

// Seed and epoch that no run of training uses together: its seeds are below 2^63.
constexpr uint64_t kSeed = uint64_t{1} << 63;
constexpr uint64_t kCountedEpochs = 2;
constexpr int64_t kHashedIndices = int64_t{1} << 20;

// As the sampler counts nodes.
std::vector<int64_t> seeds_of(const dataset::Dataset& data, const GraphView& graph, const std::string& split) {
  const std::map<std::string, std::span<const int64_t>> ids_of = {
      {"train", data.train_ids()}, {"val", data.val_ids()}, {"test", data.test_ids()}};
  const auto ids = ids_of.find(split);
  if (ids == ids_of.end()) throw base::Error({"split", "train, val or test", split, ""});
  std::vector<int64_t> seeds(ids->second.begin(), ids->second.end());
  for (int64_t& seed : seeds) seed += graph.types[static_cast<std::size_t>(graph.label_type)].first;
  return seeds;
}

uint64_t hash_lists(const base::CscRef& lists, uint64_t before) {
  const std::vector<int64_t> sizes = {lists.num_nodes, lists.num_edges};
  uint64_t hash = cache::hash_words(sizes, before);
  hash = cache::hash_words(std::span(lists.indptr, static_cast<std::size_t>(lists.num_nodes) + 1), hash);
  const int64_t count = std::min(lists.num_edges, kHashedIndices);
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < count; ++i) {
    sample.push_back(lists.index(lists.num_edges / count * i));
  }
  return cache::hash_words(sample, hash);
}

// Of some of them: that they are as they were is for the data set to say.
uint64_t hash_times(std::span<const int64_t> times, uint64_t before) {
  const int64_t count = std::min(std::ssize(times), kHashedIndices);
  std::vector<int64_t> sample;
  for (int64_t i = 0; i < count; ++i) sample.push_back(times[static_cast<std::size_t>(std::ssize(times) / count * i)]);
  return cache::hash_words(sample, before);
}

uint64_t hash_graph(const GraphView& graph) {
  uint64_t hash = 0;
  if (!graph.is_homogeneous()) {
    std::vector<int64_t> words = {std::ssize(graph.types), graph.label_type};
    for (const NodeRange& type : graph.types) words.push_back(type.count);
    hash = cache::hash_words(words);
  }
  for (const Relation& relation : graph.relations) hash = hash_lists(relation.lists, hash);
  return hash;
}

// One batch's ids and offsets in host memory, without rows; and which lists they are of.
class BatchMemory {
 public:
  explicit BatchMemory(const GraphView& graph)
      : types_(graph.types), relations_(graph.relations), numbered_(numbered_lists(graph)) {}

  cache::SampledBatch fetch(Backend& backend, const BatchSizes& sizes, const Query& query,
                            std::span<const int64_t> input_id) {
    const auto num_nodes = static_cast<std::size_t>(sizes.num_nodes);
    const auto grow = [](std::vector<int64_t>& values, std::size_t size) {
      values.resize(std::max(values.size(), size));
    };
    grow(n_id_, num_nodes);
    grow(edge_index_, 2 * static_cast<std::size_t>(sizes.num_edges));
    grow(input_id_, input_id.size());
    grow(indptr_, (num_nodes + 1) * relations_.size());
    SlotArrays slot{n_id_.data(), nullptr, edge_index_.data(), input_id_.data()};
    slot.indptr = indptr_.data();
    backend.fetch(slot, input_id);
    base::require(backend.finished(), "a backend on the CPU, which is done when fetch() returns");
    number_nodes(sizes);
    number_lists(sizes, query.fanout, query.spec.numbers.dependency > 0);
    return {std::span(n_id_).first(num_nodes), lists_, picks_, looked_at_};
  }

 private:
  // From ids of each type to global ones.
  void number_nodes(const BatchSizes& sizes) {
    first_of_type_.clear();
    std::size_t at = 0;
    for (std::size_t type = 0; type < types_.size(); ++type) {
      first_of_type_.push_back(at);
      for (const int64_t count : sizes.nodes_of_type[type]) {
        for (int64_t i = 0; i < count; ++i) n_id_[at++] += types_[type].first;
      }
    }
  }

  // Each relation drew from the lists of the nodes that a hop before the last has reached, if its fanout was not 0. By
  // layers it looked at whole lists.
  void number_lists(const BatchSizes& sizes, std::span<const int32_t> fanout, bool by_layers) {
    lists_.clear();
    picks_.clear();
    looked_at_.clear();
    const std::size_t num_hops = fanout.size() / relations_.size();
    const int64_t* offset = indptr_.data();
    for (std::size_t relation = 0; relation < relations_.size(); ++relation) {
      const auto type = static_cast<std::size_t>(relations_[relation].target_type);
      const std::vector<int64_t>& reached = sizes.nodes_of_type[type];
      const int64_t to_number = numbered_[relation].first - numbered_[relation].first_target;
      const int64_t* node = n_id_.data() + first_of_type_[type];
      for (std::size_t hop = 0; hop < num_hops; ++hop) {
        for (int64_t i = 0; i < reached[hop]; ++i, ++node, ++offset) {
          if (fanout[relation * num_hops + hop] == 0) continue;
          lists_.push_back(*node + to_number);
          picks_.push_back(offset[1] - offset[0]);
          if (!by_layers) continue;
          const int64_t* list = relations_[relation].lists.indptr + (*node - numbered_[relation].first_target);
          looked_at_.push_back(picks_.back() > 0 ? list[1] - list[0] : 0);
        }
      }
      ++offset;  // the relation's end
    }
  }

  std::vector<NodeRange> types_;
  std::vector<Relation> relations_;
  std::vector<cache::RelationLists> numbered_;
  std::vector<int64_t> n_id_, edge_index_, input_id_, indptr_;
  std::vector<std::size_t> first_of_type_;  // in n_id_
  std::vector<int64_t> lists_, picks_, looked_at_;
};

// Samples batches side by side, each on some of the threads: a batch alone leaves most of them idle, because its nodes
// get their local ids one after the other.
class Counter {
 public:
  Counter(const GraphView& graph, std::span<const int32_t> fanout, const CountedDraws& how, uint64_t max_batches,
          cache::Hotness& hotness)
      : fanout_(fanout), how_(how), hotness_(hotness) {
    const auto threads = static_cast<uint64_t>(omp_get_max_threads());
    const auto fitting = static_cast<uint64_t>(base::available_host_bytes() / kShareOfMemory /
                                               std::max<int64_t>(1, kBytesPerNode * graph.num_nodes));
    const uint64_t count = std::max<uint64_t>(1, std::min({threads, fitting, max_batches, kMostWorkers}));
    for (uint64_t i = 0; i < count; ++i) workers_.push_back({make_host_backend(graph, {}), BatchMemory(graph), {}, {}});
  }

  // Adds so many batches of an epoch, in any order: the first ones, as all are alike; of seeds with communities, in
  // which the epoch's end has other ones than its beginning, batches from all of it.
  void count(const Schedule& schedule, uint64_t epoch, uint64_t num_batches) {
    std::atomic<uint64_t> next = 0;
    base::side_by_side(workers_.size(), [&](std::size_t number) {
      Worker& worker = workers_[number];
      for (uint64_t i = next++; i < num_batches; i = next++) {
        const uint64_t step = how_.communities ? i * schedule.num_steps() / num_batches : i;
        const std::span<const int64_t> positions = schedule.positions(step);
        worker.seeds.clear();
        worker.times.clear();
        for (const int64_t at : positions) worker.seeds.push_back(schedule.set().seeds[static_cast<std::size_t>(at)]);
        if (!how_.times.empty()) {
          for (const int64_t at : positions) worker.times.push_back(how_.times[static_cast<std::size_t>(at)]);
        }
        Query query{worker.seeds, fanout_, batch_key(kSeed, epoch, step)};
        query.spec = {
            .draw = how_.draw,
            .numbers = node_numbers(kSeed, epoch, step, how_.dependency, how_.layer_dependency, how_.importance),
            .disjoint = how_.disjoint,
            .times = worker.times,
            .windows = how_.time_window};
        const BatchSizes sizes = worker.backend->sample(query);
        const cache::SampledBatch batch = worker.memory.fetch(*worker.backend, sizes, query, positions);
        const std::lock_guard lock(adding_);
        hotness_.add(batch);
      }
    });
  }

 private:
  static constexpr uint64_t kMostWorkers = 16;
  static constexpr int64_t kBytesPerNode = 24;  // of the graph: a local id, and room for a batch
  static constexpr int64_t kShareOfMemory = 8;  // one part of so many

  struct Worker {
    std::unique_ptr<Backend> backend;  // on the CPU
    BatchMemory memory;
    std::vector<int64_t> seeds, times;
  };

  std::span<const int32_t> fanout_;
  const CountedDraws& how_;
  cache::Hotness& hotness_;
  std::vector<Worker> workers_;
  std::mutex adding_;
};

// What the options say of draws; gives the graph times of edges where seeds have some.
CountedDraws draws_of(const dataset::Dataset& data, const PresampleOptions& options, std::span<const int64_t> seeds,
                      GraphView& graph) {
  CountedDraws how{.dependency = options.dependency(),
                   .layer_dependency = options.layer_dependency,
                   .importance = options.importance_sampling,
                   .disjoint = options.disjoint,
                   .time_window = options.time_window,
                   .communities = options.communities(graph.num_nodes).of(seeds),
                   .seed_mix = options.seed_mix};
  how.draw = static_cast<channel::Draw>(base::number_of(options.draw, names_of(channel::Draw{}), "draw"));
  if (!how.time_window.empty() && how.time_window.size() != graph.relations.size()) {
    throw base::Error({"time_window", base::format("a number for each of {} relations", graph.relations.size()),
                       std::to_string(how.time_window.size()), ""});
  }
  if (options.times.empty()) return how;
  how.times = read_times(options.times, std::ssize(seeds));
  add_edge_times(data, graph);
  return how;
}

std::string describe(const std::filesystem::path& file, const cache::HotnessTotals& totals, bool reused) {
  const nlohmann::json told = {{"file", file.string()},
                               {"batches", totals.num_batches},
                               {"reused", reused},
                               {"max_batch_nodes", totals.max_batch_nodes},
                               {"max_batch_edges", totals.max_batch_edges}};
  return told.dump();
}

}  // namespace

cache::HotnessKey hotness_key(const GraphView& graph, std::span<const int64_t> seeds, const PresampleOptions& options,
                              const CountedDraws& how) {
  const std::size_t num_relations = graph.relations.size(), num_hops = options.fanout.size() / num_relations;
  if (num_hops * num_relations != options.fanout.size() || num_hops == 0 || num_hops > channel::kMaxHops) {
    throw base::Error({"fanout",
                       base::format("1 to {} hops for each of {} relations", channel::kMaxHops, num_relations),
                       base::format("{} numbers", options.fanout.size()), ""});
  }
  uint64_t split = cache::hash_words(seeds);
  if (!graph.is_homogeneous()) {
    const std::vector<int64_t> of_relations(options.fanout.begin(), options.fanout.end());
    split = cache::hash_words(of_relations, split);
  }
  for (const Relation& relation : graph.relations) {
    if (relation.draw_weights) split = relation.draw_weights->hash(split);
  }
  if (how.dependency > 0) {  // 1: since whole lists count
    std::vector<int64_t> words{static_cast<int64_t>(how.dependency), 1};
    if (how.layer_dependency) words.push_back(1);
    if (how.importance) words.push_back(2);
    split = cache::hash_words(words, split);
  }
  if (how.communities) {
    split = cache::hash_words(std::vector<int64_t>{std::bit_cast<int64_t>(how.seed_mix)}, split);
    split = cache::hash_words(how.communities->of_seed, split);
  }
  if (how.disjoint) {
    split = cache::hash_words(std::vector<int64_t>{static_cast<int64_t>(how.draw)}, split);
    split = cache::hash_words(how.time_window, cache::hash_words(how.times, split));
    for (const Relation& relation : graph.relations) {
      if (relation.edge_times)
        split = hash_times({relation.edge_times, static_cast<std::size_t>(relation.lists.num_edges)}, split);
    }
  }
  const auto first_end = options.fanout.begin() + static_cast<std::ptrdiff_t>(num_hops);
  return {hash_graph(graph), split, {options.fanout.begin(), first_end}, options.batch_size};
}

cache::Hotness presample(const GraphView& graph, std::span<const int64_t> seeds, const cache::HotnessKey& key,
                         std::span<const int32_t> fanout, int64_t max_batches, const CountedDraws& how) {
  SeedSet set({seeds.begin(), seeds.end()});
  set.communities = how.communities;
  EpochOrders orders(kSeed, how.seed_mix);
  channel::Request request{};
  request.batch_size = key.batch_size;
  request.shuffle = true;
  cache::Hotness hotness(key, graph.num_nodes, cache::end_of(numbered_lists(graph)), kSeed);
  auto num_batches = static_cast<uint64_t>(std::max<int64_t>(1, max_batches / 2));  // of an epoch
  Counter counter(graph, fanout, how, num_batches, hotness);
  const uint64_t num_epochs = max_batches > 1 ? kCountedEpochs : 1;
  for (request.epoch = 0; request.epoch < num_epochs; ++request.epoch) {
    const Schedule schedule(set, request.batch_size, orders.of(set, request));
    num_batches = std::min(num_batches, schedule.num_steps());
    counter.count(schedule, request.epoch, num_batches);
  }
  if (max_batches <= 1) return hotness;
  hotness.begin_trial();
  counter.count(Schedule(set, request.batch_size, orders.of(set, request)), request.epoch, (num_batches + 1) / 2);
  int64_t whole_lists_edges = 0;
  if (how.dependency > 0) {
    for (const Relation& relation : graph.relations) whole_lists_edges += relation.lists.num_edges;
  }
  hotness.end_trial(whole_lists_edges);
  return hotness;
}

std::string presample_to_file(const PresampleOptions& options) {
  const dataset::Dataset data = dataset::Dataset::open(options.dataset);
  GraphView graph = topology_of(data);  // counting reads no rows
  add_draw_weights(data, options, graph);
  const std::vector<int64_t> seeds = options.seeds.empty()
                                         ? seeds_of(data, graph, options.split)
                                         : read_seeds(options.seeds, graph.num_nodes, options.disjoint);
  const CountedDraws how = draws_of(data, options, seeds, graph);
  if (seeds.empty())
    throw base::Error({options.split, "at least one seed", "none",
                       "choose another split; without labels all are empty, and nothing plans for links"});
  const cache::HotnessKey key = hotness_key(graph, seeds, options, how);
  const std::filesystem::path file = cache::hotness_path(options.dataset, key);
  if (!options.refresh && ::access(file.c_str(), R_OK) == 0) {             // another user's may not be readable
    return describe(file, cache::Hotness::load_totals(file, &key), true);  // who reads the counts checks them
  }
  dataset::demand_in_range(data);
  demand_parallel_edges_together(data, options, graph);
  const cache::Hotness hotness = presample(graph, seeds, key, options.fanout, options.max_batches, how);
  hotness.save(file);
  std::error_code unchanged;  // it is for all who read the data set, whatever the umask
  const auto of_data = std::filesystem::status(std::filesystem::path(options.dataset) / dataset::kMetaFile, unchanged);
  if (!unchanged) std::filesystem::permissions(file, of_data.permissions(), unchanged);
  return describe(file, hotness.totals(), false);
}

}  // namespace cohort::sampler
