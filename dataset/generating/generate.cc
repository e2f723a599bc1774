#include "dataset/generating/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "dataset/dataset.h"
#include "dataset/generating/edges.h"
#include "dataset/generating/features.h"
#include "dataset/generating/permutation.h"
#include "dataset/output.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr std::array<const char*, 3> kKindNames = {"sbm", "powerlaw", "rmat"};

void demand_range(const char* option, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw base::Error({option, base::format("an integer in [{}, {}]", least, most), std::to_string(value), ""});
}

void demand_options(const GenerateOptions& options) {
  constexpr int64_t kMaxNodes = int64_t{1} << 40, kMaxEdges = int64_t{1} << 48, kMaxDim = 1 << 20;
  constexpr int64_t kMaxClasses = 1 << 20;  // products with kMaxNodes stay below 2^63
  demand_range("--nodes", options.num_nodes, 1, kMaxNodes);
  demand_range("--edges", options.num_edges, 0, kMaxEdges);
  demand_range("--dim", options.feature_dim, 1, kMaxDim);
  demand_range("--edge-dim", options.edge_dim, 0, kMaxDim);
  demand_range("--classes", options.num_classes, 1, std::min(kMaxClasses, options.num_nodes));
  if (!is_feature_dtype(options.feature_dtype)) {
    throw base::Error({"--dtype", "uint8, float16, bfloat16 or float32", name_of(options.feature_dtype), ""});
  }
  double sum = 0;
  for (const double part : options.split) sum += part >= 0 ? part : 2;
  if (!(sum <= 1 + 1e-9)) {
    throw base::Error({"--split-ratio", "three parts of at least 0 that add up to at most 1",
                       base::format("{},{},{}", options.split[0], options.split[1], options.split[2]), ""});
  }
}

// Index [V]: the node at each position.
template <typename Index>
std::vector<Index> random_names(const GenerateOptions& options, const std::stop_token& stop) {
  std::vector<Index> names(static_cast<std::size_t>(options.num_nodes));
  const Permutation permutation(options.num_nodes, stream_key(options.seed, Stream::names));
  for_chunks(options.num_nodes, stop, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) names[static_cast<std::size_t>(i)] = static_cast<Index>(permutation(i));
  });
  return names;
}

template <typename Index>
void fill_labels(const GenerateOptions& options, std::span<const Index> names, std::span<int64_t> labels,
                 const std::stop_token& stop) {
  const base::PhiloxKey key = stream_key(options.seed, Stream::classes);
  const auto num_classes = static_cast<uint64_t>(options.num_classes);
  for_chunks(options.num_nodes, stop, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto position = static_cast<std::size_t>(i);
      if (options.kind == GraphKind::sbm) {
        labels[static_cast<std::size_t>(names[position])] = block_of(i, options.num_nodes, options.num_classes);
      } else {
        labels[position] = static_cast<int64_t>(base::random_below(num_classes, key, static_cast<uint64_t>(i), 0));
      }
    }
  });
}

// Calls use(i, node) for the edges i of each node, in parallel.
template <typename Use>
void for_edges_of_nodes(std::span<const int64_t> indptr, const std::stop_token& stop, Use use) {
  for_chunks(std::ssize(indptr) - 1, stop, [&](int64_t begin, int64_t end) {
    for (int64_t node = begin; node < end; ++node) {
      const auto first = static_cast<std::size_t>(indptr[static_cast<std::size_t>(node)]);
      const auto last = static_cast<std::size_t>(indptr[static_cast<std::size_t>(node) + 1]);
      for (std::size_t i = first; i < last; ++i) use(i, node);
    }
  });
}

// indptr int64 [V + 1], indices Index [E].
template <typename Index>
void write_weights(const std::filesystem::path& folder, const GenerateOptions& options, std::span<const int64_t> indptr,
                   std::span<const Index> indices, const std::stop_token& stop) {
  MappedOutput file = create_npy(folder / kEdgeWeightsFile, DType::float32, {options.stored_edges()});
  const std::span<float> weights = file.as<float>();
  const base::PhiloxKey key = stream_key(options.seed, Stream::weights);
  for_edges_of_nodes(indptr, stop,
                     [&](std::size_t i, int64_t node) { weights[i] = edge_weight(key, indices[i], node); });
}

// indptr int64 [V + 1], indices Index [E], labels int64 [V].
template <typename Index>
void write_edge_features(const std::filesystem::path& folder, const GenerateOptions& options,
                         std::span<const int64_t> indptr, std::span<const Index> indices,
                         std::span<const int64_t> labels, const std::stop_token& stop) {
  MappedOutput file =
      create_npy(folder / kEdgeFeaturesFile, DType::float32, {options.stored_edges(), options.edge_dim});
  const std::span<float> rows = file.as<float>();
  const EdgeFeatureGenerator features(options.seed, options.edge_dim);
  for_edges_of_nodes(indptr, stop, [&](std::size_t i, int64_t node) {
    const bool same = labels[static_cast<std::size_t>(indices[i])] == labels[static_cast<std::size_t>(node)];
    features.write(indices[i], node, same, rows.data() + i * static_cast<std::size_t>(options.edge_dim));
  });
}

