// What reading one item once costs, from each memory it can be in: the unit of account of the planner.
//
// An item is a feature row, or a node's list of in-neighbours. A link moves whole lines of 128 bytes, so a read costs
// lines x (128 / bandwidth + fixed cost of a line). After Legion (Sun et al., USENIX ATC 2023, section 4.3), which
// counts transactions of 64 bytes on PCIe; here lists are charged for what was drawn of them, not for 4 bytes an edge
// of everything, and peer and local reads are not free.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/tier_use.h"
#include "cache/plan/items.h"

namespace cohort::cache {

inline constexpr double kLineBytes = 128;
inline constexpr int64_t kFewItems = 4096;  // for a loop over items: not worth waking threads for

// Where rows and lists are read from; kRecent: the pool of rows of batches before (rows only), which costs nothing;
// kDisk: the file of encoded rows (rows only, and not planned here); kRemote: the memory of another machine (rows
// only).
enum class Tier : int { kLocal = 0, kPeer = 1, kHost = 2, kRecent = 3, kDisk = 4, kRemote = 5 };
using base::kNumTiers;
constexpr int index_of(Tier tier) { return static_cast<int>(tier); }
inline constexpr int kNumLinks = 3;  // memories that a link leads to; kRecent is on the GPU itself
inline constexpr std::size_t kLocalTier = static_cast<std::size_t>(Tier::kLocal);
inline constexpr std::size_t kHostTier = static_cast<std::size_t>(Tier::kHost);
inline constexpr std::size_t kRecentTier = static_cast<std::size_t>(Tier::kRecent);
inline constexpr std::size_t kDiskTier = static_cast<std::size_t>(Tier::kDisk);
inline constexpr std::size_t kRemoteTier = static_cast<std::size_t>(Tier::kRemote);

enum class Kind : int { kFeature = 0, kTopology = 1 };
inline constexpr int kNumKinds = 2;

using base::ListUse, base::ListUses, base::TierUse, base::TierUses;  // by Tier

// What says where a list is: two offsets of indptr in host memory, its length in a slab.
constexpr int64_t list_head_bytes(Tier tier) { return tier == Tier::kHost ? 16 : 8; }

struct Link {
  double bytes_per_second = 0;
  double seconds_per_line = 0;  // on top of 128 bytes at that bandwidth
  double line_seconds() const { return kLineBytes / bytes_per_second + seconds_per_line; }
};

// Indexed by Tier, without kRecent. A line from a nearer tier must not cost more than one from a farther.
using Links = std::array<Link, kNumLinks>;

// Parts of the rows, each in the host memory of one machine (row_owner.h): the rows of others cross a network before
// they cross the link from host memory.
struct RowParts {
  int count = 1;
  int own = 0;  // the one whose GPUs are planned
};

// Of a machine, in each direction: 100 Gbit/s Ethernet. Assumed: nobody measures it before a run.
inline constexpr double kNetworkBytesPerSecond = 12.5e9;

// Reads of rows and expansions of lists to expect, in as many other batches, of one that had so many: float64 [any]
// each, by count.
// Above their end each count is one read more.
//
// Rows are chosen for their counts, so low counts among the chosen are lucky ones: taken as they are they promise hits
// that do not come. A trial tells what counts promise (Hotness); empty without one.
struct Promises {
  std::span<const double> reads{};
  std::span<const double> expansions{};
};

// What the sampler did in pre-sampled batches, of one GPU or of all together.
struct Counts {
  int64_t num_batches = 0;
  const uint32_t* node_reads = nullptr;  // uint32 [rows], batches that read the row
  const uint32_t* expansions = nullptr;  // uint32 [lists], times neighbours were drawn from the list
  const uint64_t* edges_read = nullptr;  // uint64 [lists], neighbours read in all of these
  Promises promises{};
  // make_plan() fills these:
  double mean_picks = 0;               // edges_read of an expansion, over all lists
  std::vector<double> pool_batches{};  // [tables], of each pool as share_found() takes them; empty: there are none
};

// Bytes of stored feature rows.
struct RowBytes {
  int64_t bytes = 0;               // of every row, where `each` is null
  const uint32_t* each = nullptr;  // uint32 [rows], of rows packed back to back at multiples of 4 bytes
  int64_t of(int64_t row) const { return each ? each[row] : bytes; }
};

// The rows of one node type.
struct TableSizes {
  int64_t num_rows = 0;
  RowBytes slab_rows{};  // 0 bytes: the type has no features
  RowBytes host_rows{};  // where they differ from those in a slab: raw ones beside encoded ones; 0 bytes: they do not
};

// The sizes of the items: fewer than 2^32 rows, and lists.
struct GraphSizes {
  std::vector<TableSizes> tables;
  std::vector<RelationLists> relations;  // none: lists are read elsewhere, and no business of the plan
  int pool_slots = 0;  // the pool of each table has room for the batches of so many slots; 0: there are none
  RowParts parts{};
  int64_t num_rows() const;
  int64_t num_lists() const { return end_of(relations); }
};

// Times a batch that the item is read.
double mean_reads(Kind kind, const Counts& counts, int64_t item);

// Neighbours drawn in an expansion, over all lists.
double mean_picks(const Counts& counts, int64_t num_lists);

// Of the reads of a row, which a batch makes with probability `reads`, how many find it in a pool (cache/row_pool.h)
// whose hand comes back to a row after `turn` batches T, and leaves the row as it is if a batch in use, one
// of B, has read its row. The row then stays for T / (1 - reads)^B batches and is away for 1 / reads, if batches are
// independent: a share of reads T / ((1 - reads)^B + reads T) finds it.
double share_found(double reads, double turn);

// T of each table's pool: as many nodes' rows are there as it has rows. After the characteristic time of Che et al.
// (IEEE JSAC 20(7), 2002). Infinite where there is room for all rows that are read.
std::vector<double> pool_batches(const GraphSizes& sizes, const Counts& counts);

// A read of `bytes` bytes that begins at any multiple of `align_bytes` (which divides 128), all equally likely, touches
// this many lines on average.
double mean_lines(int64_t bytes, int64_t align_bytes);

// Lines touched, on average, by drawing `picks` of the `degree` entries of a list: all of its lines when all are drawn,
// else L (1 - (1 - 1/L)^picks) of its L lines (Cardenas, CACM 18(5), 1975).
double drawn_lines(double picks, int64_t degree, int index_bytes);

// What one GPU does with one item in a batch, on average, if the item is in this tier.
struct Use {
  double reads = 0;
  double bytes = 0;
  double lines = 0;
  double seconds = 0;
  Use& operator+=(const Use& other);
};

using UseByTier = std::array<Use, kNumTiers>;

// Bytes of a neighbour list in a slab: 8 (its length) and its neighbours, in whole words of 8 bytes.
constexpr int64_t list_bytes(int64_t degree, int index_bytes) { return 8 + (degree * index_bytes + 7) / 8 * 8; }

class Costs {
 public:
  // `network_bytes_per_second`: that a GPU gets from other machines.
  Costs(const GraphSizes& sizes, const Links& links, double network_bytes_per_second = kNetworkBytesPerSecond);

