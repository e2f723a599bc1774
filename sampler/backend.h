// Building one batch: draw, relabel, fetch. Two bodies, bit-identical: host_backend.cc (OpenMP) and cuda_backend.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/csc_ref.h"
#include "base/gpu_stream.h"
#include "base/process.h"
#include "base/random.h"
#include "cache/disk_rows.h"
#include "cache/plan/plan.h"
#include "cache/slab_rows.h"
#include "cache/tiered_rows.h"
#include "channel/slot_size.h"
#include "sampler/draw.h"
#include "sampler/start_log.h"

namespace cohort::cache {
class HostFeatures;
}
namespace cohort::base {
class SharedGpuBytes;
}

namespace cohort::sampler {

class DrawWeights;

// Nodes of one type: a range of the ids of all nodes, with a table of feature rows of their own.
struct NodeRange {
  int64_t first = 0;  // the id of the type's first node
  int64_t count = 0;
  cache::FeatureRows rows{};  // row_bytes 0: the type has no features; raw may be null where encoded is set
};

// Edges from nodes of one type to nodes of another. The lists are those of the target type's nodes, in their order;
// neighbours are counted from the first node of the source type.
struct Relation {
  int source_type = 0;  // in GraphView::types
  int target_type = 0;
  base::CscRef lists{};
  int reverse_of = -1;  // the relation, of GraphView::relations, that it is the reverse of; else as dataset/reverses.h
  const float* edge_weights = nullptr;  // float32 [edges]; null: its edges have none
  const int64_t* edge_times = nullptr;  // int64 [edges], each list's ascend; null: they have none, or not wanted
  std::shared_ptr<const DrawWeights> draw_weights = nullptr;  // null: neighbours are drawn uniformly
  cache::FeatureRows edge_rows{};                             // of its edges; row_bytes 0: none, or not wanted
};

// The graph and its rows in host memory; the owner is the data set, but for rows that are not as it has them.
struct GraphView {
  int64_t num_nodes = 0;                                      // of all types
  int64_t num_edges = 0;                                      // of all relations
  std::vector<NodeRange> types{};                             // [num_types], by ascending first; at least one
  std::vector<Relation> relations{};                          // by ascending source_type; at least one
  int label_type = 0;                                         // the type that has labels
  const std::byte* labels = nullptr;                          // [nodes of the type, label_bytes]
  int64_t label_bytes = 8;                                    // of a node
  bool coded_host_rows = false;                               // encoded rows stay so in host memory
  bool coded_edge_rows = false;                               // those of edges
  bool coded_slab_rows = false;                               // rows are encoded in the slabs of GPUs
  channel::RowsIn rows_in = channel::RowsIn::kSlots;          // of batches; kTable: of a homogeneous graph
  bool with_shares = false;                                   // edge_weight of batches are shares of means (draw.h)
  std::vector<std::shared_ptr<const std::byte[]>> decoded{};  // keeps rows that were decoded when the run began
  // Of a row that the backend fetches: the trainer reads those of a table itself.
  int64_t fetched_row_bytes(const NodeRange& type) const {
    return rows_in == channel::RowsIn::kTable ? 0 : type.rows.row_bytes;
  }
  bool is_homogeneous() const { return types.size() == 1 && relations.size() == 1; }
  bool has_edge_weights() const;  // of any relation, which batches then have
  bool has_edge_times() const;    // of any relation; edges of the others have any time
  bool has_draw_weights() const;  // of any relation; neighbours of the others are drawn uniformly
  bool has_edge_rows() const;     // as has_edge_weights()
  void leave_draw_weights();      // to backends: those on GPUs have copies
};

// Lists as the cache takes them: those of each relation, numbered through.
std::vector<cache::RelationLists> numbered_lists(const GraphView& graph);
// What batches of the graph have in slots.
channel::SlotContents slot_contents(const GraphView& graph, bool edge_ids);

// Which batch.
struct Query {
  std::span<const int64_t> seeds;   // int64 [num_seeds], different nodes; they may repeat where they are disjoint
  std::span<const int32_t> fanout;  // int32 [num_relations, num_hops], entry 0 of each relation next to the seeds
  base::PhiloxKey key{};            // batch_key(seed, epoch, step)
  bool edge_ids = false;            // remember which edges were drawn, for e_id and edge_weight of SlotArrays
  // Of one relation: sources of the last hop get no batch-local ids; source_node says which they are.
  bool last_hop_global = false;
  DrawSpec spec{};  // disjoint: with local ids in all hops

