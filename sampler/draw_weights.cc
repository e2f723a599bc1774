#include "sampler/draw_weights.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "base/host_memory.h"
#include "cache/plan/hotness.h"

namespace cohort::sampler {
namespace {

constexpr int64_t kListsAtOnce = 1024;
constexpr std::size_t kHashedEdges = std::size_t{1} << 20;

// The first edge whose weight is negative or not finite; num_edges: none.
int64_t first_bad(const float* weights, int64_t num_edges) {
  int64_t first = num_edges;
#pragma omp parallel for schedule(static) reduction(min : first)
  for (int64_t edge = 0; edge < num_edges; ++edge) {
    if (!(weights[edge] >= 0 && std::isfinite(weights[edge]))) first = std::min(first, edge);
  }
  return first;
}

// Fills cumulative[begin, end) of one list; returns how many weights are positive.
uint32_t share_mass(const float* weights, int64_t begin, int64_t end, uint32_t* cumulative) {
  double total = 0;
  int64_t positive = 0;
  for (int64_t edge = begin; edge < end; ++edge) {
    total += weights[edge];
    positive += weights[edge] > 0 ? 1 : 0;
  }
  double sum = 0;
  int64_t before = 0, left = positive;
  for (int64_t edge = begin; edge < end; ++edge) {
    if (weights[edge] > 0) {
      sum += weights[edge];
      --left;  // each of these needs a unit, too
      const auto share = static_cast<int64_t>(kListMass * (sum / total));
      before = std::clamp(share, before + 1, static_cast<int64_t>(kListMass) - left);
    }
    cumulative[edge] = static_cast<uint32_t>(before);
  }
  return static_cast<uint32_t>(positive);
}

// Fills by_weight[begin, end) of one list.
void order_by_weight(const float* weights, int64_t begin, int64_t end, uint32_t* by_weight) {
  std::iota(by_weight + begin, by_weight + end, 0u);
  std::sort(by_weight + begin, by_weight + end, [of_list = weights + begin](uint32_t a, uint32_t b) {
    return of_list[a] > of_list[b] || (of_list[a] == of_list[b] && a < b);
  });
}

// The position that has the unit: so many edges end at or before it. A short list is counted, a long one is halved
// before; neither has branches that depend on the unit.
int64_t position_with(const ListMass& list, uint32_t unit) {
  constexpr int64_t kCounted = 32;
  const uint32_t* first = list.cumulative;
  int64_t size = list.degree;
  while (size > kCounted) {
    const int64_t half = size / 2;
    first += first[half - 1] <= unit ? half : 0;
    size -= half;
  }
  int64_t before = first - list.cumulative;
  for (int64_t i = 0; i < size; ++i) before += first[i] <= unit ? 1 : 0;
  return before;
}

// All edges of positive weight that are not excluded.
void take_all(const WeightedDraw& draw, int64_t* positions) {
  for (int64_t position = 0; position < draw.list.degree; ++position) {
    if (draw.list.units(position) > 0 && !draw.excluded.has(position)) *positions++ = position;
  }
}

}  // namespace

int64_t DrawWeights::bytes_of(const base::CscRef& lists) {
  return (lists.num_edges + lists.num_nodes) * static_cast<int64_t>(sizeof(uint32_t));
}

DrawWeights::DrawWeights(const base::CscRef& lists, const float* weights, const std::string& place, bool top) {
  if (const int64_t edge = first_bad(weights, lists.num_edges); edge < lists.num_edges) {
    throw base::Error({place, "weights that are finite and at least 0, to draw edges by them",
                       base::format("{} of edge {}", weights[edge], edge),
                       "leave weight_attr out, or import other weights"});
  }
  base::demand_bytes(bytes_of(lists), base::available_host_bytes(), "host memory", " to draw edges by weight",
                     "use a machine with more memory, or leave weight_attr out");
  of_edges_.resize(static_cast<std::size_t>(lists.num_edges));
  if (!top) positive_.resize(static_cast<std::size_t>(lists.num_nodes));
  std::atomic<int64_t> too_long = -1;
#pragma omp parallel for schedule(dynamic, kListsAtOnce)
  for (int64_t node = 0; node < lists.num_nodes; ++node) {
    const int64_t begin = lists.indptr[node], end = lists.indptr[node + 1];
    if (end - begin > kListMass) {
      too_long = node;
    } else if (top) {
      order_by_weight(weights, begin, end, of_edges_.data());
    } else {
      positive_[static_cast<std::size_t>(node)] = share_mass(weights, begin, end, of_edges_.data());
    }
  }
  if (too_long < 0) return;
  throw base::Error({place, base::format("at most {} in-neighbours of a node, to draw edges by weight", kListMass),
                     base::format("more of node {}", too_long.load()), "leave weight_attr out"});
}

uint64_t DrawWeights::hash(uint64_t before) const {
  const std::size_t count = std::min(of_edges_.size(), kHashedEdges);
  std::vector<int64_t> sample;
  for (std::size_t i = 0; i < count; ++i) sample.push_back(of_edges_[of_edges_.size() / count * i]);
  return cache::hash_words(sample, before);
}

int64_t position_of(const ListMass& list, uint32_t t, std::span<const TakenRange> taken) {
  for (const TakenRange& each : taken) {
    if (t < each.begin) break;
    t += each.end - each.begin;
  }
  return position_with(list, t);
}

void draw_weighted(const WeightedDraw& draw, int64_t picks, int64_t* positions) {
  if (!draw.weights.positive) {
    for (int64_t j = 0; j < picks; ++j) positions[j] = draw_top(draw.list.cumulative, draw.excluded, j);
    return;
  }
  if (picks == draw.drawable) return take_all(draw, positions);
  thread_local std::vector<TakenRange> taken;
  taken.clear();
  uint32_t left = kListMass;
  for (int64_t i = 0; i < draw.excluded.count; ++i) {
    const int64_t position = draw.excluded.positions[i];
    taken.push_back({draw.list.begin(position), draw.list.cumulative[position]});
    left -= draw.list.units(position);
  }
  for (int64_t j = 0; j < picks; ++j) {
    const uint64_t bits = draw_bits(draw.key, draw.node, draw.hop, j, draw.relation);
    const int64_t position = position_of(draw.list, draw_unit(bits, left), taken);
    const TakenRange mine{draw.list.begin(position), draw.list.cumulative[position]};
    taken.insert(std::ranges::upper_bound(taken, mine.begin, {}, &TakenRange::begin), mine);
    left -= mine.end - mine.begin;
    positions[j] = position;
  }
  std::sort(positions, positions + picks);
}

}  // namespace cohort::sampler
