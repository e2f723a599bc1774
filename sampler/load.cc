#include "sampler/load.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <span>

#include "base/check.h"
#include "base/format.h"
#include "base/host_memory.h"
#include "cache/host_rows.h"
#include "dataset/parallel.h"
#include "sampler/cache_plan.h"
#include "sampler/draw_weights.h"

namespace cohort::sampler {
namespace {

#ifdef COHORT_WITH_CUDA
TopologyMemory place_of(const std::string& name) {
  if (name == "gpu") return TopologyMemory::kGpu;
  return name == "host" ? TopologyMemory::kHost : TopologyMemory::kAuto;
}
#endif

// Which rows stay encoded.
struct Encoded {
  bool in_host = false;
  bool in_slabs = false;
};

// Rows that all lie in the memory of each GPU are left raw there: those want fewer SMs.
bool caches_hold(int64_t bytes, const Options& options) {
  return has_cache(options) && std::ranges::min(options.cache_bytes) >= bytes;
}

// Of a node type or of a relation.
template <typename Type>
int64_t row_bytes_of(const Type& type) {
  return type.feature_dim * static_cast<int64_t>(dataset::size_of(type.feature_dtype));
}

int64_t bytes_of_all_raw_rows(const dataset::Meta& meta) {
  int64_t bytes = 0;
  for (const dataset::NodeType& nodes : meta.node_types) {
    bytes += cache::bytes_of_all_raw_rows(nodes.num_nodes, row_bytes_of(nodes));
  }
  return bytes;
}

Encoded encoded_where(const dataset::Dataset& data, const Options& options) {
  if (options.compress == "none") return {};
  if (options.compress == "cache") return {false, true};
  const bool is_auto = options.compress == "auto";
  if (!encoded_files(data, false).empty()) {
    return {true, is_auto ? !caches_hold(bytes_of_all_raw_rows(data.meta()), options) : options.compress == "both"};
  }
  if (is_auto || !encoded_files(data, true).empty()) return {};
  throw base::Error({"--compress " + options.compress, "a data set with encoded rows", data.folder().string(),
                     "encode them with: cohort dataset prepare " + data.folder().string()});
}

cache::RowShape shape_of(const dataset::NodeType& type) {
  return {type.num_nodes, type.feature_dim, dataset::name_of(type.feature_dtype)};
}

cache::RowShape shape_of(const dataset::EdgeType& type) {
  return {type.num_edges, type.feature_dim, dataset::name_of(type.feature_dtype)};
}

// Feature rows of a node type or of the edges of a relation, as the data set has them.
struct StoredRows {
  cache::RowShape shape;
  int64_t row_bytes = 0;
  const std::byte* raw = nullptr;        // null: none
  const std::filesystem::path& encoded;  // empty: none
};

StoredRows rows_of_nodes(const dataset::Dataset& data, std::size_t type) {
  const dataset::NodeType& nodes = data.meta().node_types[type];
  const auto number = static_cast<int>(type);
  return {shape_of(nodes), row_bytes_of(nodes), data.features_of(number).data(), data.encoded_rows_of(number)};
}

StoredRows rows_of_edges(const dataset::Dataset& data, std::size_t relation) {
  const dataset::EdgeType& edges = data.meta().edge_types[relation];
  const auto number = static_cast<int>(relation);
  return {shape_of(edges), row_bytes_of(edges), data.edge_features_of(number).data(),
          data.encoded_edge_rows_of(number)};
}

// Null: there are no encoded rows.
std::shared_ptr<const cache::HostRows> open_encoded(const StoredRows& rows, bool verify_data) {
  if (rows.encoded.empty()) return nullptr;
  return std::make_shared<cache::HostRows>(cache::HostRows::open(rows.encoded, rows.shape, verify_data));
}

int num_relations(const dataset::Dataset& data) { return static_cast<int>(data.meta().edge_types.size()); }

// An array of each relation's edges; some relations may have none.
using EdgeArray = const dataset::MappedArray& (dataset::Dataset::*)(int) const;

// Throws Error when no relation has one.
void demand_some(const dataset::Dataset& data, EdgeArray array, const char* what, const char* hint) {
  for (int relation = 0; relation < num_relations(data); ++relation) {
    if ((data.*array)(relation).is_mapped()) return;
  }
  throw base::Error({data.folder().string(), what, "edges without", hint});
}

void demand_weights(const dataset::Dataset& data) {
  demand_some(data, &dataset::Dataset::edge_weights_of, "edge weights",
              "import the data set with --edge-weights or --weight-column, or leave the weights out");
}

// Null: there is none.
template <typename Value>
const Value* values_of(const dataset::MappedArray& array) {
  return array.is_mapped() ? array.as<Value>().data() : nullptr;
}

// Rows whose raw copy was dropped, in memory of their own, which the graph keeps.
const std::byte* decode_features(const StoredRows& stored, GraphView& graph, const StartLog& log) {
  const int64_t bytes = stored.shape.num_rows * stored.row_bytes;
  base::demand_bytes(bytes, base::available_host_bytes(), "host memory", " for decoded rows",
                     "use --compress host, which keeps them encoded");
  log.begin("decoding the rows", bytes);
  const auto rows = open_encoded(stored, true);
  const std::shared_ptr<std::byte[]> decoded(new std::byte[static_cast<std::size_t>(bytes)]);
  rows->decode(decoded.get());
  graph.decoded.push_back(decoded);
  return decoded.get();
}

// Rows as backends read them; `graph` keeps those that are decoded.
cache::FeatureRows rows_to_read(const StoredRows& stored, bool coded, const Options& options, GraphView& graph,
                                const StartLog& log) {
  cache::FeatureRows rows{stored.shape, stored.row_bytes, stored.raw, nullptr};
  if (coded || (options.device == "cuda" && !rows.raw)) rows.encoded = open_encoded(stored, false);
  if (!rows.raw && !rows.encoded && stored.row_bytes > 0) rows.raw = decode_features(stored, graph, log);
  return rows;
}

// The same of edges, for batches that have them.
void add_edge_rows(const dataset::Dataset& data, const Options& options, GraphView& graph, const StartLog& log) {
  const auto& edge_types = data.meta().edge_types;
  if (std::ranges::all_of(edge_types, [](const dataset::EdgeType& edges) { return edges.feature_dim == 0; })) {
    throw base::Error({data.folder().string(), "features of edges", "edges without",
                       "import the data set with --edge-features, or leave the features out"});
  }
  graph.coded_edge_rows = options.compress != "none" && options.compress != "cache";
  for (std::size_t relation = 0; relation < edge_types.size(); ++relation) {
    if (edge_types[relation].feature_dim == 0) continue;
    graph.relations[relation].edge_rows =
        rows_to_read(rows_of_edges(data, relation), graph.coded_edge_rows, options, graph, log);
  }
}

}  // namespace

std::vector<std::filesystem::path> encoded_files(const dataset::Dataset& data, bool with_edges) {
  const dataset::Meta& meta = data.meta();
  std::vector<std::filesystem::path> files;
  for (int type = 0; type < static_cast<int>(meta.node_types.size()); ++type) {
    files.push_back(data.encoded_rows_of(type));
  }
  for (int relation = 0; with_edges && relation < static_cast<int>(meta.edge_types.size()); ++relation) {
    files.push_back(data.encoded_edge_rows_of(relation));
  }
  std::erase_if(files, [](const std::filesystem::path& file) { return file.empty(); });
  return files;
}

std::future<void> verify_rows(const dataset::Dataset& data, bool with_edges) {
  return std::async(std::launch::async, [files = encoded_files(data, with_edges)] {
    for (const std::filesystem::path& file : files) cache::verify_rows(file.string());
  });
}

GraphView topology_of(const dataset::Dataset& data) {
  const dataset::Meta& meta = data.meta();
  GraphView graph{.num_edges = data.num_edges(), .label_type = meta.target_type};
  for (const dataset::NodeType& nodes : meta.node_types) {
    graph.types.push_back({graph.num_nodes, nodes.num_nodes, {shape_of(nodes), 0, nullptr, nullptr}});
    graph.num_nodes += nodes.num_nodes;
  }
  for (std::size_t relation = 0; relation < meta.edge_types.size(); ++relation) {
    const dataset::EdgeType& edges = meta.edge_types[relation];
    const dataset::MappedArray& indices = data.indices_of(static_cast<int>(relation));
    const base::CscRef lists{meta.node_types[static_cast<std::size_t>(edges.target_type)].num_nodes, edges.num_edges,
                             data.indptr_of(static_cast<int>(relation)).data(), indices.data(),
                             static_cast<int>(dataset::size_of(indices.dtype()))};
    graph.relations.push_back({edges.source_type, edges.target_type, lists, edges.reverse_of});
  }
  graph.labels = data.labels_array().data();
  graph.label_bytes = static_cast<int64_t>(data.label_row_bytes());
  return graph;
}

void add_draw_weights(const dataset::Dataset& data, const DrawOptions& options, GraphView& graph, const StartLog& log) {
  if (options.weight_attr.empty()) return;
  demand_weights(data);
  log.begin("preparing draws by weight", graph.num_edges * static_cast<int64_t>(sizeof(float)));
  for (int number = 0; number < num_relations(data); ++number) {
    const float* weights = values_of<float>(data.edge_weights_of(number));
    if (!weights) continue;
    const auto at = static_cast<std::size_t>(number);
    const std::filesystem::path file = data.folder() / data.meta().edge_types[at].edge_weights;
    Relation& edges = graph.relations[at];
    edges.draw_weights =
        std::make_shared<DrawWeights>(edges.lists, weights, file.string(), options.weight_strategy == "top");
  }
}

std::optional<ParallelEdges> parallel_edges_apart(const base::CscRef& lists) {
  return lists.with_indices([&]<typename Index>(const Index* indices) -> std::optional<ParallelEdges> {
    const auto source_apart = [&](int64_t target) -> int64_t {
      const std::span list(indices + lists.indptr[target], indices + lists.indptr[target + 1]);
      if (std::ranges::is_sorted(list)) return -1;
      thread_local std::vector<Index> sources;
      sources.clear();
      std::ranges::unique_copy(list, std::back_inserter(sources));
      std::ranges::sort(sources);
      const auto twice = std::ranges::adjacent_find(sources);
      return twice == sources.end() ? -1 : *twice;
    };
    const dataset::Scan bad =
        dataset::scan(lists.num_nodes, {}, [&](int64_t target) { return source_apart(target) >= 0; });
    if (bad.first < 0) return std::nullopt;
    return ParallelEdges{bad.first, source_apart(bad.first)};
  });
}

void demand_parallel_edges_together(const dataset::Dataset& data, const DrawOptions& options, const GraphView& graph,
                                    const StartLog& log) {
  if (options.dependency() == 0) return;
  log.begin("looking for parallel edges");
  for (std::size_t relation = 0; relation < graph.relations.size(); ++relation) {
    const auto apart = parallel_edges_apart(graph.relations[relation].lists);
    if (!apart) continue;
    const std::string& file = data.indices_of(static_cast<int>(relation)).place();
    throw base::Error({"--sampling labor", "parallel edges side by side in each list",
                       base::format("{}: several edges from node {} to node {} with others between them", file,
                                    apart->source, apart->target),
                       "lists of edges with times are in the order of the times: import the edges without times, or "
                       "use --sampling neighbor"});
  }
}

void add_edge_times(const dataset::Dataset& data, GraphView& graph) {
  demand_some(data, &dataset::Dataset::edge_times_of, "edge times",
              "write the data set with edge_time=..., or leave time_attr and input_time out");
  for (std::size_t relation = 0; relation < graph.relations.size(); ++relation) {
    graph.relations[relation].edge_times = values_of<int64_t>(data.edge_times_of(static_cast<int>(relation)));
  }
}

GraphView view_of(const dataset::Dataset& data, const Options& options, const StartLog& log) {
  if (options.edge_weights) demand_weights(data);
  GraphView graph = topology_of(data);
  graph.with_shares = options.importance_sampling;
  const Encoded encoded = encoded_where(data, options);
  graph.coded_host_rows = encoded.in_host;
  graph.coded_slab_rows = encoded.in_slabs;
  const bool coded = encoded.in_host || (options.device == "cuda" && encoded.in_slabs);
  for (std::size_t type = 0; type < graph.types.size(); ++type) {
    graph.types[type].rows = rows_to_read(rows_of_nodes(data, type), coded, options, graph, log);
  }
  if (options.edge_features) add_edge_rows(data, options, graph, log);
  add_draw_weights(data, options, graph, log);
  demand_parallel_edges_together(data, options, graph, log);
  for (std::size_t relation = 0; relation < graph.relations.size(); ++relation) {
    const auto number = static_cast<int>(relation);
    Relation& edges = graph.relations[relation];
    if (options.edge_weights) edges.edge_weights = values_of<float>(data.edge_weights_of(number));
  }
  if (options.edge_times) add_edge_times(data, graph);
  return graph;
}

#ifdef COHORT_WITH_CUDA
namespace {

int64_t most_cache_bytes(const Options& options) {
  return has_cache(options) ? *std::ranges::max_element(options.cache_bytes) : 0;
}

}  // namespace

bool topology_in_gpus(const GraphView& graph, const Options& options) {
  return topology_lies_in_gpus(graph, options.gpus, place_of(options.topology), most_cache_bytes(options));
}
#endif

channel::RowsIn rows_lie_in(const GraphView& graph, const Options& options) {
  using channel::RowsIn;
  const auto has_rows = [](const NodeRange& type) { return type.rows.row_bytes > 0; };
  if (std::ranges::none_of(graph.types, has_rows)) return RowsIn::kSlots;
  const cache::FeatureRows& first = graph.types[0].rows;
  if (options.device == "cpu") {  // a cache is planned to see what one on a GPU would do
    const bool is_raw = graph.is_homogeneous() && graph.decoded.empty() && !first.encoded && options.host_bytes < 0;
    return options.in_place && is_raw && !has_cache(options) ? RowsIn::kTable : RowsIn::kSlots;
  }
#ifdef COHORT_WITH_CUDA
  const bool has_table = options.row_owners.hosts.empty() && graph.is_homogeneous() && !graph.coded_slab_rows &&
                         caches_hold(cache::bytes_of_all_raw_rows(graph.num_nodes, first.row_bytes), options) &&
                         topology_in_gpus(graph, options);
  return has_table ? RowsIn::kTable : RowsIn::kPool;
#else
  return RowsIn::kSlots;
#endif
}

}  // namespace cohort::sampler
