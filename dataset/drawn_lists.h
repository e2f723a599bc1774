// Lists of in-neighbours of any nodes, with edges that the graph does not have, and drawn from where they are long.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/csc_ref.h"
#include "base/random.h"
#include "dataset/parallel.h"

namespace cohort::dataset {

struct Lists {
  std::vector<int64_t> offsets;  // [nodes + 1], where each list starts
  std::vector<int64_t> sources;  // empty if they are more than wanted
};

// Whose lists are read, and how.
struct ListsCall {
  base::CscRef csc;
  std::span<const int64_t> nodes;  // those from csc.num_nodes on are new, and have no lists there
  std::span<const int64_t> keys;   // [nodes], by which is drawn
  // New edges, at the ends of lists: as each has a new node at one end, it leads into a new node, which has no others,
  // or comes from one, whose number is higher than those of others.
  std::span<const int64_t> new_sources, new_targets;
  int64_t most = -1;  // of longer lists so many edges are drawn; -1: they are taken whole
  uint64_t seed = 0;
  int64_t most_edges = INT64_MAX;  // of all lists together
};

// places[0 .. most) become places in a list of `length` edges, ascending; each set of places is as likely as the others
// (Robert Floyd's algorithm: Bentley and Floyd, Programming Pearls, CACM 30(9), 1987).
inline void draw_places(base::PhiloxKey key, int64_t list_key, int64_t length, std::span<int64_t> places) {
  const auto most = static_cast<int64_t>(places.size());
  for (int64_t i = 0; i < most; ++i) {
    const auto count = static_cast<uint64_t>(length - most + i + 1);
    const uint64_t bits = base::random_64(key, static_cast<uint64_t>(list_key), static_cast<uint64_t>(i));
    const auto place = static_cast<int64_t>(base::multiply_high_64(bits, count));
    const auto chosen = places.first(static_cast<std::size_t>(i));
    const auto above = std::ranges::lower_bound(chosen, place);
    const bool is_taken = above != chosen.end() && *above == place;
    const auto at = is_taken ? chosen.end() : above;  // the last place is above those that can have been chosen
    std::move_backward(at, chosen.end(), places.begin() + i + 1);
    *at = is_taken ? static_cast<int64_t>(count) - 1 : place;
  }
}

inline Lists draw_lists(const ListsCall& call) {
  using Edge = std::pair<int64_t, int64_t>;  // target, source
  constexpr int64_t kListsAtOnce = 128;
  const auto count = static_cast<int64_t>(call.nodes.size());
  std::vector<Edge> edges;
  for (std::size_t e = 0; e < call.new_targets.size(); ++e)
    edges.emplace_back(call.new_targets[e], call.new_sources[e]);
  std::ranges::sort(edges);
  const auto length_of = [&](int64_t node) {
    return node < call.csc.num_nodes ? call.csc.indptr[node + 1] - call.csc.indptr[node] : 0;
  };
  const auto came_to = [&](int64_t node) { return std::ranges::equal_range(edges, node, {}, &Edge::first); };
  Lists lists;
  lists.offsets.resize(call.nodes.size() + 1);
  const auto take_length = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t node = call.nodes[static_cast<std::size_t>(i)];
      const int64_t length = length_of(node) + (edges.empty() ? 0 : std::ssize(came_to(node)));
      lists.offsets[static_cast<std::size_t>(i) + 1] = call.most < 0 ? length : std::min(length, call.most);
    }
  };
  for_chunks(count, {}, take_length, kListsAtOnce);
  for (std::size_t i = 0; i < call.nodes.size(); ++i) lists.offsets[i + 1] += lists.offsets[i];
  if (lists.offsets.back() > call.most_edges) return lists;
  lists.sources.resize(static_cast<std::size_t>(lists.offsets.back()));
  const auto take_sources = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t node = call.nodes[static_cast<std::size_t>(i)], stored = length_of(node);
      const auto came = edges.empty() ? std::ranges::subrange(edges.begin(), edges.begin()) : came_to(node);
      const auto first = static_cast<std::size_t>(lists.offsets[static_cast<std::size_t>(i)]);
      const auto last = static_cast<std::size_t>(lists.offsets[static_cast<std::size_t>(i) + 1]);
      const std::span<int64_t> out{lists.sources.data() + first, last - first};
      if (std::ssize(out) < stored + std::ssize(came)) {
        draw_places(base::key_of(call.seed), call.keys[static_cast<std::size_t>(i)], stored + std::ssize(came), out);
      } else {
        for (std::size_t e = 0; e < out.size(); ++e) out[e] = static_cast<int64_t>(e);
      }
      for (int64_t& place : out) {
        place = place < stored ? call.csc.index(call.csc.indptr[node] + place) : came[place - stored].second;
      }
    }
  };
  for_chunks(count, {}, take_sources, kListsAtOnce);
  return lists;
}

struct Numbered {
  std::vector<int64_t> others;  // nodes that are not among the first ones, each once, as they come
  std::vector<int64_t> places;  // of each node: its place among the first ones, and then the others
};

// Numbers nodes; `first` has each node once.
inline Numbered number_nodes(std::span<const int64_t> first, std::span<const int64_t> nodes) {
  const std::size_t slots = std::bit_ceil(2 * (first.size() + nodes.size()) + 1);
  const int shift = 64 - std::countr_zero(slots);
  std::vector<std::pair<int64_t, int64_t>> table(slots, {-1, 0});  // node, number
  int64_t count = 0;
  const auto number_of = [&](int64_t node) {
    constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: Knuth, TAOCP 3, 6.4
    std::size_t slot = (static_cast<uint64_t>(node) * kGolden) >> shift;
    while (table[slot].first != node && table[slot].first >= 0) slot = (slot + 1) & (slots - 1);
    if (table[slot].first < 0) table[slot] = {node, count++};
    return table[slot].second;
  };
  for (const int64_t node : first) number_of(node);
  Numbered numbered;
  numbered.places.reserve(nodes.size());
  for (const int64_t node : nodes) {
    const int64_t before = count;
    numbered.places.push_back(number_of(node));
    if (count > before) numbered.others.push_back(node);
  }
  return numbered;
}

}  // namespace cohort::dataset
