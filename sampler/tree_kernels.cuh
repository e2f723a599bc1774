// The kernels that draw and relabel disjoint batches. Internal to neighbor_sampler.cu.
#pragma once

#include "sampler/neighbor_kernels.cuh"
#include "sampler/tree_visits.h"

namespace cohort::sampler {
namespace {

__global__ void number_tree_seeds_kernel(const int64_t* n_id, const int32_t* tree, int64_t num_seeds,
                                         TreeVisitsRef visits, int32_t* id_of_visit) {
  for (int64_t i = grid_first(); i < num_seeds; i += grid_step()) {
    visits.put(static_cast<uint64_t>(node_in_tree(tree[i], n_id[i])), static_cast<uint64_t>(i));
    id_of_visit[i] = static_cast<int32_t>(i);
  }
}

// As count_picks_kernel; `lists` become what may be drawn of each.
__global__ void __launch_bounds__(kBlockThreads, kSmThreads / kBlockThreads)
    count_tree_picks_kernel(const __grid_constant__ TopologyRef topology, const int64_t* frontier, int64_t size,
                            Picks how_many, int64_t* picks, DrawnList* lists, unsigned long long* use, TreeLists trees,
                            ExclusionsRef exclusions) {
  UseCounter counter;
  for (int64_t i = grid_first(); i < size; i += grid_step()) {
    const cache::ListRef list = topology.list(frontier[i]);
    const int64_t begin = topology.indptr[frontier[i] - topology.first_target];
    const ExcludedRef excluded = exclusions.of_node(frontier[i]);
    Candidates from{begin, list.degree - excluded.count};
    if (trees.edge_times) {
      const TimeSpan span = span_until(trees.times[trees.tree[i]], trees.window);
      from = candidates_in(trees.edge_times, begin, begin + list.degree, span, trees.draw, how_many, excluded);
    }
    const int64_t drawn = how_many.of(from.count);
    picks[i] = drawn;
    lists[i] = {list.neighbours + (from.first - begin) * topology.index_bytes, from.count};
    trees.first[i] = from.first;
    counter.add(list.tier, drawn);
  }
  if (grid_first() == 0) picks[size] = 0;
  counter.sum_block(topology.index_bytes, use);
}

// As DrawnEdges.
template <bool kEdgeIds>
struct TreeEdges {
  const DrawnList& list;
  int index_bytes;
  int64_t first_source;
  int64_t tree;
  TreeVisitsRef visits;
  uint64_t visit;      // of the first edge
  int64_t* neighbour;  // int64 [picks]
  int64_t first_id;    // of the list's first edge in the graph's indices
  int64_t* e_id;       // int64 [picks]
  ExcludedRef excluded;

  __device__ void put(int64_t at, int64_t position) const {
    position = pass_over(excluded, position);
    const int64_t source = first_source + neighbour_at(list, position, index_bytes);
    neighbour[at] = source;
    if constexpr (kEdgeIds) e_id[at] = first_id + position;
    visits.put(static_cast<uint64_t>(node_in_tree(tree, source)), visit + static_cast<uint64_t>(at));
  }
};

// As draw_kernel; `arrays` without first_visit, `visit` without a generation.
template <bool kEdgeIds>
__global__ void draw_tree_kernel(DrawGraph graph, DrawArrays arrays, int64_t size, DrawKey key, TreeLists trees,
                                 TreeVisitsRef visits) {
  const int lane = threadIdx.x % kWarp;
  for (int64_t i = grid_first() / kWarp; i < size; i += grid_step() / kWarp) {
    const int64_t tree = trees.tree[i], node = node_in_tree(tree, arrays.frontier[i]);
    const int64_t first = arrays.offset[i], picks = arrays.offset[i + 1] - first;
    const DrawnList list = arrays.list[i];
    for (int64_t j = lane; j < picks; j += kWarp) {
      arrays.target[first + j] = arrays.first_target + static_cast<int32_t>(i);
    }
    ExcludedRef excluded = arrays.exclusions.of_node(arrays.frontier[i]);
    if (excluded.count > 0) {
      excluded = excluded.from(trees.first[i] - graph.indptr[arrays.frontier[i] - graph.first_target]);
    }
    const TreeEdges<kEdgeIds> edges{.list = list,
                                    .index_bytes = graph.index_bytes,
                                    .first_source = graph.first_source,
                                    .tree = tree,
                                    .visits = visits,
                                    .visit = arrays.visit + static_cast<uint64_t>(first),
                                    .neighbour = arrays.neighbour + first,
                                    .first_id = trees.first[i],
                                    .e_id = kEdgeIds ? arrays.e_id + first : nullptr,
                                    .excluded = excluded};
    draw_edges(edges, key, node, picks, lane, arrays.position + first);
  }
}

// As find_first_kernel. tree: int32 [num_nodes]; target: int32 [num_edges], visits in it.
__global__ void find_tree_first_kernel(const int64_t* neighbour, const int32_t* target, const int32_t* tree,
                                       int64_t num_edges, TreeVisitsRef visits, uint32_t* first) {
  for (int64_t e = grid_first(); e < num_edges; e += grid_step()) {
    first[e] = static_cast<uint32_t>(visits.find(static_cast<uint64_t>(node_in_tree(tree[target[e]], neighbour[e]))));
  }
}

// The trees of the nodes that a hop has reached first: those of the targets of their edges.
__global__ void name_trees_kernel(const __grid_constant__ HopSources hop, const int32_t* target, int32_t* tree) {
  for (int64_t e = grid_first(); e < hop.num_edges; e += grid_step()) {
    if (hop.reaches_first(e)) tree[hop.source[e]] = tree[target[e]];
  }
}

}  // namespace
}  // namespace cohort::sampler
