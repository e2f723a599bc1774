#include "dataset/generating/edges.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace cohort::dataset {
namespace {

using base::PhiloxKey;
using base::random_64;
using base::random_below;

// Both ends as positions before renaming.
struct SbmEdges {
  int64_t num_nodes, num_classes;
  PhiloxKey key;

  Edge operator()(int64_t i) const {
    constexpr uint64_t kChances = 5, kAtHome = 4;  // 4 of 5 edges stay inside the community
    const auto edge = static_cast<uint64_t>(i);
    const auto destination = static_cast<int64_t>(random_below(static_cast<uint64_t>(num_nodes), key, edge, 0));
    int64_t first = 0, last = num_nodes;
    if (random_below(kChances, key, edge, 1) < kAtHome) {
      const int64_t block = block_of(destination, num_nodes, num_classes);
      first = block_start(block, num_nodes, num_classes);
      last = block_start(block + 1, num_nodes, num_classes);
    }
    const auto offset = random_below(static_cast<uint64_t>(last - first), key, edge, 2);
    return {first + static_cast<int64_t>(offset), destination};
  }
};

struct PowerlawEdges {
  int64_t num_nodes;
  PhiloxKey key;

  Edge operator()(int64_t i) const {
    const auto edge = static_cast<uint64_t>(i);
    return {position(random_64(key, edge, 0)), position(random_64(key, edge, 1))};
  }

  int64_t position(uint64_t bits) const {
    const double u = static_cast<double>(bits >> 11) * 0x1p-53;
    return std::min(static_cast<int64_t>(static_cast<double>(num_nodes) * u * u), num_nodes - 1);
  }
};

struct RmatEdges {
  int64_t num_nodes;
  int num_levels;
  PhiloxKey key;

  // Both ends in [0, 2^levels), drawn again until both are nodes.
  Edge operator()(int64_t i) const {
    for (uint64_t attempt = 0;; ++attempt) {
      const Edge edge = draw(static_cast<uint64_t>(i), attempt << 32);
      if (edge.source < num_nodes && edge.destination < num_nodes) return edge;
    }
  }

  Edge draw(uint64_t edge, uint64_t counter) const {
    constexpr uint64_t kA = 37356, kB = kA + 12452, kC = kB + 12452;  // .57, .19, .19 of 65536; the rest is .05
    int64_t source = 0, destination = 0;
    uint64_t bits = 0;
    for (int level = 0; level < num_levels; ++level) {
      if (level % 4 == 0) bits = random_64(key, edge, counter++);
      const uint64_t draw = bits & 0xFFFFu;
      bits >>= 16;
      source = (source << 1) | (draw >= kB);
      destination = (destination << 1) | (draw >= kC || (draw >= kA && draw < kB));
    }
    return {source, destination};
  }
};

// Edge 2 i is edge i of `edges`, edge 2 i + 1 the same the other way.
template <typename Edges>
struct BothDirections {
  Edges edges;

  Edge operator()(int64_t i) const {
    const Edge edge = edges(i / 2);
    return i % 2 == 0 ? edge : Edge{edge.destination, edge.source};
  }
};

// Edges between positions, which names Index [V] turns into nodes.
template <typename Edges, typename Index>
struct RenamedEdges {
  Edges edges;
  std::span<const Index> names;

  Edge at(int64_t i) const { return edges(i); }
  void prefetch(int64_t position) const { __builtin_prefetch(names.data() + position); }
  int64_t node(int64_t position) const { return names[static_cast<std::size_t>(position)]; }
};

}  // namespace

base::PhiloxKey stream_key(uint64_t seed, Stream stream) {
  return base::derive_key(base::key_of(seed), static_cast<uint64_t>(stream), 0);
}

int64_t block_of(int64_t position, int64_t num_nodes, int64_t num_classes) {
  return position * num_classes / num_nodes;
}

int64_t block_start(int64_t block, int64_t num_nodes, int64_t num_classes) {
  return (block * num_nodes + num_classes - 1) / num_classes;
}

float edge_weight(base::PhiloxKey key, int64_t one, int64_t other) {
  const auto [least, most] = std::minmax(one, other);
  const uint64_t bits = random_64(key, static_cast<uint64_t>(least), static_cast<uint64_t>(most));
  return static_cast<float>((bits >> 40) + 1) * 0x1p-24f;
}

template <typename Index>
void generate_csc(const GenerateOptions& options, std::span<const Index> names, std::span<int64_t> indptr,
                  std::span<Index> indices, const std::stop_token& stop) {
  const PhiloxKey key = stream_key(options.seed, Stream::edges);
  const auto build = [&](auto edges) {
    build_csc(RenamedEdges<decltype(edges), Index>{edges, names}, indptr, indices, stop);
  };
  const auto renamed = [&](auto edges) {
    if (options.undirected) return build(BothDirections<decltype(edges)>{edges});
    build(edges);
  };
  const auto levels = static_cast<int>(std::bit_width(static_cast<uint64_t>(options.num_nodes - 1)));
  switch (options.kind) {
    case GraphKind::sbm:
      return renamed(SbmEdges{options.num_nodes, options.num_classes, key});
    case GraphKind::powerlaw:
      return renamed(PowerlawEdges{options.num_nodes, key});
    case GraphKind::rmat:
      return renamed(RmatEdges{options.num_nodes, levels, key});
  }
}

template void generate_csc(const GenerateOptions&, std::span<const int32_t>, std::span<int64_t>, std::span<int32_t>,
                           const std::stop_token&);
template void generate_csc(const GenerateOptions&, std::span<const int64_t>, std::span<int64_t>, std::span<int64_t>,
                           const std::stop_token&);

}  // namespace cohort::dataset
