// The meaning of "draw neighbours", for the host body and the CUDA body alike.
//
// Of a node with d in-neighbours and fanout k: all d when k < 0 or d <= k, else k different positions of [0, d),
// uniform over the subsets, by Floyd's method (Bentley, Floyd: "A sample of brilliance", CACM 1987): for j = 0 .. k-1
// draw t in [0, d-k+j]; take t, or d-k+j when t is taken already. Positions come out ascending. The number behind pick
// j is Philox(batch key, node, hop, relation, j), so no result depends on threads, order or device.
//
// With replacement, a fanout k >= 0 draws exactly k positions of a list that is not empty, pick j uniformly from [0, d)
// by the same number, and positions come out in the order of the picks.
//
// Layer sampling (LABOR: Balin, Catalyurek: "Layer-neighbor sampling", NeurIPS 2023, arXiv 2210.13339): a node has a
// number in each hop of a batch, the same in all lists that it stands in. Of a list, the k positions with the smallest
// numbers are drawn, and come out ascending. From one list that is a uniform draw, because numbers are independent; but
// lists agree on their picks, so a batch has fewer nodes. A node that stands in a list several times in a row has
// another number each time. With dependent batches (arXiv 2310.12403) a node keeps its number for some batches; nodes
// change theirs in turn, as many after each batch, so each batch has the numbers of an independent one. With dependent
// layers a node has one number in all hops of a batch, so hops agree on their picks, too.
//
// With importance sampling (the same paper's LABOR-1, here with as many picks as its probabilities add up to), the
// number of a node is multiplied by its least degree: that of the shortest list of the hop that it stands in, or the
// fanout. So nodes that a short list is likely to draw are the first choice of long ones, too. From a list of d
// candidates with least degrees m there are drawn k mean(m) mean(1 / m) positions, but at least k and at most d; edges
// have shares of the mean that make up for unequal chances (inverse_chance). Shortest lists, picks and shares follow
// from integers.
//
// Where positions of a list are excluded, d is the number of the others, and a draw of i means the i-th of those d
// (pass_over): the draw is uniform over the subsets of what may be drawn.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "base/search.h"
#include "channel/request.h"

namespace cohort::sampler {

using channel::Draw;

// How many in-neighbours of a node are drawn: of at most `all_up_to` as many as there are, of more `fanout`.
struct Picks {
  int64_t fanout, all_up_to;

  COHORT_HOST_DEVICE constexpr int64_t of(int64_t degree) const { return degree <= all_up_to ? degree : fanout; }
};

COHORT_HOST_DEVICE constexpr Picks picks_of(int64_t fanout, Draw draw = Draw::kUniform) {
  return {fanout, fanout < 0 ? INT64_MAX : draw == Draw::kReplaced ? 0 : fanout};
}

// The random bits behind pick j.
COHORT_HOST_DEVICE constexpr uint64_t draw_bits(base::PhiloxKey batch_key, int64_t node, int hop, int64_t j,
                                                int relation = 0) {
  const uint64_t which =
      (static_cast<uint64_t>(hop) << 48) | (static_cast<uint64_t>(relation) << 40) | static_cast<uint64_t>(j);
  return base::random_64(batch_key, static_cast<uint64_t>(node), which);
}

// The candidate position of pick j out of `picks` for a node of `degree` (Floyd's t).
COHORT_HOST_DEVICE constexpr int64_t draw_candidate(base::PhiloxKey batch_key, int64_t node, int hop, int64_t j,
                                                    int64_t picks, int64_t degree, int relation = 0) {
  return static_cast<int64_t>(base::multiply_high_64(draw_bits(batch_key, node, hop, j, relation),
                                                     static_cast<uint64_t>(degree - picks + j + 1)));
}

// The position of pick j with replacement.
COHORT_HOST_DEVICE constexpr int64_t draw_replaced(base::PhiloxKey batch_key, int64_t node, int hop, int64_t j,
                                                   int64_t degree, int relation = 0) {
  return draw_candidate(batch_key, node, hop, j, j + 1, degree, relation);
}

// The numbers of nodes in one batch of layer sampling.
struct NodeNumbers {
  base::PhiloxKey key{};          // of the epoch
  uint64_t period = 0;            // the batch's step / dependency; GPUs divide slowly
  uint64_t phase = 0;             // its step % dependency
  uint64_t dependency = 0;        // a node keeps its number for so many batches; 0: no layer sampling
  bool layer_dependency = false;  // a node has one number in all hops
  bool importance = false;        // numbers are multiplied by least degrees

