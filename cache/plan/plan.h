// Where each feature row and each neighbour list goes: from counts and budgets to a placement. Pure, host only.
//
//   minimise  sum over GPUs g, kinds k, tiers t of  lines(g, k, t) x seconds of a line(t)      [seconds a batch]
//
// A row of another machine costs its line here, and its bytes on the network.
//
// The sum, not the maximum, over tiers and GPUs: links do work side by side, but a host line costs 7 to 30 times a peer
// or local one (measured), so the host term decides either way. With a sum, what one item saves does not depend on the
// others, so a greedy walk suffices (placement.cc): items in descending order of seconds saved per byte, until the
// budgets are spent. The one order holds rows and lists, first copies and further ones. It determines the split alpha
// between topology and features (any value in [0, 1]) and the number of replicas, which Legion searches on a grid
// (USENIX ATC 2023, section 4.3).
//
// In a clique (GPUs that read each other's memory) the first copy of an item goes to the GPU with most room. Further
// copies save the difference between a peer's and local memory; they go to all other GPUs with room, where that saves
// more per byte than the next first copy. Cliques do not know each other.
//
// Guarantees: budgets hold, index and scratch included. For a GPU alone: if all items take the same bytes, no placement
// saves more, otherwise one saves at most one item more; more budget never predicts more seconds. In a clique: compared
// with every possible placement of small graphs, the plan is within one item a GPU. Equal items are ordered by node;
// the same input gives the same plan for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bits.h"
#include "cache/plan/cost.h"
#include "ibp/encoded_ref.h"

namespace cohort::cache {

// Memory that finds rows, charged to the budget of each GPU that caches anything.
struct IndexCost {
  std::array<int64_t, kNumKinds> bitmap_bytes{};  // of what is cached, with ranks: of rows, of lists
  int64_t entry_bytes = 8;    // for every row of the clique (wherever it is), on every GPU of the clique
  int64_t scratch_bytes = 0;  // working memory of a GPU
};

// uint32 flags and uint32 ranks for each 32 rows or lists.
constexpr int64_t bitmap_bytes(int64_t num_items) { return (num_items + 31) / 32 * 8; }

constexpr int64_t kEntryBytes = 8;    // of the directory
constexpr int64_t kRawRowAlign = 16;  // raw rows in a slab begin at multiples of this

// Of a graph: each node type with features has a directory of its rows, all relations together one of their lists.
IndexCost index_cost(const GraphSizes& sizes, int64_t entry_bytes = kEntryBytes, int64_t scratch_bytes = 0);

// Bytes from one raw row in a slab to the next.
constexpr int64_t raw_row_stride(int64_t row_bytes) { return base::round_up(row_bytes, kRawRowAlign); }

// What a GPU's cache needs to hold all feature rows of a node type as they are, and what finds them.
constexpr int64_t bytes_of_all_raw_rows(int64_t num_rows, int64_t row_bytes) {
  return row_bytes == 0 ? 0 : bitmap_bytes(num_rows) + num_rows * (raw_row_stride(row_bytes) + kEntryBytes);
}

struct PlanInput {
  GraphSizes sizes;
  std::vector<Counts> counts;             // one for all cliques, or one a clique
  std::vector<std::vector<int>> cliques;  // every GPU 0..G-1 once; a GPU without peers is a clique of one
  std::vector<int64_t> budget_bytes;      // [G]
  Links links;
  double network_bytes_per_second = kNetworkBytesPerSecond;  // of a machine; its GPUs share it
  IndexCost index;
};

// The slab and the directory of one GPU for one kind.
struct Slab {
  std::vector<uint32_t> nodes;  // uint32 [rows], in slab order: most seconds saved per byte first; numbers of items
  int64_t bytes = 0;
  int64_t num_entries = 0;  // the directory knows the first so many of the clique's rows; all, but on tiny budgets
};

struct GpuPlan {
  int64_t budget_bytes = 0;
  int64_t index_bytes = 0;  // bitmaps, entries and scratch
  std::array<Slab, kNumKinds> slabs;
  std::array<UseByTier, kNumKinds> use;  // expected, a batch

  int64_t used_bytes() const;
  double alpha() const;    // topology's share of the slab bytes; 0 when there are none
  double seconds() const;  // a batch, all kinds and tiers
};

// What a clique holds, each row once, in order of placement.
struct CliqueRows {
  std::vector<uint32_t> nodes;   // uint32 [rows], numbers of items
  std::vector<uint16_t> owners;  // uint16 [rows], position in `gpus` of the first copy; peers read that one
};

struct CliquePlan {
  std::vector<int> gpus;
  std::array<CliqueRows, kNumKinds> rows;
};

struct Plan {
  std::vector<GpuPlan> gpus;
  std::vector<CliquePlan> cliques;

  double seconds() const;  // a batch on each GPU, summed: what was minimised
};

// Throws Error on input that contradicts itself (a GPU in two cliques, a negative budget, a peer slower than the host).
Plan make_plan(const PlanInput& input);

// What a plan says of the rows of one node type alone, counted from its first one: slabs, clique rows and the index
// that finds them. `slab_rows`: what each takes.
Plan plan_of_table(const Plan& plan, int64_t first_row, int64_t num_rows, const RowBytes& slab_rows);

// Host memory that a start takes beside what it keeps there, until the slabs of a plan are filled
// (cache/fill_slabs.cc).
int64_t filling_bytes(const Plan& plan, int64_t num_nodes);

// More GPUs than this read each other's memory in several cliques: an entry has 3 bits for the one it is of.
inline constexpr int kMaxCliqueGpus = ibp::kMaxRegions;

// Every GPU's share of `num_gpus` GPUs in cliques as text: "none" (each alone), "all", "2x4" (two of four), "3+5".
// Throws Error unless the sizes are at most kMaxCliqueGpus and add up to num_gpus.
std::vector<std::vector<int>> cliques_named(const std::string& text, int num_gpus);

}  // namespace cohort::cache
