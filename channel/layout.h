// Every byte that sampler and trainer share. Only C++ knows of them; Python asks for the size of a slot (slot_size.h).
//
// A channel is a folder in shared memory: the file `channel` holds one ChannelHeader; on the CPU each slot's memory is
// a file `slot-<index>-<generation>` beside it, on a GPU its descriptor goes through a socket there.
// The file `channel` exists only when all in it is in place: it is built as `channel.tmp` and renamed.
#pragma once

#include <semaphore.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>

#include "base/process.h"
#include "base/tier_use.h"
#include "channel/request.h"

namespace cohort::channel {

constexpr uint64_t kMagic = 0x4C4E4843'54524843ull;  // "CHRTCHNL" as little-endian bytes
constexpr uint32_t kVersion = 23;
constexpr int kMaxSlots = 64;
constexpr int kMaxTypes = 32;    // of nodes
constexpr int kMaxRequests = 8;  // requests posted and not yet begun
constexpr int kErrorBytes = 2048;
constexpr int kMaxRowPieces = 64;  // of the memory of the rows of one type that batches name

enum class DeviceKind : uint32_t { kCpu = 0, kCuda = 1 };

// What a process is doing; the last one it reached tells who stopped where. Names: stage_name in inspect.h.
enum class Stage : uint32_t {
  kNone = 0,
  kStarting,
  kLoading,
  kIdle,       // sampler: no request; trainer: between passes
  kWaitSlot,   // sampler: all slots are in use
  kSampling,   // sampler
  kFetching,   // sampler
  kWaitBatch,  // trainer: nothing is ready
  kTraining,   // trainer: has a batch
  kEnded,
};

// Where the rows of batches are: each in its slot; in a table of all rows, that of node i in row i; or in pools of rows
// of recent batches in GPU memory, one for each node type. Of the last two, batches name rows.
enum class RowsIn : uint32_t { kSlots = 0, kTable, kPool };

enum class SlotState : uint32_t { kFree = 0, kFilling, kReady, kHeld };

// One of the two processes.
struct Party {
  std::atomic<int32_t> pid;  // 0: not there yet
  std::atomic<uint32_t> stage;
  std::atomic<uint64_t> start_time;     // of the process, see base/process.h
  std::atomic<uint64_t> stage_batch;    // sequence number of the batch the stage concerns
  std::atomic<int64_t> stage_since_us;  // monotonic clock
  std::atomic<int64_t> failed_at_us;    // 0: it has not failed; the stage stays the one it failed in
  char error[kErrorBytes];              // why, written before failed_at_us
};

// How many there is room for where there are `count`: at most 1/32 more, so that batches of about one size have one
// shape.
constexpr int64_t padded(int64_t count) {
  const int64_t unit = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count)) / 32);
  return unit > 1 ? (count + unit - 1) / unit * unit : count;
}

// Nodes of one type in a batch.
struct BatchNodes {
  int64_t per_hop[kMaxHops + 1];  // [0]: seeds, then nodes first reached in each hop
  uint64_t x_offset;              // feature dtype [nodes, feature_dim], where the header says RowsIn::kSlots
};

// Edges of one relation in a batch.
struct BatchEdges {
  int64_t per_hop[kMaxHops];
  uint64_t edge_attr_offset;  // feature dtype [edges, feature_dim], where the relation has an edge table
};

// What is in a slot. Offsets are bytes from the slot's start, each a multiple of 256.
//
// Arrays of nodes have one part for each node type, in the order of types; arrays of edges and indptr have one for each
// relation. Ids are those of a type, batch-local ids count the nodes of a type in the batch.
struct Batch {
  uint64_t sequence;  // counts published batches from 0; also the order in which the trainer takes them
  uint64_t pass;
  uint64_t step;
  uint64_t num_steps;
  int64_t num_nodes;        // of all types
  int64_t num_edges;        // of all relations
  int64_t num_local_edges;  // whose sources have batch-local ids: all, or all but those of the last hop
  int64_t num_seeds;
  int64_t num_pairs;      // whose endpoints the seeds are; 0: the seeds are nodes
  int64_t num_endpoints;  // of pairs: sources, then targets
  int64_t num_labels;     // of y: all nodes of the header's label_type, or the seeds among them
  int32_t num_hops;
  uint32_t last_hop_global;   // 1: nodes that only the last hop reaches are none of the batch's; there is one relation
  uint32_t disjoint;          // 1: it has trees
  uint64_t n_id_offset;       // int64 [num_nodes]
  uint64_t row_index_offset;  // int64 [num_nodes], the row of each node in the table or the pool of its type
  // int64 [num_inputs() + num_endpoints], positions in the seed set, then the batch-local ids of endpoints.
  uint64_t input_id_offset;
  uint64_t y_offset;            // label_dtype [num_labels], or [num_labels, label_width]
  uint64_t edge_index_offset;   // int64 [2, num_local_edges], row 0 source, row 1 target, batch-local
  uint64_t source_node_offset;  // int64 [num_edges], the node of each edge's source, where last_hop_global
  uint64_t indptr_offset;       // int64 [num_targets() + 1] for each relation: the first edge of each target
  // Where the header has with_e_id, int64 [num_edges]: position of each edge in the data set's indices.
  uint64_t e_id_offset;
  uint64_t edge_weight_offset;  // float32 [num_edges], where the header has with_edge_weight
  uint64_t tree_offset;         // int64 [num_nodes], the tree of each node, where disjoint: number of its seed
  base::Span sample;            // when the sampler drew and relabelled it
  base::Span fetch;             // when it wrote the slot
  base::TierUses row_tiers;
  base::ListUses list_tiers;
  base::TierUse edge_rows;          // of edges, all in host memory
  BatchNodes nodes[kMaxTypes];      // [num_types]
  BatchEdges edges[kMaxRelations];  // [num_relations]
};