  // Throws Error where it asks for what there is not, of a graph of so many relations: of one type, with edge times,
  // with weights that edges are drawn by.
  void check(std::size_t num_relations, bool is_homogeneous, bool has_times, bool has_weights) const;
};

// How large the batch came out.
struct BatchSizes {
  std::vector<int64_t> nodes_per_hop;  // [num_hops + 1]: seeds, then nodes first reached in each hop
  std::vector<int64_t> edges_per_hop;  // [num_hops]
  int64_t num_nodes = 0;
  int64_t num_edges = 0;
  int64_t num_local_edges = 0;  // whose sources have batch-local ids: all, or all but the last hop's
  base::Span time;              // of drawing and relabelling
  cache::ListUses lists{};      // that neighbours were drawn from
  // The same by type and by relation, of which the above are the sums; empty: a batch without seeds.
  std::vector<std::vector<int64_t>> nodes_of_type;      // [num_types][num_hops + 1]
  std::vector<std::vector<int64_t>> edges_of_relation;  // [num_relations][num_hops]
};

// Where the batch goes: arrays inside a slot, on the backend's device.
//
// n_id has the nodes of type 0, then those of type 1, and so on, each counted from the type's first node; edge_index
// and e_id have the edges of relation 0, then those of relation 1, and so on, with local ids within the type of their
// source or target; indptr has [targets + 1] offsets for each relation, counted from its first edge; y has the labels
// of the first num_labels nodes of the type that has labels.
struct SlotArrays {
  int64_t* n_id = nullptr;         // int64 [num_nodes]
  std::byte* y = nullptr;          // [num_labels, label_bytes], of the first nodes; null: not wanted
  int64_t* edge_index = nullptr;   // int64 [2, num_local_edges]
  int64_t* input_id = nullptr;     // int64, as many as fetch() is given
  std::vector<std::byte*> x{};     // [nodes of the type, row_bytes] for each type; empty: slots have no rows
  int64_t* indptr = nullptr;       // int64, first edge of each target; null: not wanted
  int64_t* e_id = nullptr;         // int64 [num_edges], position in the graph's indices; null: not wanted
  float* edge_weight = nullptr;    // float32 [num_edges], 1 where the relation has no weights; null: not wanted
  int64_t num_labels = 0;          // all nodes, or the seeds alone
  int64_t* source_node = nullptr;  // int64 [num_edges], the node of each edge's source; null: not wanted
  int64_t* tree = nullptr;         // int64 [num_nodes], of a disjoint batch: the tree that each node is in; else null
  std::vector<std::byte*> edge_attr{};  // [edges of the relation, row_bytes] for each relation; empty: not wanted
  // Where rows are in pools:
  int64_t* row_index = nullptr;  // int64 [num_nodes], of each node's row in the pool of its type
  uint64_t number = 0;           // of the batch, in the order of batches of this backend
  uint64_t oldest_in_use = 0;    // of the batches before: rows of this one and later ones stay
  bool poison = false;           // rows are filled with 0xFF before they are written

  bool plane_a = false;  // rows of codec planes come as plane A alone tells them; not where they are in a table

  std::byte* x_of(std::size_t type) const { return x.empty() ? nullptr : x[type]; }
};

// What it took to write a batch into its slot.
struct FetchUse {
  base::Span time;
  cache::TierUses rows{};
  cache::TierUse edge_rows{};  // all from host memory
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Called by the thread that will use the backend, before anything else: makes its GPU the thread's.
  virtual void enter_thread() {}

  // Kernels run on the first so many SMs of the GPU (as base::SmPartition has them), or, with 0, on all. Not while
  // anything runs.
  virtual void use_sms(int) {}

  // Draws and relabels; the result stays in the backend until fetch(), or the next call. Seeds come first, then nodes
  // in order of first occurrence among the drawn edges; edges are ordered by hop, relation, target, and position in the
  // target's neighbours. A node is expanded once, by all relations into its type, in the hop after it was reached.
  virtual BatchSizes sample(const Query& query) = 0;

  // So many fetches may be under way at once. Above 1, another thread (after enter_thread()) may sample the next batch
  // as soon as fetch() has returned.
  virtual std::size_t most_fetches() const { return 1; }

  // Puts `order` (which makes a stream wait for the slot's last readers) before the next fetch. Nothing to do on the
  // CPU.
  virtual void before_fetch(const std::function<void(base::GpuStream stream)>& order) = 0;

  // Fills memory of the slot with a byte; ordered before fetch().
  virtual void fill(std::byte* data, std::size_t bytes, int value) = 0;

