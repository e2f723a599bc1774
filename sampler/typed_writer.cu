#include "sampler/typed_writer.h"

#include <cstring>
#include <span>

#include "base/check.h"
#include "base/launch.h"
#include "base/search.h"
#include "sampler/batch_writer.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

// In GPU memory, by ascending first.
template <typename Part>
struct Parts {
  const Part* begin;
  int size;

  // The part that has item `at`: of parts that begin there, the last, which is not empty.
  __device__ const Part& of(int64_t at) const {
    int low = 0, high = size;  // the part is at low or above, and below high
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (begin[middle].first <= at) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return begin[low];
  }
};

// tree: int32 [num_nodes], where out_tree is wanted.
__global__ void write_typed_nodes_kernel(Parts<NodePart> parts, const int64_t* n_id, const int32_t* tree,
                                         int64_t num_nodes, int64_t* out_n_id, int64_t* out_tree) {
  for (int64_t i = grid_first(); i < num_nodes; i += grid_step()) {
    const NodePart& part = parts.of(i);
    const int64_t to = part.place + i - part.first;
    out_n_id[to] = n_id[i] - part.first_of_type;
    if (out_tree) out_tree[to] = tree[i];
  }
}

struct TypedEdges {
  const int32_t* source;  // int32 [num_edges], places in SampledRef::n_id
  const int32_t* target;
  const int64_t* e_id;  // int64 [num_edges]
  int64_t num_edges;
  int64_t* edge_index;  // int64 [2, num_edges]
  int64_t* out_e_id;    // int64 [num_edges]; null: not wanted
  float* edge_weight;   // float32 [num_edges]; null: not wanted
};

__global__ void write_typed_edges_kernel(Parts<EdgePart> parts, Parts<NodePart> nodes, TypedEdges edges) {
  for (int64_t e = grid_first(); e < edges.num_edges; e += grid_step()) {
    const EdgePart& part = parts.of(e);
    const int64_t to = part.place + e - part.first, source = edges.source[e];
    const NodePart& reached = nodes.of(source);
    edges.edge_index[to] = reached.local_id + source - reached.first;
    edges.edge_index[edges.num_edges + to] = edges.target[e] - part.before_local;
    if (edges.out_e_id) edges.out_e_id[to] = edges.e_id[e];
    if (edges.edge_weight) edges.edge_weight[to] = part.weights ? part.weights[edges.e_id[e]] : 1;
  }
}

// target: int64 [num_edges], the slot's; those of a relation ascend.
__global__ void write_typed_indptr_kernel(Parts<OffsetPart> parts, const int64_t* target, int64_t num_offsets,
                                          int64_t* indptr) {
  for (int64_t i = grid_first(); i < num_offsets; i += grid_step()) {
    const OffsetPart& part = parts.of(i);
    const int64_t* targets = target + part.edge;
    indptr[i] = base::first_not_before(0, part.num_edges, [&](int64_t e) { return targets[e] < i - part.first; });
  }
}

void check_launch() { cuda_check(cudaGetLastError(), "launch the writing of a typed batch"); }

}  // namespace

TypedWriter::TypedWriter(const GraphView& graph) : label_type_(static_cast<std::size_t>(graph.label_type)) {
  for (const NodeRange& type : graph.types) first_of_type_.push_back(type.first);
  for (const Relation& relation : graph.relations) {
    target_type_.push_back(static_cast<std::size_t>(relation.target_type));
  }
}

