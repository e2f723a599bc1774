#include "sampler/batch_writer.h"

#include <algorithm>
#include <array>

#include "base/launch.h"
#include "base/search.h"

namespace cohort::sampler {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

// By ascending first.
template <typename Part>
struct Parts {
  Part only;        // where there is one
  const Part* all;  // in GPU memory, where there are several
  int size;

  // The part that has item `at`.
  __device__ Part of(int64_t at) const {
    if (size <= 1) return only;
    int low = 0, high = size;  // the part is at low or above, and below high
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (all[middle].first <= at) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return all[low];
  }
};

template <typename Part>
void append(std::vector<Part>& parts, const Part& part) {
  if (parts.empty() || !part.goes_on(parts.back())) parts.push_back(part);
}

// What copy_parts() copies of them.
template <typename Part>
std::span<const std::byte> several(const std::vector<Part>& parts) {
  return std::as_bytes(std::span(parts).first(parts.size() > 1 ? parts.size() : 0));
}

// Moves `copied` behind what the parts have there.
template <typename Part>
Parts<Part> of_kernel(const std::vector<Part>& parts, const std::byte*& copied) {
  const Parts<Part> found{parts.empty() ? Part{} : parts[0], reinterpret_cast<const Part*>(copied),
                          static_cast<int>(parts.size())};
  copied += several(parts).size();
  return found;
}

struct NodeArrays {
  const int64_t* n_id;  // int64 [num_nodes]
  const int32_t* tree;  // int32 [num_nodes], where out_tree is wanted
  int64_t num_nodes;
  int64_t* out_n_id;
  int64_t* out_tree;  // null: not wanted
};

template <typename Word>
struct LabelArrays {
  const Word* labels;      // [nodes of the type, width]
  int64_t first_labelled;  // the first node of the type
  int64_t width;
  int64_t count;
  Word* y;  // [count, width]
};

template <typename Word>
__global__ void write_nodes_kernel(Parts<NodePart> parts, NodeArrays nodes, Parts<LabelPart> label_parts,
                                   LabelArrays<Word> labels) {
  const int64_t width = labels.width;
  for (int64_t i = grid_first(); i < max(nodes.num_nodes, labels.count * width); i += grid_step()) {
    const int64_t row = width == 1 ? i : i / width;
    if (row < labels.count) {
      const int64_t node = nodes.n_id[row + label_parts.of(row).to_position] - labels.first_labelled;
      labels.y[i] = labels.labels[node * width + (i - row * width)];
    }
    if (i < nodes.num_nodes) {
      const NodePart part = parts.of(i);
      const int64_t to = i + part.to_slot;
      nodes.out_n_id[to] = nodes.n_id[i] - part.first_of_type;
      if (nodes.out_tree) nodes.out_tree[to] = nodes.tree[i];
    }
  }
}

struct EdgeArrays {
  const int32_t* source;       // int32 [num_local_edges], positions
  const int32_t* target;       // int32 [num_edges]
  const int64_t* e_id;         // int64 [num_edges]
  const int64_t* source_node;  // the same
  const float* share;          // float32 [num_edges], in place of weights; or null
  int64_t num_edges, num_local_edges;
  int64_t* edge_index;       // int64 [2, num_local_edges]
  int64_t* out_e_id;         // int64 [num_edges]; null: not wanted
  int64_t* out_source_node;  // the same
  float* edge_weight;        // float32 [num_edges]; null: not wanted
};

__global__ void write_edges_kernel(Parts<EdgePart> parts, Parts<NodePart> nodes, EdgeArrays edges) {
  for (int64_t e = grid_first(); e < edges.num_edges; e += grid_step()) {
    const EdgePart part = parts.of(e);
    const int64_t to = e + part.to_slot;
    if (e < edges.num_local_edges) {
      const int64_t source = edges.source[e];
      edges.edge_index[to] = source + nodes.of(source).to_local;
      edges.edge_index[edges.num_local_edges + to] = edges.target[e] + part.to_local;
    }
    if (edges.out_source_node) edges.out_source_node[to] = edges.source_node[e];
    if (edges.out_e_id) edges.out_e_id[to] = edges.e_id[e];
    if (edges.edge_weight) {
      edges.edge_weight[to] = edges.share ? edges.share[e] : part.weights ? part.weights[edges.e_id[e]] : 1;
    }
  }
}

// The edges of a part stand by ascending target: each target looks for its first.
__global__ void write_indptr_kernel(Parts<OffsetPart> parts, const int32_t* target, int64_t num_offsets,
                                    int64_t* indptr) {
  for (int64_t i = grid_first(); i < num_offsets; i += grid_step()) {
    const OffsetPart part = parts.of(i);
    const int64_t position = i + part.to_position;
    indptr[i] = part.to_offset +
                base::first_not_before(part.begin, part.end, [=](int64_t edge) { return target[edge] < position; });
  }
}

__global__ void delay_kernel(int64_t ns) {
  uint64_t start = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < static_cast<uint64_t>(ns));
}