  // again: how many times the node stands directly before, in the same list.
  COHORT_HOST_DEVICE constexpr uint64_t of(int64_t node, int hop, int64_t again) const {
    return base::random_64(key, static_cast<uint64_t>(node), which(node, hop, again));
  }
  // The number is random_64(key, node, this).
  COHORT_HOST_DEVICE constexpr uint64_t which(int64_t node, int hop, int64_t again) const {
    constexpr uint64_t kStream = uint64_t{1} << 62;  // apart from other draws
    constexpr int64_t kMostAgain = 0xFFFF;
    constexpr uint64_t kSpread = 0x9E3779B97F4A7C15ull;
    const uint64_t turn = base::multiply_high_64(static_cast<uint64_t>(node) * kSpread, dependency);  // < dependency
    const uint64_t own_period = period + (phase + turn >= dependency ? 1 : 0);
    const auto times = static_cast<uint64_t>(again < kMostAgain ? again : kMostAgain);
    const auto own_hop = static_cast<uint64_t>(layer_dependency ? 0 : hop);
    return kStream | own_hop << 56 | times << 40 | own_period;
  }
};

// Importance sampling of one list: sums over its candidates of their least degrees m, and of 2^32 / m.
struct LeastDegrees {
  static constexpr uint64_t kOne = uint64_t{1} << 32;
  static constexpr int kBits = 24;  // of a least degree: longer lists count as the longest
  uint64_t sum = 0, inverse_sum = 0;

  // What a list of `degree` candidates gives them.
  COHORT_HOST_DEVICE static constexpr uint32_t least_of(int64_t degree, int64_t fanout) {
    constexpr int64_t kMost = (int64_t{1} << kBits) - 1;
    const int64_t least = degree > fanout ? degree : fanout;
    return static_cast<uint32_t>(least < kMost ? least : kMost);
  }
  COHORT_HOST_DEVICE constexpr void add(uint32_t least) {
    sum += least;
    const bool divides = (least & (least - 1)) == 0;  // kOne; GPUs take long for quotients of 64 bits
    inverse_sum += uint64_t{UINT32_MAX / least} + (divides ? 1 : 0);
  }
  // How many of `degree` candidates are drawn. Products and quotients of doubles alone, whose results IEEE 754 tells.
  COHORT_HOST_DEVICE constexpr int64_t picks(int64_t fanout, int64_t degree) const {
    if (degree <= fanout || fanout == 0) return degree <= fanout ? degree : 0;
    const auto count = static_cast<double>(degree);
    const double mean = static_cast<double>(sum) / count;
    const double of_inverses = static_cast<double>(inverse_sum) / static_cast<double>(kOne) / count;
    const auto wanted = static_cast<int64_t>(static_cast<double>(fanout) * mean * of_inverses);
    return wanted < fanout ? fanout : wanted > degree ? degree : wanted;
  }
};

// A node's number times its least degree, in units of 2^-32.
COHORT_HOST_DEVICE constexpr uint64_t times_least(uint64_t number, uint32_t least) {
  return base::multiply_high_64(number, uint64_t{least} << 32);
}

// The inverse chance of an edge to be drawn, in some unit, where `next` is the smallest number that was not drawn, as
// times_least() has it (priority sampling: Duffield, Lund, Thorup, "Priority sampling for estimation of arbitrary
// subset sums", J. ACM 2007). An edge's share of the mean is its part of the sum of these over the drawn edges.
COHORT_HOST_DEVICE constexpr uint64_t inverse_chance(uint64_t next, uint32_t least) {
  const uint64_t own = uint64_t{least} << 32;
  return (own < next ? next : own) >> 16;
}

// Writes the drawn positions of one list: int64 [picks]. For the host body.
inline void draw_positions(Draw draw, base::PhiloxKey key, int64_t node, int hop, int relation, int64_t picks,
                           int64_t degree, int64_t* positions) {
  if (draw == Draw::kReplaced) {
    for (int64_t j = 0; j < picks; ++j) positions[j] = draw_replaced(key, node, hop, j, degree, relation);
    return;
  }
  if (picks == degree) {
    for (int64_t j = 0; j < degree; ++j) positions[j] = j;
    return;
  }
  for (int64_t j = 0; j < picks; ++j) {
    const int64_t candidate = draw_candidate(key, node, hop, j, picks, degree, relation);
    const bool taken = std::find(positions, positions + j, candidate) != positions + j;
    positions[j] = taken ? degree - picks + j : candidate;
  }
  std::sort(positions, positions + picks);
}

// Positions of one list that are not drawn, ascending, each once.
struct ExcludedRef {
  const int64_t* positions = nullptr;  // int64 [count]
  int64_t count = 0;
  int64_t first = 0;  // the position of the list that draws call 0

