#include "sampler/load.h"

#include <algorithm>
#include <future>

#include "base/check.h"
#include "base/host_memory.h"
#include "cache/host_rows.h"
#include "sampler/cache_plan.h"

namespace cohort::sampler {
namespace {

#ifdef COHORT_WITH_CUDA
TopologyPlace place_of(const std::string& name) {
  if (name == "gpu") return TopologyPlace::kGpu;
  return name == "host" ? TopologyPlace::kHost : TopologyPlace::kAuto;
}
#endif

// Which rows stay encoded.
struct Encoded {
  bool in_host = false;
  bool in_slabs = false;
};

// Rows that all lie in the memory of each GPU are left raw there: those want fewer SMs.
bool caches_hold_all(int64_t num_nodes, int64_t row_bytes, const Options& options) {
  return has_cache(options) && std::ranges::all_of(options.cache_bytes, [&](int64_t bytes) {
           return cache::holds_all_raw_rows(bytes, num_nodes, row_bytes);
         });
}

bool has_encoded_rows(const dataset::Dataset& data) {
  for (int type = 0; type < static_cast<int>(data.meta().node_types.size()); ++type) {
    if (!data.encoded_rows_of(type).empty()) return true;
  }
  return false;
}

Encoded encoded_where(const dataset::Dataset& data, const Options& options) {
  if (options.compress == "none") return {};
  if (options.compress == "cache") return {false, true};
  const bool is_auto = options.compress == "auto";
  if (has_encoded_rows(data)) {
    if (data.is_typed()) return {true, false};
    const auto row_bytes = static_cast<int64_t>(data.feature_row_bytes());
    return {true, is_auto ? !caches_hold_all(data.num_nodes(), row_bytes, options) : options.compress == "both"};
  }
  if (is_auto) return {};
  throw base::Error({"--compress " + options.compress, "a data set with encoded rows", data.folder().string(),
                     "encode them with: cohort dataset prepare " + data.folder().string()});
}

cache::RowShape shape_of(const dataset::NodeType& type) {
  return {type.num_nodes, type.feature_dim, dataset::name_of(type.feature_dtype)};
}

// Null: the type has no encoded rows.
std::shared_ptr<const cache::HostRows> open_encoded(const dataset::Dataset& data, int type, bool verify_data) {
  const std::filesystem::path& file = data.encoded_rows_of(type);
  if (file.empty()) return nullptr;
  const cache::RowShape shape = shape_of(data.meta().node_types[static_cast<std::size_t>(type)]);
  return std::make_shared<cache::HostRows>(cache::HostRows::open(file, shape, verify_data));
}

const float* weights_of(const dataset::Dataset& data) {
  if (data.edge_weights().is_mapped()) return data.edge_weights().as<float>().data();
  throw base::Error({data.folder().string(), "edge weights", "edges without",
                     "import the data set with --edge-weights or --weight-column, or leave the weights out"});
}

// Rows whose raw copy was dropped, in memory of their own, which the graph keeps.
const std::byte* decode_features(const dataset::Dataset& data, int type, int64_t bytes, GraphView& graph,
                                 const StartLog& log) {
  const int64_t available = base::available_host_bytes();
  if (bytes > available) {
    throw base::Error({"host memory", base::format_bytes(static_cast<double>(bytes)) + " for decoded rows",
                       base::format_bytes(static_cast<double>(available)) + " available",
                       "use --compress host, which keeps them encoded"});
  }
  log.begin("decoding the rows", bytes);
  const auto rows = open_encoded(data, type, true);
  const std::shared_ptr<std::byte[]> decoded(new std::byte[static_cast<std::size_t>(bytes)]);
  rows->decode(decoded.get());
  graph.decoded.push_back(decoded);
  return decoded.get();
}

}  // namespace

cache::FeatureRows feature_rows(const GraphView& graph) {
  return {graph.row_shape, graph.row_bytes, graph.features, graph.encoded};
}

std::vector<NodeRange> types_of(const GraphView& graph) {
  if (graph.is_typed()) return graph.types;
  return {{0, graph.num_nodes, graph.features, slot_row_bytes(graph), graph.encoded, graph.row_shape}};
}

std::vector<Relation> relations_of(const GraphView& graph) {
  if (graph.is_typed()) return graph.relations;
  return {{0, 0, graph}};
}

namespace {

// What is not offered for graphs of several types yet.
void demand_offered(const Options& options) {
  const auto refuse = [&](const char* place, const char* expected, const std::string& found) {
    throw base::Error({place, std::string(expected) + " for a graph of several node types", found, ""});
  };
  if (has_cache(options)) refuse("cache_bytes", "no cache", "a cache");
  if (options.edge_weights) refuse("edge_weights", "edges without weights", "true");
  if (options.compress == "cache" || options.compress == "both") {
    refuse("compress", "none, host or auto", options.compress);
  }
}

GraphView typed_view_of(const dataset::Dataset& data, const Options& options, const StartLog& log) {
  const dataset::Meta& meta = data.meta();
  GraphView graph;
  graph.coded_host_rows = encoded_where(data, options).in_host;
  graph.num_nodes = data.num_nodes();
  graph.num_edges = data.num_edges();
  graph.labels = data.labels_array().data();
  graph.label_bytes = static_cast<int64_t>(data.label_row_bytes());
  graph.label_type = meta.target_type;
  int64_t first = 0;
  for (const dataset::NodeType& nodes : meta.node_types) {
    const auto type = static_cast<int>(graph.types.size());
    const auto element = static_cast<int64_t>(dataset::size_of(nodes.feature_dtype));
    NodeRange range{first,   nodes.num_nodes, data.features_of(type).data(), nodes.feature_dim * element,
                    nullptr, shape_of(nodes)};
    if (graph.coded_host_rows || !range.features) range.encoded = open_encoded(data, type, false);
    if (range.encoded && !graph.coded_host_rows) {
      range.features = decode_features(data, type, range.count * range.row_bytes, graph, log);
      range.encoded = nullptr;
    }
    graph.types.push_back(std::move(range));
    first += nodes.num_nodes;
  }
  for (std::size_t relation = 0; relation < meta.edge_types.size(); ++relation) {
    const dataset::EdgeType& edges = meta.edge_types[relation];
    const dataset::MappedArray& indices = data.indices_of(static_cast<int>(relation));
    const base::CscRef lists{meta.node_types[static_cast<std::size_t>(edges.target_type)].num_nodes, edges.num_edges,
                             data.indptr_of(static_cast<int>(relation)).data(), indices.data(),
                             static_cast<int>(dataset::size_of(indices.dtype()))};
    graph.relations.push_back({edges.source_type, edges.target_type, lists});
  }
  return graph;
}

}  // namespace

GraphView topology_of(const dataset::Dataset& data) {
  GraphView graph;
  graph.num_nodes = data.num_nodes();
  graph.num_edges = data.num_edges();
  graph.indptr = data.indptr().data();
  graph.indices = data.indices().data();
  graph.index_bytes = static_cast<int>(dataset::size_of(data.indices().dtype()));
  graph.labels = data.labels_array().data();
  graph.label_bytes = static_cast<int64_t>(data.label_row_bytes());
  return graph;
}

GraphView view_of(const dataset::Dataset& data, const Options& options, const StartLog& log) {
  if (data.is_typed()) {
    demand_offered(options);
    return typed_view_of(data, options, log);
  }
  GraphView graph = topology_of(data);
  graph.row_bytes = static_cast<int64_t>(data.feature_row_bytes());
  graph.row_shape = shape_of(data.meta().node_types[0]);
  if (options.edge_weights) graph.edge_weights = weights_of(data);
  if (data.has_raw_features()) graph.features = data.features().data();
  const Encoded encoded = encoded_where(data, options);
  graph.coded_host_rows = encoded.in_host;
  graph.coded_slab_rows = encoded.in_slabs;
  if (options.device == "cuda") {
    const bool wanted = encoded.in_host || encoded.in_slabs || !graph.features;
    if (wanted && !data.encoded_rows().empty()) graph.encoded = open_encoded(data, 0, false);
  } else {
    if (encoded.in_host) graph.encoded = open_encoded(data, 0, false);
    if (!graph.features && !graph.encoded) {
      graph.features = decode_features(data, 0, graph.num_nodes * graph.row_bytes, graph, log);
    }
  }
  return graph;
}

#ifdef COHORT_WITH_CUDA
namespace {

int64_t most_cache_bytes(const Options& options) {
  return has_cache(options) ? *std::ranges::max_element(options.cache_bytes) : 0;
}

bool topology_in_gpus(const GraphView& graph, const Options& options) {
  return topology_lies_in_gpus(graph, options.gpus, place_of(options.topology), most_cache_bytes(options));
}

}  // namespace
#endif

bool rows_lie_in_place(const GraphView& graph, const Options& options) {
  if (!options.in_place || graph.row_bytes == 0) return false;
  // A cache is planned on the CPU to see what one on a GPU would do.
  if (options.device == "cpu") return graph.features && graph.decoded.empty() && !graph.encoded && !has_cache(options);
#ifdef COHORT_WITH_CUDA
  return !graph.coded_slab_rows && caches_hold_all(graph.num_nodes, graph.row_bytes, options) &&
         topology_in_gpus(graph, options);
#else
  return false;
#endif
}

std::future<void> verify_rows(const dataset::Dataset& data) {
  return std::async(std::launch::async, [&data] {
    for (int type = 0; type < static_cast<int>(data.meta().node_types.size()); ++type) open_encoded(data, type, true);
  });
}

#ifdef COHORT_WITH_CUDA
namespace {

std::vector<std::unique_ptr<Backend>> backends_on_gpus(const Options& options, const GraphView& graph,
                                                       const StartLog& log) {
  CudaSettings settings;
  settings.topology_in_gpus = topology_in_gpus(graph, options);
  settings.fetch_sms = options.fetch_sms;
  settings.order_host_rows = options.order == "address";
  settings.reuse_rows = options.reuse;
  settings.host_bytes_per_second = options.link_bytes_per_second[cache::kHostTier];
  if (!has_cache(options)) return make_cuda_backends(graph, options.gpus, settings, {}, options.faults, log);
  const cache::SlabRows rows(feature_rows(graph), graph.coded_slab_rows);
  if (graph.rows_in_place) {
    describe_rows_in_place(options, graph);
    return make_cuda_backends(graph, options.gpus, settings, {{}, &rows}, options.faults, log);
  }
  auto plan = std::async(std::launch::async, [&] {
    const auto cliques = rank_cliques(options);
    const cache::RowSizes in_slab = rows.sizes(), in_host = host_row_sizes(graph);
    return *plan_cache(options, graph, cliques, in_slab.ref(), in_host.ref(), !settings.topology_in_gpus);
  });
  return make_cuda_backends(graph, options.gpus, settings, {plan.share(), &rows}, options.faults, log);
}

}  // namespace
#endif

std::vector<std::unique_ptr<Backend>> make_backends(const Options& options, const GraphView& graph,
                                                    [[maybe_unused]] const StartLog& log) {
#ifdef COHORT_WITH_CUDA
  if (options.device == "cuda") return backends_on_gpus(options, graph, log);
#endif
  std::vector<std::unique_ptr<Backend>> backends;
  for (int rank = 0; rank < options.num_ranks; ++rank) backends.push_back(make_host_backend(graph, options.faults));
  return backends;
}

}  // namespace cohort::sampler