// Topology and labels; the files are complete when this returns.
template <typename Index>
void write_graph(const std::filesystem::path& folder, const Meta& meta, const GenerateOptions& options,
                 const std::stop_token& stop) {
  const DType index_dtype = sizeof(Index) == 4 ? DType::int32 : DType::int64;
  MappedOutput labels = create_npy(folder / meta.labels, DType::int64, {options.num_nodes});
  MappedOutput indptr = create_npy(folder / meta.edge_types[0].indptr, DType::int64, {options.num_nodes + 1});
  MappedOutput indices = create_npy(folder / meta.edge_types[0].indices, index_dtype, {options.stored_edges()});
  const std::vector<Index> names = random_names<Index>(options, stop);
  generate_csc<Index>(options, names, indptr.as<int64_t>(), indices.as<Index>(), stop);
  fill_labels<Index>(options, names, labels.as<int64_t>(), stop);
  if (options.edge_weights) write_weights<Index>(folder, options, indptr.as<int64_t>(), indices.as<Index>(), stop);
  if (options.edge_dim > 0) {
    write_edge_features<Index>(folder, options, indptr.as<int64_t>(), indices.as<Index>(), labels.as<int64_t>(), stop);
  }
}

// Where each split ends in the permutation that is cut into splits: int64 [3].
std::array<int64_t, 3> split_ends(const GenerateOptions& options) {
  std::array<int64_t, 3> ends{};
  double share = 0;
  for (std::size_t split = 0; split < ends.size(); ++split) {
    share += options.split[split];
    const auto rounded = static_cast<int64_t>(std::llround(share * static_cast<double>(options.num_nodes)));
    ends[split] = std::min(rounded, options.num_nodes);
  }
  return ends;
}

// uint8 [V]: the split of each node; 3: none.
std::vector<uint8_t> split_of_nodes(const GenerateOptions& options, const std::array<int64_t, 3>& ends,
                                    const std::stop_token& stop) {
  std::vector<uint8_t> split_of(static_cast<std::size_t>(options.num_nodes), 3);
  const Permutation permutation(options.num_nodes, stream_key(options.seed, Stream::splits));
  for_chunks(ends.back(), stop, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto split = std::upper_bound(ends.begin(), ends.end(), i) - ends.begin();
      split_of[static_cast<std::size_t>(permutation(i))] = static_cast<uint8_t>(split);
    }
  });
  return split_of;
}

// Writes the nodes of one split into `ids`, ascending; there are as many of them as `ids` has room for.
void list_nodes(std::span<const uint8_t> split_of, std::size_t split, std::span<int64_t> ids,
                const std::stop_token& stop) {
  const auto num_nodes = static_cast<int64_t>(split_of.size());
  std::vector<int64_t> first(static_cast<std::size_t>((num_nodes + kChunk - 1) / kChunk) + 1, 0);  // id of each chunk
  for_chunks(num_nodes, stop, [&](int64_t begin, int64_t end) {
    first[static_cast<std::size_t>(begin / kChunk) + 1] =
        std::count(split_of.begin() + begin, split_of.begin() + end, static_cast<uint8_t>(split));
  });
  std::partial_sum(first.begin(), first.end(), first.begin());
  for_chunks(num_nodes, stop, [&](int64_t begin, int64_t end) {
    auto next = static_cast<std::size_t>(first[static_cast<std::size_t>(begin / kChunk)]);
    for (int64_t node = begin; node < end; ++node) {
      if (split_of[static_cast<std::size_t>(node)] == split) ids[next++] = node;
    }
  });
}

// Consecutive ranges of a random permutation, each in ascending order.
void write_splits(const std::filesystem::path& folder, const Meta& meta, const GenerateOptions& options,
                  const std::stop_token& stop) {
  const std::array<int64_t, 3> ends = split_ends(options);
  const std::vector<uint8_t> split_of = split_of_nodes(options, ends, stop);
  for (std::size_t split = 0; split < ends.size(); ++split) {
    const int64_t count = ends[split] - (split == 0 ? 0 : ends[split - 1]);
    const MappedOutput file = create_npy(folder / meta.splits[split], DType::int64, {count});
    list_nodes(split_of, split, file.as<int64_t>(), stop);
  }
}

Meta meta_of(const std::string& name, const GenerateOptions& options) {
  Meta meta = plain_meta(options.num_nodes, options.stored_edges(), options.feature_dim, options.feature_dtype);
  meta.name = name;
  meta.num_classes = options.num_classes;
  EdgeType& edges = meta.edge_types[0];
  if (options.edge_weights) edges.edge_weights = kEdgeWeightsFile;
  if (options.edge_dim > 0) {
    edges.feature_dim = options.edge_dim;
    edges.features = kEdgeFeaturesFile;
  }
  return meta;
}

}  // namespace

std::optional<GraphKind> kind_named(std::string_view name) {
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (name == kKindNames[i]) return static_cast<GraphKind>(i);
  }
  return std::nullopt;
}

const char* name_of(GraphKind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

void generate_graph(const std::filesystem::path& folder, const std::string& name, const GenerateOptions& options,
                    const std::stop_token& stop) {
  demand_options(options);
  const Meta meta = meta_of(name, options);
  if (options.num_nodes < kMaxInt32Nodes) {
    write_graph<int32_t>(folder, meta, options, stop);
  } else {
    write_graph<int64_t>(folder, meta, options, stop);
  }
  write_splits(folder, meta, options, stop);
  write_meta(folder, meta);
}

void generate(const std::filesystem::path& out, const GenerateOptions& options, const std::stop_token& stop) {
  demand_options(options);
  OutputFolder folder(out, options.overwrite);
  const Meta meta = meta_of(folder.out().filename().string(), options);
  MappedOutput features = create_npy(folder.path() / meta.node_types[0].features, options.feature_dtype,
                                     {options.num_nodes, options.feature_dim});
  generate_graph(folder.path(), meta.name, options, stop);
  const MappedArray labels = map_npy(folder.path() / meta.labels);
  FeatureGenerator(options).range(labels.as<int64_t>(), 0, options.num_nodes, features.data(), stop);
  folder.commit(stop);
}

}  // namespace cohort::dataset
