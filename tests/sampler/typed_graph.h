// Small graphs of several types for the sampler's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sampler/backend.h"
#include "sampler/draw_weights.h"
#include "tests/sampler/host_batch.h"

namespace cohort::sampler {

// A typed graph that owns its arrays. Lists and labels are random or given; row v of a type holds v in every float.
struct TypedGraph {
  struct Type {
    int64_t count;
    int64_t dim;  // float32; 0: no features
    std::vector<float> features;
  };
  struct Lists {
    int source_type = 0, target_type = 0;
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<int64_t> wide_indices;  // in their place, where the relation has 8-byte indices
    bool wide = false;
    std::vector<float> weights;  // none unless weigh_edges() was called
    std::shared_ptr<const DrawWeights> draw_weights;
    std::vector<int64_t> times;  // none unless time_edges() was called
  };
  std::vector<Type> types;
  std::vector<Lists> relations;
  int label_type = 0;
  std::vector<int64_t> labels;

  void add_type(int64_t count, int64_t dim) {
    types.push_back({count, dim, {}});
    for (int64_t node = 0; node < count; ++node) {
      types.back().features.insert(types.back().features.end(), static_cast<std::size_t>(dim),
                                   static_cast<float>(node));
    }
  }
  Lists& add_relation(int source_type, int target_type) {
    Lists& lists = relations.emplace_back();
    lists.source_type = source_type;
    lists.target_type = target_type;
    return lists;
  }
  void label(int type) {
    label_type = type;
    for (int64_t node = 0; node < types[static_cast<std::size_t>(type)].count; ++node) labels.push_back(node % 5);
  }
  // Of every other relation; some weights are 0. Neighbours are then drawn by them.
  void weigh_edges() {
    const GraphView graph = view();
    for (std::size_t number = 0; number < relations.size(); number += 2) {
      Lists& lists = relations[number];
      for (uint64_t i = 0; i < static_cast<uint64_t>(lists.indptr.back()); ++i) {
        lists.weights.push_back(static_cast<float>(base::random_below(6, base::key_of(number), i, 0)));
      }
      lists.draw_weights = std::make_shared<DrawWeights>(graph.relations[number].lists, lists.weights.data(),
                                                         "edge_weights", number > 2);
    }
  }
  // Of two relations of three; several edges of a list have the same time.
  void time_edges() {
    for (std::size_t number = 0; number < relations.size(); ++number) {
      Lists& lists = relations[number];
      if (number % 3 == 2) continue;
      for (std::size_t list = 0; list + 1 < lists.indptr.size(); ++list) {
        int64_t time = 0;
        for (int64_t i = lists.indptr[list]; i < lists.indptr[list + 1]; ++i) {
          time += static_cast<int64_t>(base::random_below(3, base::key_of(number), static_cast<uint64_t>(i), 1));
          lists.times.push_back(time);
        }
      }
    }
  }
  GraphView view() const {
    GraphView graph;
    for (const Type& type : types) {
      const auto* rows = type.dim > 0 ? reinterpret_cast<const std::byte*>(type.features.data()) : nullptr;
      const auto row_bytes = type.dim * static_cast<int64_t>(sizeof(float));
      graph.types.push_back(
          {graph.num_nodes, type.count, {{type.count, type.dim, "float32"}, row_bytes, rows, nullptr}});
      graph.num_nodes += type.count;
    }
    for (const Lists& lists : relations) {
      const void* indices = lists.wide ? static_cast<const void*>(lists.wide_indices.data()) : lists.indices.data();
      const auto target = static_cast<std::size_t>(lists.target_type);
      const base::CscRef ref{types[target].count, lists.indptr.back(), lists.indptr.data(), indices,
                             lists.wide ? 8 : 4};
      const float* weights = lists.weights.empty() ? nullptr : lists.weights.data();
      const int64_t* times = lists.times.empty() ? nullptr : lists.times.data();
      graph.relations.push_back({lists.source_type, lists.target_type, ref, -1, weights, times, lists.draw_weights});
      graph.num_edges += ref.num_edges;
    }
    graph.label_type = label_type;
    graph.labels = reinterpret_cast<const std::byte*>(labels.data());
    return graph;
  }
};

// 1 to 5 types, 1 to 8 relations with 4- or 8-byte indices, lists of no node to more than a warp draws.
inline TypedGraph random_types(uint64_t seed) {
  const base::PhiloxKey key = base::key_of(seed);
  uint64_t drawn = 0;
  const auto below = [&](uint64_t bound) { return static_cast<int64_t>(base::random_below(bound, key, drawn++, 0)); };
  TypedGraph graph;
  const int64_t num_types = 1 + below(5), num_relations = 1 + below(8);
  for (int64_t type = 0; type < num_types; ++type) {
    const int64_t dim = below(3) == 0 ? 0 : 1 + below(70);  // first: compilers order arguments differently
    graph.add_type(1 + below(900), dim);
  }
  graph.label(static_cast<int>(below(static_cast<uint64_t>(num_types))));
  std::vector<std::pair<int, int>> ends;
  for (int64_t r = 0; r < num_relations; ++r) {
    const auto source = static_cast<int>(below(static_cast<uint64_t>(num_types)));
    ends.emplace_back(source, static_cast<int>(below(static_cast<uint64_t>(num_types))));
  }
  std::sort(ends.begin(), ends.end());
  for (const auto& [source, target] : ends) {
    TypedGraph::Lists& lists = graph.add_relation(source, target);
    lists.wide = below(2) == 0;
    const auto sources = static_cast<uint64_t>(graph.types[static_cast<std::size_t>(source)].count);
    for (int64_t node = 0; node < graph.types[static_cast<std::size_t>(target)].count; ++node) {
      const int64_t kind = below(10), degree = kind < 3 ? 0 : below(kind == 9 ? 120 : 12);
      for (int64_t j = 0; j < degree; ++j) lists.wide_indices.push_back(below(sources));
      lists.indptr.push_back(std::ssize(lists.wide_indices));
    }
    lists.indices.assign(lists.wide_indices.begin(), lists.wide_indices.end());
  }
  return graph;
}

}  // namespace cohort::sampler