__global__ void access_illegally_kernel(int* address) { *address = 1; }

template <typename Word>
void write_nodes(const Parts<NodePart>& parts, const NodeArrays& nodes, const Parts<LabelPart>& label_parts,
                 const LabelsRef& labels, int64_t first_labelled, const SlotArrays& slot, int max_blocks,
                 cudaStream_t stream) {
  const LabelArrays<Word> of_words{reinterpret_cast<const Word*>(labels.rows), first_labelled,
                                   labels.row_bytes / static_cast<int64_t>(sizeof(Word)), slot.y ? slot.num_labels : 0,
                                   reinterpret_cast<Word*>(slot.y)};
  const int64_t threads = std::max(nodes.num_nodes, of_words.count * of_words.width);
  write_nodes_kernel<Word>
      <<<base::grid_for(threads, max_blocks), kBlockThreads, 0, stream>>>(parts, nodes, label_parts, of_words);
  cuda_check(cudaGetLastError(), "launch the writing of nodes");
}

}  // namespace

BatchWriter::BatchWriter(const GraphView& graph) : label_type_(static_cast<std::size_t>(graph.label_type)) {
  for (const NodeRange& type : graph.types) first_of_type_.push_back(type.first);
  for (const Relation& relation : graph.relations) {
    target_type_.push_back(static_cast<std::size_t>(relation.target_type));
  }
}

void BatchWriter::divide_nodes(const SampledRef& batch) {
  const std::size_t num_types = first_of_type_.size();
  nodes_.clear();
  labels_.clear();
  to_position_.clear();
  std::vector<int64_t> in_slot{0}, local_id(num_types, 0);  // of the next node of each type
  for (std::size_t type = 0; type < num_types; ++type) {
    in_slot.push_back(in_slot.back() + batch.num_nodes_of(type, num_types));
  }
  for (std::size_t part = 0; part + 1 < batch.first_node.size(); ++part) {
    const std::size_t type = part % num_types;
    const int64_t first = batch.first_node[part], count = batch.first_node[part + 1] - first;
    const int64_t to_local = local_id[type] - first;
    to_position_.push_back(-to_local);
    if (count == 0) continue;
    append(nodes_, {first, in_slot[type] + to_local, to_local, first_of_type_[type]});
    if (type == label_type_) append(labels_, {local_id[type], -to_local});
    local_id[type] += count;
  }
}