  COHORT_HOST_DEVICE constexpr bool has(int64_t position) const {
    const int64_t before = base::first_not_before(0, count, [&](int64_t i) { return positions[i] < position; });
    return before < count && positions[before] == position;
  }
  // Of those from `position` on, which draws call 0.
  COHORT_HOST_DEVICE constexpr ExcludedRef from(int64_t position) const {
    const int64_t before = base::first_not_before(0, count, [&](int64_t i) { return positions[i] < position; });
    return {positions + before, count - before, position};
  }
};

// Positions that are not drawn from the lists of a hop, or in disjoint batches from those of some nodes. By default all
// are drawn.
struct ExclusionsRef {
  const int64_t* starts = nullptr;  // int64 [lists + 1], ascending; null: all are drawn
  const int64_t* positions = nullptr;
  const int64_t* nodes = nullptr;  // int64 [lists], ascending: whose lists they are; null: those of the hop in turn
  int64_t num_nodes = 0;

  COHORT_HOST_DEVICE constexpr ExcludedRef of_list(int64_t list) const {
    if (!starts) return {};
    return {positions + starts[list], starts[list + 1] - starts[list]};
  }
  COHORT_HOST_DEVICE constexpr ExcludedRef of_node(int64_t node) const {
    const int64_t list = base::first_not_before(0, num_nodes, [&](int64_t i) { return nodes[i] < node; });
    return list < num_nodes && nodes[list] == node ? of_list(list) : ExcludedRef{};
  }
};

// The position in the whole list of number `position` of those that are not excluded.
COHORT_HOST_DEVICE constexpr int64_t pass_over(const ExcludedRef& excluded, int64_t position) {
  // positions[i] - i others stand before the i-th excluded position, which ascends: so many exclusions stand before
  // the position that is sought as there are i for which that is at most `position`.
  return position + base::first_not_before(0, excluded.count, [&](int64_t i) {
           return excluded.positions[i] - excluded.first - i <= position;
         });
}

// Positions in the lists of one relation that are not drawn: of list i, positions[starts[i] : starts[i + 1]],
// ascending, each once. List i is that of the i-th seed of the relation's target type, in hop 0; of disjoint batches,
// that of node nodes[i], in all hops.
struct Exclusions {
  int relation = 0;
  std::span<const int64_t> starts{};  // int64 [lists + 1]
  std::span<const int64_t> positions{};
  std::span<const int64_t> nodes{};  // int64 [lists], different nodes, ascending; not of disjoint batches: none
};

// How the neighbours of a batch are drawn. Lists with weights (weighted_draw.h) are drawn from by these, in place of
// kUniform.
struct DrawSpec {
  Draw draw = Draw::kUniform;                // kReplaced, kLast: of no lists with weights
  NodeNumbers numbers{};                     // for kUniform alone, without weights and trees
  bool disjoint = false;                     // each seed is the root of a tree (trees.h)
  std::span<const int64_t> times{};          // int64 [num_seeds], of trees: they have no later edges; none: any time
  std::span<const int64_t> windows{};        // int64 [num_relations], with times; below 0, or none: edges of any age
  std::span<const Exclusions> exclusions{};  // of different relations; from the lists of others all is drawn

  int64_t window_of(std::size_t relation) const { return windows.empty() ? -1 : windows[relation]; }

  // From the lists of one relation: a negative fanout takes all edges, and edges without times have no latest ones.
  Draw of(int64_t fanout, bool has_times) const {
    return fanout < 0 || (draw == Draw::kLast && (times.empty() || !has_times)) ? Draw::kUniform : draw;
  }
};

// An integer in [0, bound) for an endpoint of a drawn pair of nodes: number `number` of its batch; end 0 is its source,
// 1 its target.
constexpr int64_t draw_endpoint(base::PhiloxKey batch_key, int64_t number, int end, uint32_t attempt, int64_t bound) {
  constexpr uint64_t kStream = uint64_t{1} << 63;  // apart from the draws of neighbours
  const uint64_t which = kStream | (static_cast<uint64_t>(attempt) << 1) | static_cast<uint64_t>(end);
  return static_cast<int64_t>(
      base::random_below(static_cast<uint64_t>(bound), batch_key, static_cast<uint64_t>(number), which));
}

// The numbers of one batch.
constexpr NodeNumbers node_numbers(uint64_t seed, uint64_t epoch, uint64_t step, uint64_t dependency,
                                   bool layer_dependency = false, bool importance = false) {
  const uint64_t turns = dependency > 0 ? dependency : 1;
  return {base::derive_key(base::key_of(seed), epoch, UINT64_MAX),
          step / turns,
          step % turns,
          dependency,
          layer_dependency,
          importance};
}

// The key of all draws of one batch.
constexpr base::PhiloxKey batch_key(uint64_t seed, uint64_t epoch, uint64_t step) {
  return base::derive_key(base::key_of(seed), epoch, step);
}

}  // namespace cohort::sampler
