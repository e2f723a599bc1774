#include "dataset/partitioning/partition.h"

#include <algorithm>
#include <array>

#include "base/format.h"
#include "base/random.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr std::array<const char*, 3> kMethodNames = {"metis", "streaming", "random"};
constexpr uint64_t kHashStream = 0x7061727469746eull;

std::vector<int32_t> hashed(int64_t num_nodes, const PartitionOptions& options, const std::stop_token& stop) {
  std::vector<int32_t> parts(static_cast<std::size_t>(num_nodes));
  const base::PhiloxKey key = base::derive_key(base::key_of(options.seed), kHashStream, 0);
  const auto num_parts = static_cast<uint64_t>(options.num_parts);
  for_chunks(num_nodes, stop, [&](int64_t begin, int64_t end) {
    for (int64_t node = begin; node < end; ++node) {
      const auto i = static_cast<std::size_t>(node);
      parts[i] = static_cast<int32_t>(base::random_below(num_parts, key, i, 0));
    }
  });
  return parts;
}

// Of each node type.
std::vector<int64_t> first_nodes(const Dataset& data) {
  std::vector<int64_t> first = {0};
  for (const NodeType& type : data.meta().node_types) first.push_back(first.back() + type.num_nodes);
  return first;
}

// uint8 [V]: 1 for nodes to train on.
std::vector<uint8_t> train_nodes_of(const Dataset& data) {
  std::vector<uint8_t> train(static_cast<std::size_t>(data.num_nodes()), 0);
  const int64_t first = first_nodes(data)[static_cast<std::size_t>(data.meta().target_type)];
  for (const int64_t node : data.train_ids()) {
    if (node < 0 || node >= data.num_target_nodes()) {
      throw base::Error({data.split_arrays()[0].place(), base::format("nodes in [0, {})", data.num_target_nodes()),
                         std::to_string(node), "cohort dataset check lists what is wrong"});
    }
    train[static_cast<std::size_t>(first + node)] = 1;
  }
  return train;
}

}  // namespace

std::vector<NumberedLists> numbered_lists(const Dataset& data) {
  const std::vector<int64_t> first = first_nodes(data);
  std::vector<NumberedLists> all;
  for (int relation = 0; relation < static_cast<int>(data.meta().edge_types.size()); ++relation) {
    const EdgeType& edges = data.meta().edge_types[static_cast<std::size_t>(relation)];
    const MappedArray& indices = data.indices_of(relation);
    const std::span<const int64_t> indptr = data.indptr_of(relation);
    const base::CscRef lists{.num_nodes = std::ssize(indptr) - 1,
                             .num_edges = edges.num_edges,
                             .indptr = indptr.data(),
                             .indices = indices.data(),
                             .index_bytes = static_cast<int>(size_of(indices.dtype()))};
    all.push_back({lists, first[static_cast<std::size_t>(edges.source_type)],
                   first[static_cast<std::size_t>(edges.target_type)]});
  }
  return all;
}

int64_t num_edges_of(std::span<const NumberedLists> relations) {
  int64_t sum = 0;
  for (const NumberedLists& relation : relations) sum += relation.lists.num_edges;
  return sum;
}

std::optional<PartitionMethod> partition_method_named(std::string_view name) {
  for (std::size_t i = 0; i < kMethodNames.size(); ++i) {
    if (name == kMethodNames[i]) return static_cast<PartitionMethod>(i);
  }
  return std::nullopt;
}

std::vector<int32_t> partition(const Dataset& data, const PartitionOptions& options, const std::stop_token& stop) {
  const int64_t most = std::min(kMaxParts, data.num_nodes());
  if (most < 2) {
    throw base::Error({data.folder().string(), "at least 2 nodes to divide", std::to_string(data.num_nodes()),
                       "train it without --partition"});
  }
  if (options.num_parts < 2 || options.num_parts > most) {
    throw base::Error({"--parts", base::format("an integer in [2, {}]", most), std::to_string(options.num_parts),
                       "as many parts as there will be cliques of GPUs"});
  }
  if (options.method == PartitionMethod::random) return hashed(data.num_nodes(), options, stop);
  const std::vector<uint8_t> train = train_nodes_of(data);
  const auto body = options.method == PartitionMethod::metis ? partition_metis : partition_streaming;
  return body(numbered_lists(data), train, options, stop);
}

}  // namespace cohort::dataset