  // Bytes that the item takes in a slab: a row, or list_bytes(); 0: a row of a type without features.
  int64_t stored_bytes(Kind kind, int64_t item) const {
    if (kind == Kind::kTopology) return list_bytes(list_at(item));
    const Table& table = range_with(tables_, item);
    return table.slab.of(item - table.first);
  }
  void prefetch(Kind kind, int64_t item) const;  // what stored_bytes() reads
  // Of any item that takes some.
  int64_t least_stored_bytes(Kind kind) const { return least_bytes_[static_cast<std::size_t>(kind)]; }
  int64_t num_items(Kind kind) const { return num_items_[static_cast<std::size_t>(kind)]; }

  // By where the item is; each tier gives only what is not in a pool, which kRecent is. An item in no slab is read from
  // host memory, here or (a row, then without reads of kHost) on another machine.
  UseByTier uses(Kind kind, const Counts& counts, int64_t item) const;
  // Seconds of host or another machine less peer, and of peer less local. The first is negative where rows
  // are so much shorter in host memory that reading them there is faster.
  struct Saved {
    double host_to_peer = 0;
    double peer_to_local = 0;
  };
  Saved saved(Kind kind, const Counts& counts, int64_t item) const;

 private:
  struct Rows : RowBytes {
    int64_t align_bytes = 0;
  };
  struct Table {
    int64_t first = 0;  // the number of its first row
    Rows slab, host;
  };
  struct List {
    int64_t degree;
    int index_bytes;
  };
  static Rows rows_of(const RowBytes& rows);
  static int64_t list_bytes(const List& list) { return cache::list_bytes(list.degree, list.index_bytes); }
  List list_at(int64_t item) const {
    const RelationLists& relation = range_with(relations_, item);
    const int64_t* ends = relation.lists.indptr + (item - relation.first);
    return {ends[1] - ends[0], relation.lists.index_bytes};
  }
  // What a batch reads so often, bytes and lines each time.
  Use use_of(Tier tier, double reads, double bytes, double lines) const {
    return {reads, reads * bytes, reads * lines, reads * lines * line_seconds_[static_cast<std::size_t>(tier)]};
  }
  UseByTier feature_uses(const Counts& counts, int64_t row) const;
  UseByTier topology_uses(const Counts& counts, int64_t list) const;

  std::vector<Table> tables_;
  std::vector<RelationLists> relations_;
  RowParts parts_;
  double network_bytes_per_second_;
  std::array<double, kNumLinks> line_seconds_;
  std::array<int64_t, kNumKinds> num_items_, least_bytes_;
};

}  // namespace cohort::cache