void BatchWriter::divide_edges(const SampledRef& batch, std::span<const float* const> edge_weights) {
  const std::size_t num_types = first_of_type_.size(), num_relations = target_type_.size();
  const std::size_t num_hops = (batch.first_edge.size() - 1) / num_relations;
  edges_.clear();
  offsets_.clear();
  num_offsets_ = 0;
  std::vector<int64_t> in_slot;  // the next edge of each relation
  int64_t first_in_slot = 0;
  for (std::size_t relation = 0; relation < num_relations; ++relation) {
    in_slot.push_back(first_in_slot);
    int64_t offset = 0, targets = 0;
    for (std::size_t hop = 0; hop < num_hops; ++hop) {
      const std::size_t reached = hop * num_types + target_type_[relation], drawn = hop * num_relations + relation;
      const int64_t begin = batch.first_edge[drawn], end = batch.first_edge[drawn + 1];
      const OffsetPart part{num_offsets_ + targets, to_position_[reached] - num_offsets_, begin, end, offset - begin};
      if (hop > 0 && part.goes_on(offsets_.back())) {
        offsets_.back().end = end;
      } else {
        offsets_.push_back(part);
      }
      offset += end - begin;
      targets += batch.first_node[reached + 1] - batch.first_node[reached];
    }
    num_offsets_ += targets + 1;
    first_in_slot += offset;
  }
  for (std::size_t part = 0; part + 1 < batch.first_edge.size(); ++part) {
    const std::size_t relation = part % num_relations;
    const int64_t first = batch.first_edge[part], count = batch.first_edge[part + 1] - first;
    const int64_t to_position = to_position_[part / num_relations * num_types + target_type_[relation]];
    if (count > 0) append(edges_, {first, in_slot[relation] - first, -to_position, edge_weights[relation]});
    in_slot[relation] += count;
  }
}

// Returns the copies.
const std::byte* BatchWriter::copy_parts(cudaStream_t stream) {
  const std::array parts = {several(nodes_), several(labels_), several(edges_), several(offsets_)};
  std::size_t bytes = 0;
  for (const std::span<const std::byte> of_kind : parts) bytes += of_kind.size();
  if (bytes == 0) return nullptr;
  std::byte* const staging = staging_.reserve<std::byte>(bytes).data();
  std::byte* to = staging;
  for (const std::span<const std::byte> of_kind : parts) to = std::ranges::copy(of_kind, to).out;
  std::byte* const on_gpu = on_gpu_.reserve(bytes);
  cuda_check(cudaMemcpyAsync(on_gpu, staging, bytes, cudaMemcpyHostToDevice, stream), "copy the parts of a batch");
  return on_gpu;
}

void BatchWriter::write(const SampledRef& batch, const LabelsRef& labels, std::span<const float* const> edge_weights,
                        const SlotArrays& slot, int max_blocks, cudaStream_t stream) {
  divide_nodes(batch);
  divide_edges(batch, edge_weights);
  const std::byte* copied = copy_parts(stream);
  const Parts<NodePart> nodes = of_kernel(nodes_, copied);
  const Parts<LabelPart> label_parts = of_kernel(labels_, copied);
  const Parts<EdgePart> edges = of_kernel(edges_, copied);
  const Parts<OffsetPart> offsets = of_kernel(offsets_, copied);
  const auto write_nodes_of = labels.row_bytes % 8 == 0   ? write_nodes<uint64_t>
                              : labels.row_bytes % 4 == 0 ? write_nodes<uint32_t>
                                                          : write_nodes<uint8_t>;
  write_nodes_of(nodes, {batch.n_id, batch.tree, batch.num_nodes, slot.n_id, slot.tree}, label_parts, labels,
                 first_of_type_[label_type_], slot, max_blocks, stream);
  write_edges_kernel<<<base::grid_for(batch.num_edges, max_blocks), kBlockThreads, 0, stream>>>(
      edges, nodes,
      {batch.source, batch.target, batch.e_id, batch.source_node, batch.share, batch.num_edges, batch.num_local_edges,
       slot.edge_index, slot.e_id, slot.source_node, slot.edge_weight});
  cuda_check(cudaGetLastError(), "launch the writing of edges");
  if (!slot.indptr) return;
  write_indptr_kernel<<<base::grid_for(num_offsets_, max_blocks), kBlockThreads, 0, stream>>>(
      offsets, batch.target, num_offsets_, slot.indptr);
  cuda_check(cudaGetLastError(), "launch the writing of offsets");
}

void delay(int64_t us, cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(us * 1000);
  cuda_check(cudaGetLastError(), "launch a delay");
}

void access_illegally(cudaStream_t stream) {
  access_illegally_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
  cuda_check(cudaGetLastError(), "launch an illegal access");
}

}  // namespace cohort::sampler
