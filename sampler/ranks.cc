#include "sampler/ranks.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/format.h"
#include "base/host_memory.h"
#include "cache/slab_rows.h"
#include "dataset/check.h"
#include "sampler/cache_plan.h"
#include "sampler/far_tier.h"
#include "sampler/load.h"
#include "sampler/pipeline.h"

#ifdef COHORT_WITH_CUDA
#include "base/device.h"
#endif

namespace cohort::sampler {

namespace {

using channel::Stage;

#ifdef COHORT_WITH_CUDA
// Makes a GPU the thread's current one.
base::Gpu chosen_gpu(int ordinal) {
  const std::vector<base::Gpu> gpus = base::visible_gpus();
  if (ordinal < 0 || ordinal >= static_cast<int>(gpus.size())) {
    throw base::Error({"gpu", base::format("one of the {} visible GPUs", gpus.size()), std::to_string(ordinal),
                       "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device cpu"});
  }
  base::choose_gpu(ordinal);
  return gpus[static_cast<std::size_t>(ordinal)];
}
#endif

// What is fixed for the channel of a rank. On a GPU it makes the rank's GPU the calling thread's.
channel::ChannelOptions channel_options(const Options& options, const dataset::Dataset& data,
                                        [[maybe_unused]] int rank) {
  channel::ChannelOptions channel;
  channel.num_slots = options.num_slots;
  channel.owner_pid = options.owner_pid;
  const auto table_of = [](const auto& part) {
    return channel::Table{part.feature_dim, dataset::dlpack_code_of(part.feature_dtype), 0};
  };
  channel.tables.clear();
  for (const dataset::NodeType& type : data.meta().node_types) channel.tables.push_back(table_of(type));
  channel.target_types.clear();
  for (const dataset::EdgeType& relation : data.meta().edge_types) {
    channel.target_types.push_back(relation.target_type);
    if (options.edge_features) channel.edge_tables.push_back(table_of(relation));
  }
  channel.label_type = data.meta().target_type;
  channel.label_dtype = dataset::dlpack_code_of(data.meta().label_dtype);
  channel.label_width = data.meta().task == dataset::Task::multilabel ? data.num_classes() : 0;
  channel.with_e_id = options.edge_ids || options.edge_features;
  channel.with_edge_weight = options.edge_weights || options.importance_sampling;
  if (options.device == "cpu") return channel;
#ifdef COHORT_WITH_CUDA
  channel.device = channel::DeviceKind::kCuda;
  std::memcpy(channel.gpu_uuid, chosen_gpu(options.gpus[static_cast<std::size_t>(rank)]).uuid.data(),
              sizeof channel.gpu_uuid);
  return channel;
#else
  throw base::Error({"device", "cpu", "cuda", "this build of cohort has the CPU backend only"});
#endif
}

int64_t encoded_bytes(const dataset::Dataset& data, bool with_edges) {
  std::uintmax_t bytes = 0;
  for (const std::filesystem::path& file : encoded_files(data, with_edges)) bytes += std::filesystem::file_size(file);
  return static_cast<int64_t>(bytes);
}

bool reads_encoded(const GraphView& graph) {
  return std::ranges::any_of(graph.types, [](const NodeRange& type) { return type.rows.encoded != nullptr; }) ||
         std::ranges::any_of(graph.relations, [](const Relation& each) { return each.edge_rows.encoded != nullptr; });
}

int64_t edge_bytes(const dataset::Dataset& data) {
  std::size_t bytes = 0;
  for (std::size_t relation = 0; relation < data.meta().edge_types.size(); ++relation) {
    const auto number = static_cast<int>(relation);
    bytes += data.indptr_of(number).size_bytes() + data.indices_of(number).bytes();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

Ranks::Ranks(const Options& options, const dataset::Dataset& data)
    : options_(options), data_(data), log_(rank_folder(options, 0)) {
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const std::filesystem::path folder = rank_folder(options, rank);
    std::filesystem::create_directory(folder, options.channel);  // with its rights
    publishers_.push_back(std::make_unique<channel::Publisher>(folder, channel_options(options, data, rank)));
  }
}

void Ranks::stop() noexcept {
  for (const auto& publisher : publishers_) publisher->stop_flag().store(1);
}

bool Ranks::is_over() const {
  return std::ranges::any_of(publishers_, [](const auto& publisher) {
    return publisher->stop_flag().load() != 0 || publisher->trainer_died();
  });
}

void Ranks::serve() {
  std::vector<std::unique_ptr<Backend>> backends;
  std::future<void> verified;  // outlives the handler, as its end waits for what is left to read
  try {
    for (const auto& publisher : publishers_) publisher->set_stage(Stage::kLoading);
    others_ = other_machines(options_);
    log_.begin("checking the edges", edge_bytes(data_));
    dataset::demand_in_range(data_);
    graph_ = view_of(data_, options_, log_);
    graph_.rows_in = rows_lie_in(graph_, options_);
    if (reads_encoded(graph_))
      verified = verify_rows(data_, options_.edge_features);  // reads the pages that are copied meanwhile
    if (options_.device == "cpu") {
      base::keep_freed_memory();
      plan_only();
    }
    if (others_) others_->expect_tables(tables_digest(graph_));
    backends = make_backends(options_, graph_, others_.get(),
                             log_);  // on GPUs it is the one to call plan_cache(), and to fill slabs
    graph_.leave_draw_weights();
    if (verified.valid()) {
      log_.begin("checking the encoded rows", encoded_bytes(data_, options_.edge_features));
      verified.get();
    }
    log_.end();
    announce(backends);
    loaded_ = true;
  } catch (const std::exception& error) {
    leave_error(0, error.what());
    throw;
  }
  serve_all(backends);
  if (failure_) std::rethrow_exception(failure_);
}

void Ranks::announce(const std::vector<std::unique_ptr<Backend>>& backends) {
  for (std::size_t rank = 0; rank < publishers_.size(); ++rank) {
    const base::SharedGpuBytes* table = backends[rank]->all_rows();
    std::vector<channel::RowsOfType> rows;
    if (graph_.rows_in == channel::RowsIn::kTable) {
      const int64_t row_bytes = graph_.types[0].rows.row_bytes;
      rows = {{graph_.num_nodes, table ? cache::raw_row_stride(row_bytes) : row_bytes}};
    } else if (graph_.rows_in == channel::RowsIn::kPool) {
      for (const NodeRange& type : graph_.types) {
        rows.push_back({backends[rank]->most_pool_rows(rows.size()), type.rows.row_bytes});
      }
    }
    publishers_[rank]->name_rows(graph_.rows_in, rows);
    if (table) publishers_[rank]->share_rows(0, *table);
    publishers_[rank]->announce();
  }
}

void Ranks::plan_only() const {
  if (!has_cache(options_)) return;
  const std::vector<cache::SlabRows> rows = slab_rows(graph_);
  log_.begin("planning the cache");
  plan_cache(options_, graph_, rank_cliques(options_), row_sizes(graph_, rows), true);
}

void Ranks::serve_all(std::vector<std::unique_ptr<Backend>>& backends) {
  std::vector<std::jthread> threads;
  for (std::size_t rank = 1; rank < backends.size(); ++rank) {
    threads.emplace_back([&, rank] { serve_rank(rank, *backends[rank]); });
  }
  serve_rank(0, *backends[0]);
}

void Ranks::serve_rank(std::size_t rank, Backend& backend) {
  const int equal_part = std::max(1, omp_get_max_threads() / options_.num_ranks);
  omp_set_num_threads(options_.sampler_threads > 0 ? options_.sampler_threads : equal_part);
  try {
    backend.enter_thread();
    Pipeline(options_, graph_, backend, *publishers_[rank]).serve();
    publishers_[rank]->set_stage(Stage::kEnded);
  } catch (const std::exception& error) {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;  // this one follows from the first
    failure_ = std::current_exception();
    leave_error(rank, error.what());
    stop();
  }
}

void Ranks::leave_error(std::size_t first_rank, const char* text) {
  publishers_[first_rank]->leave_error(text);
  for (std::size_t rank = 0; rank < publishers_.size(); ++rank) {
    if (rank != first_rank) publishers_[rank]->leave_error(text);
  }
}

}  // namespace cohort::sampler