// Members of the seed set.
inline int64_t num_inputs(const Batch& batch) { return batch.num_pairs > 0 ? batch.num_pairs : batch.num_seeds; }

// Nodes of a type.
inline int64_t nodes_of(const Batch& batch, std::size_t type) {
  const int64_t* per_hop = batch.nodes[type].per_hop;
  return std::accumulate(per_hop, per_hop + batch.num_hops + 1, int64_t{0});
}

// Nodes of a type that are targets of edges: all but those that the last hop reaches.
inline int64_t num_targets(const Batch& batch, std::size_t type) {
  return nodes_of(batch, type) - batch.nodes[type].per_hop[batch.num_hops];
}

// Edges of a relation.
inline int64_t edges_of(const Batch& batch, std::size_t relation) {
  const int64_t* per_hop = batch.edges[relation].per_hop;
  return std::accumulate(per_hop, per_hop + batch.num_hops, int64_t{0});
}

// Length of indptr. target_types: of each relation.
inline int64_t num_offsets(const Batch& batch, std::span<const int32_t> target_types) {
  int64_t count = 0;
  for (const int32_t type : target_types) count += num_targets(batch, static_cast<std::size_t>(type)) + 1;
  return count;
}

// Feature rows of the nodes of one type, or of the edges of one relation.
struct Table {
  int64_t feature_dim;     // 0: none
  uint32_t feature_dtype;  // code and bits as in DLPack: code << 8 | bits
  uint32_t reserved;
};

// The rows of one node type that batches name: on the CPU the data set's file, on a GPU memory of that GPU in pieces,
// each behind the one before. A pool gets further pieces, before the first batch that names rows there.
struct NamedRows {
  int64_t num_rows;  // of the table; the most that the pool may come to have; 0: the type has none
  int64_t stride_bytes;
  uint64_t piece_bytes[kMaxRowPieces];
  std::atomic<uint32_t> num_pieces;
};

struct Slot {
  std::atomic<uint32_t> state;             // SlotState
  std::atomic<uint32_t> drained_recorded;  // GPU: the trainer has recorded `drained` for this use
  std::atomic<uint32_t> rows_left;         // GPU: the trainer has recorded `rows_left`: it reads the pool no more
  std::atomic<int64_t> state_since_us;
  // The slot's memory. The sampler replaces it only while it fills the slot: a new generation is a new file on the CPU,
  // another descriptor of GPU memory.
  uint64_t generation;  // 0: none yet
  uint64_t bytes;
  alignas(8) unsigned char drained_handle[64];  // cudaIpcEventHandle_t, fixed for the channel's life
  unsigned char rows_left_handle[64];           // the same
  Batch batch;
};

// num_slots Slots follow it.
struct ChannelHeader {
  // A reader looks at these three first and refuses a mismatch.
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;  // sizeof(ChannelHeader)

  // Fixed before the channel is announced.
  DeviceKind device;
  unsigned char gpu_uuid[16];
  int32_t num_slots;
  int32_t num_types;                    // at least 1
  int32_t num_relations;                // the same
  int32_t label_type;                   // whose nodes have labels
  uint32_t label_dtype;                 // code and bits as in DLPack: code << 8 | bits
  int64_t label_width;                  // labels of a node; 0: one, and y has one dimension
  uint32_t with_e_id;                   // 1: batches have e_id
  uint32_t with_edge_weight;            // 1: batches have edge_weight
  Table tables[kMaxTypes];              // [num_types]
  int32_t target_types[kMaxRelations];  // [num_relations]
  Table edge_tables[kMaxRelations];     // [num_relations], what batches have of edges

  RowsIn rows_in;
  NamedRows rows[kMaxTypes];  // [num_types]

  // Who is there.
  Party sampler;
  Party trainer;
  std::atomic<uint32_t> stop;  // either side or the launcher: end as soon as possible

  // Requests, trainer to sampler: a ring of kMaxRequests, entry number % kMaxRequests.
  sem_t requests_posted;
  sem_t requests_free;
  std::atomic<uint64_t> cancelled_below;  // passes with a smaller number are not wanted any more
  Request requests[kMaxRequests];

  // Slots, sampler to trainer.
  sem_t slots_free;
  sem_t batches_ready;
};

// Bytes of the file `channel`.
constexpr std::size_t channel_bytes(int32_t num_slots) {
  return sizeof(ChannelHeader) + static_cast<std::size_t>(num_slots) * sizeof(Slot);
}

// [num_slots]
inline std::span<const Slot> slots_of(const ChannelHeader& header) {
  return {reinterpret_cast<const Slot*>(&header + 1), static_cast<std::size_t>(header.num_slots)};
}
inline std::span<Slot> slots_of(ChannelHeader& header) {
  return {reinterpret_cast<Slot*>(&header + 1), static_cast<std::size_t>(header.num_slots)};
}

// [num_relations]
inline std::span<const int32_t> target_types_of(const ChannelHeader& header) {
  return {header.target_types, static_cast<std::size_t>(header.num_relations)};
}

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::is_standard_layout_v<ChannelHeader> && alignof(ChannelHeader) >= alignof(Slot));
static_assert(std::is_trivially_copyable_v<Request>);

}  // namespace cohort::channel