  // Starts writing the sampled batch into the slot. On a GPU this is asynchronous. To be followed by one fetched().
  virtual void fetch(const SlotArrays& slot, std::span<const int64_t> input_id) = 0;

  // True once everything started by the oldest fetch() that fetched() has not told of is in its slot.
  virtual bool finished() = 0;

  // What that one took, once it is finished, from when it, or else the one before it, had ended.
  virtual FetchUse fetched() = 0;

  // The table of all feature rows in the memory of the backend's GPU, where it has one.
  virtual const base::SharedGpuBytes* all_rows() const { return nullptr; }

  // Where rows are in pools: how many that of a node type has room for now, and at most.
  virtual int64_t pool_rows(std::size_t /*type*/) const { return 0; }
  virtual int64_t most_pool_rows(std::size_t /*type*/) const { return 0; }
  // What pools should take altogether, if they have room for two batches with that; no less before pools have grown.
  virtual double most_pool_bytes() { return std::numeric_limits<double>::infinity(); }
  // Gives the pool of a node type room for `preferred` rows, where there is memory for them, else for `needed`; not
  // between fetch() and fetched(). Returns the memory that came, behind what was there. Throws Error naming need and
  // supply.
  virtual const base::SharedGpuBytes* grow_pool(std::size_t /*type*/, int64_t /*needed*/, int64_t /*preferred*/) {
    return nullptr;
  }
};

// Deliberate faults and delays, for tests.
struct Faults {
  int64_t slow_fetch_us = 0;          // delay each fetch by up to this many microseconds, at random
  int64_t illegal_access_batch = -1;  // GPU: make an illegal access while fetching this batch (counted from 0)
};

// A node type's rows, some of which are far (cache/far_rows.h).
struct FarTable {
  std::shared_ptr<const cache::FarRows> rows;     // null: the type has no features
  cache::RowBits in_memory;                       // the rows that host memory has room for
  std::shared_ptr<const cache::DiskRows> disk{};  // null: no row is read from there
};

// rows of each node type, some of which are far (null: the type has no features), and how many batches are
// fetched at once.
struct TieredTables {
  std::vector<std::shared_ptr<const cache::TieredRows>> of_types;
  std::size_t ahead = 1;
};

// `tiered`: without tables all rows are where `graph` says.
std::unique_ptr<Backend> make_host_backend(const GraphView& graph, const Faults& faults, TieredTables tiered = {});

enum class TopologyMemory { kAuto, kGpu, kHost };

// Whether the whole topology is to lie in the memory of each of `gpus` (CUDA ordinals): as `memory` says, or, for
// kAuto, when it takes at most half of what `cache_bytes` leave free on each. Throws Error when it must and does not
// fit.
bool topology_lies_in_gpus(const GraphView& graph, std::span<const int> gpus, TopologyMemory memory,
                           int64_t cache_bytes);

// How GPUs read what they do not have.
struct CudaSettings {
  bool topology_in_gpus = true;
  int fetch_sms = 0;            // that read feature rows; 0: a default
  bool order_host_rows = true;  // by address
  bool reuse_rows = false;      // of batches before, in pools
  double pool_share = 1;        // of the memory that is free before the first batch, which pools may take
  int num_slots = 4;            // a pool may come to have the rows of as many batches
  double host_bytes_per_second = 51e9;
  int ahead = 1;              // with far rows: batches that are fetched at once
  int64_t staging_bytes = 0;  // of page-locked memory, for each table and GPU
};

// What the GPUs keep of rows and lists; no plan: nothing.
struct CacheContents {
  std::shared_future<cache::Plan> plan;     // of as many GPUs as there are backends; it may be made meanwhile
  std::span<const cache::SlabRows> rows{};  // of each node type
  std::span<const FarTable> far_tables{};   // the same; none: all rows are in host memory
  // Called with the rows of each node type once they are in host memory.
  std::function<void(const std::vector<std::shared_ptr<const cache::HostFeatures>>&)> on_host{};
};

// One backend for each of `gpus` (CUDA ordinals). Copies features (and topology that is not in the GPUs) into host
// memory that they share, labels into the memory of each GPU. Throws Error naming need and supply before anything large
// is allocated.
std::vector<std::unique_ptr<Backend>> make_cuda_backends(const GraphView& graph, std::span<const int> gpus,
                                                         const CudaSettings& settings, const CacheContents& contents,
                                                         const Faults& faults, const StartLog& log = {});

}  // namespace cohort::sampler