void TypedWriter::divide(const SampledRef& batch, std::span<const float* const> edge_weights) {
  const std::size_t num_types = first_of_type_.size(), num_relations = target_type_.size();
  const std::size_t num_hops = (batch.first_edge.size() - 1) / num_relations;
  nodes_.clear();
  edges_.clear();
  offsets_.clear();
  std::vector<int64_t> place, local_id(num_types, 0), targets(num_types, 0);
  int64_t nodes = 0;
  for (std::size_t type = 0; type < num_types; ++type) {
    place.push_back(nodes);
    nodes += batch.num_nodes_of(type, num_types);
  }
  first_labelled_ = place[label_type_];
  for (std::size_t part = 0; part + 1 < batch.first_node.size(); ++part) {
    const std::size_t type = part % num_types;
    if (part / num_types == num_hops) targets[type] = local_id[type];
    nodes_.push_back({batch.first_node[part], place[type] + local_id[type], local_id[type], first_of_type_[type]});
    local_id[type] += batch.first_node[part + 1] - batch.first_node[part];
  }
  num_offsets_ = 0;
  int64_t edge = 0;
  edges_.resize(num_hops * num_relations);
  for (std::size_t relation = 0; relation < num_relations; ++relation) {
    const int64_t first = edge;
    for (std::size_t hop = 0; hop < num_hops; ++hop) {
      const std::size_t part = hop * num_relations + relation;
      const NodePart& frontier = nodes_[hop * num_types + target_type_[relation]];
      edges_[part] = {batch.first_edge[part], edge, frontier.first - frontier.local_id, edge_weights[relation]};
      edge += batch.first_edge[part + 1] - batch.first_edge[part];
    }
    offsets_.push_back({num_offsets_, first, edge - first});
    num_offsets_ += targets[target_type_[relation]] + 1;
  }
}

void TypedWriter::write(const SampledRef& batch, const LabelsRef& labels, std::span<const float* const> edge_weights,
                        const SlotArrays& slot, int max_blocks, cudaStream_t stream) {
  divide(batch, edge_weights);
  const auto nodes = std::as_bytes(std::span(nodes_)), edges = std::as_bytes(std::span(edges_)),
             offsets = std::as_bytes(std::span(offsets_));
  const std::size_t bytes = nodes.size() + edges.size() + offsets.size();
  std::byte* const staging = staging_.reserve<std::byte>(bytes).data();
  std::memcpy(staging, nodes.data(), nodes.size());
  std::memcpy(staging + nodes.size(), edges.data(), edges.size());
  std::memcpy(staging + nodes.size() + edges.size(), offsets.data(), offsets.size());
  const std::byte* parts = on_gpu_.reserve(bytes);
  cuda_check(cudaMemcpyAsync(on_gpu_.data(), staging, bytes, cudaMemcpyHostToDevice, stream),
             "copy the parts of a batch");
  const Parts<NodePart> node_parts{reinterpret_cast<const NodePart*>(parts), static_cast<int>(nodes_.size())};
  const Parts<EdgePart> edge_parts{reinterpret_cast<const EdgePart*>(parts + nodes.size()),
                                   static_cast<int>(edges_.size())};
  const Parts<OffsetPart> offset_parts{reinterpret_cast<const OffsetPart*>(parts + nodes.size() + edges.size()),
                                       static_cast<int>(offsets_.size())};
  write_typed_nodes_kernel<<<base::grid_for(batch.num_nodes, max_blocks), kBlockThreads, 0, stream>>>(
      node_parts, batch.n_id, batch.tree, batch.num_nodes, slot.n_id, slot.tree);
  check_launch();
  write_labels(slot.n_id + first_labelled_, labels, slot, max_blocks, stream);
  write_typed_edges_kernel<<<base::grid_for(batch.num_edges, max_blocks), kBlockThreads, 0, stream>>>(
      edge_parts, node_parts,
      {batch.source, batch.target, batch.e_id, batch.num_edges, slot.edge_index, slot.e_id, slot.edge_weight});
  check_launch();
  if (!slot.indptr) return;
  write_typed_indptr_kernel<<<base::grid_for(num_offsets_, max_blocks), kBlockThreads, 0, stream>>>(
      offset_parts, slot.edge_index + batch.num_edges, num_offsets_, slot.indptr);
  check_launch();
}

}  // namespace cohort::sampler
