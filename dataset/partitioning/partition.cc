#include "dataset/partitioning/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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

// uint8 [V]: 1 for nodes to train on.
std::vector<uint8_t> train_nodes_of(const Dataset& data) {
  std::vector<uint8_t> train(static_cast<std::size_t>(data.num_nodes()), 0);
  for (const int64_t node : data.train_ids()) {
    if (node < 0 || node >= data.num_nodes()) {
      throw base::Error({data.split_arrays()[0].place(), fmt::format("nodes in [0, {})", data.num_nodes()),
                         std::to_string(node), "cohort dataset check lists what is wrong"});
    }
    train[static_cast<std::size_t>(node)] = 1;
  }
  return train;
}

}  // namespace

std::optional<PartitionMethod> partition_method_named(std::string_view name) {
  for (std::size_t i = 0; i < kMethodNames.size(); ++i) {
    if (name == kMethodNames[i]) return static_cast<PartitionMethod>(i);
  }
  return std::nullopt;
}

std::vector<int32_t> partition(const Dataset& data, const PartitionOptions& options, const std::stop_token& stop) {
  const int64_t most = std::min(kMaxParts, data.num_nodes());
  if (options.num_parts < 2 || options.num_parts > most) {
    throw base::Error({"--parts", fmt::format("an integer in [2, {}]", most), std::to_string(options.num_parts),
                       "as many parts as there will be cliques of GPUs"});
  }
  if (options.method == PartitionMethod::random) return hashed(data.num_nodes(), options, stop);
  const std::vector<uint8_t> train = train_nodes_of(data);
  const auto body = options.method == PartitionMethod::metis ? partition_metis : partition_streaming;
  return body(data, train, options, stop);
}

}  // namespace cohort::dataset
