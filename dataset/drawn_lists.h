// Lists of in-neighbours of any nodes, with edges that the graph does not have, and drawn from where they are long.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
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
  std::vector<int64_t>
      places;  // [sources]: of an edge among those of the graph; of the i-th new one, csc.num_edges + i
};

// Whose lists are read, and how.
struct ListsCall {
  base::CscRef csc;
  std::span<const int64_t> nodes;  // those from csc.num_nodes on are new, and have no lists there
  std::span<const int64_t> keys;   // [nodes], by which is drawn
  // New edges. As each has a new node at one end, it leads into a new node, which has no others, or comes from one,
  // whose number is higher than those of others.
  std::span<const int64_t> new_sources, new_targets;
  std::span<const int64_t> times = {};      // [csc.num_edges], by which lists ascend; empty: lists ascend by source
  std::span<const int64_t> new_times = {};  // [new_sources], if there are times
  bool are_numbered = false;                // new edges of equal times stay in their order, whatever their sources
  int64_t oldest = INT64_MIN, latest = INT64_MAX;  // the first and the last time that edges in lists may have
  int64_t most = -1;                               // of longer lists so many edges are drawn; -1: they are taken whole
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

// The lists of a graph with new edges, in the order that a data set of all would have.
class GrownLists {
 public:
  struct NewEdge {
    int64_t target, time, source, number;
    auto operator<=>(const NewEdge&) const = default;
  };
  // A list: edges [first, last) of the graph, and new ones.
  struct List {
    int64_t first, last;
    std::span<const NewEdge> came;
    int64_t length() const { return last - first + std::ssize(came); }
  };

  explicit GrownLists(const ListsCall& call) : call_(call) {
    for (std::size_t e = 0; e < call.new_targets.size(); ++e) {
      const int64_t time = is_timed() ? call.new_times[e] : 0;
      if (time < call.oldest || time > call.latest) continue;
      const int64_t order = is_timed() && call.are_numbered ? 0 : call.new_sources[e];
      came_.push_back({call.new_targets[e], time, order, static_cast<int64_t>(e)});
    }
    std::ranges::sort(came_);
  }

  List of(int64_t node) const {
    const base::CscRef& csc = call_.csc;
    List list{0, 0, {}};
    if (node < csc.num_nodes) {
      list = {csc.indptr[node], csc.indptr[node + 1], {}};
      if (is_timed()) {
        const auto times =
            call_.times.subspan(static_cast<std::size_t>(list.first), static_cast<std::size_t>(list.last - list.first));
        list.last = list.first + (std::ranges::upper_bound(times, call_.latest) - times.begin());
        list.first += std::ranges::lower_bound(times, call_.oldest) - times.begin();
        list.last = std::max(list.first, list.last);
      }
    }
    if (!came_.empty()) {
      const auto came = std::ranges::equal_range(came_, node, {}, &NewEdge::target);
      list.came = {came.begin(), came.end()};
    }
    return list;
  }

  // Makes places in a list those of its edges.
  void resolve(const List& list, std::span<int64_t> places) const {
    const int64_t stored = list.last - list.first;
    if (!is_timed() || list.came.empty() || stored == 0) {
      for (int64_t& place : places)
        place = place < stored ? list.first + place : new_place(list.came[static_cast<std::size_t>(place - stored)]);
      return;
    }
    std::vector<int64_t> merged;  // by time; of equal times those of the graph come first
    int64_t next = list.first;
    for (const NewEdge& edge : list.came) {
      while (next < list.last && call_.times[static_cast<std::size_t>(next)] <= edge.time) merged.push_back(next++);
      merged.push_back(new_place(edge));
    }
    while (next < list.last) merged.push_back(next++);
    for (int64_t& place : places) place = merged[static_cast<std::size_t>(place)];
  }

  int64_t source_at(int64_t place) const {
    const int64_t stored = call_.csc.num_edges;
    return place < stored ? call_.csc.index(place) : call_.new_sources[static_cast<std::size_t>(place - stored)];
  }

 private:
  bool is_timed() const { return !call_.times.empty() || !call_.new_times.empty(); }
  int64_t new_place(const NewEdge& edge) const { return call_.csc.num_edges + edge.number; }

  const ListsCall& call_;
  std::vector<NewEdge> came_;
};

inline Lists draw_lists(const ListsCall& call) {
  constexpr int64_t kListsAtOnce = 128;
  const auto count = static_cast<int64_t>(call.nodes.size());
  const GrownLists grown(call);
  Lists lists;
  lists.offsets.resize(call.nodes.size() + 1);
  const auto take_length = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t length = grown.of(call.nodes[static_cast<std::size_t>(i)]).length();
      lists.offsets[static_cast<std::size_t>(i) + 1] = call.most < 0 ? length : std::min(length, call.most);
    }
  };
  for_chunks(count, {}, take_length, kListsAtOnce);
  for (std::size_t i = 0; i < call.nodes.size(); ++i) lists.offsets[i + 1] += lists.offsets[i];
  if (lists.offsets.back() > call.most_edges) return lists;
  lists.sources.resize(static_cast<std::size_t>(lists.offsets.back()));
  lists.places.resize(lists.sources.size());
  const auto take_sources = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto list = grown.of(call.nodes[static_cast<std::size_t>(i)]);
      const auto first = static_cast<std::size_t>(lists.offsets[static_cast<std::size_t>(i)]);
      const auto last = static_cast<std::size_t>(lists.offsets[static_cast<std::size_t>(i) + 1]);
      const std::span<int64_t> out{lists.places.data() + first, last - first};
      if (std::ssize(out) < list.length()) {
        draw_places(base::key_of(call.seed), call.keys[static_cast<std::size_t>(i)], list.length(), out);
      } else {
        for (std::size_t e = 0; e < out.size(); ++e) out[e] = static_cast<int64_t>(e);
      }
      grown.resolve(list, out);
      for (std::size_t e = 0; e < out.size(); ++e) lists.sources[first + e] = grown.source_at(out[e]);
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
