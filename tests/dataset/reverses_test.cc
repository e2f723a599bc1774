#include "dataset/reverses.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace cohort::dataset {
namespace {

using Edges = std::vector<std::pair<int, int>>;  // source, target

constexpr int kUsers = 5, kItems = 4;

// Relations among users (type 0) and items (type 1), as lists of in-neighbours that are in the order of the edges.
class Relations {
 public:
  void add(int source_type, int target_type, const Edges& edges, int reverse_of = kUnknownReverse) {
    auto& [indptr, indices] = arrays_.emplace_back();
    const int num_targets = target_type == 0 ? kUsers : kItems;
    indptr = {0};
    for (int target = 0; target < num_targets; ++target) {
      for (const auto& [from, to] : edges) {
        if (to == target) indices.push_back(from);
      }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
    types_.push_back({source_type, target_type, {}, reverse_of});
  }
  std::vector<RelationLists> lists() const {
    std::vector<RelationLists> out = types_;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto& [indptr, indices] = arrays_[i];
      const auto num_edges = static_cast<int64_t>(indices.size());
      out[i].lists = {static_cast<int64_t>(indptr.size()) - 1, num_edges, indptr.data(), indices.data(), 4};
    }
    return out;
  }
  std::vector<int> found() const { return find_reverses(lists()); }
  std::vector<SameEdges> there(int relation) const {
    const auto of_all = lists();
    return same_edges(of_all, find_reverses(of_all), relation);
  }

 private:
  std::vector<std::pair<std::vector<int64_t>, std::vector<int32_t>>> arrays_;
  std::vector<RelationLists> types_;
};

Edges reversed(const Edges& edges) {
  Edges out;
  for (const auto& [source, target] : edges) out.emplace_back(target, source);
  return out;
}

const Edges kBuys = {{0, 1}, {4, 1}, {2, 3}, {2, 3}, {1, 0}};  // one twice

TEST(Reverses, OtherEdgesAreNone) {
  for (const Edges& edges : {Edges{{1, 4}, {3, 2}, {0, 1}, {1, 0}, {1, 0}},     // another comes twice
                             Edges{{1, 4}, {3, 2}, {0, 1}, {1, 0}},             // one fewer
                             Edges{{1, 4}, {3, 2}, {0, 1}, {1, 0}, {3, 3}}}) {  // one other
    Relations graph;
    graph.add(0, 1, kBuys);
    graph.add(1, 0, edges);
    EXPECT_EQ(graph.found(), (std::vector<int>{-1, -1}));
    EXPECT_EQ(graph.there(0), (std::vector<SameEdges>{{0, false}}));
  }
  Relations without_edges;
  without_edges.add(0, 1, {});
  without_edges.add(1, 0, {});
  EXPECT_EQ(without_edges.found(), (std::vector<int>{-1, -1}));
}

TEST(Reverses, WhatIsSaidComesFirst) {
  Relations graph;
  graph.add(0, 1, kBuys);
  graph.add(1, 0, {{1, 2}}, 0);
  graph.add(1, 0, reversed(kBuys), kNoReverse);
  EXPECT_EQ(graph.found(), (std::vector<int>{-1, 0, kNoReverse}));
  EXPECT_EQ(graph.there(0), (std::vector<SameEdges>{{0, false}, {1, true}}));
  EXPECT_EQ(graph.there(2), (std::vector<SameEdges>{{2, false}}));
  Relations loops;
  loops.add(0, 0, {{0, 1}}, kNoReverse);
  EXPECT_EQ(loops.there(0), (std::vector<SameEdges>{{0, false}})) << "its edges have directions";
}

}  // namespace
}  // namespace cohort::dataset
