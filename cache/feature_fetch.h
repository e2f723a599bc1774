// Feature rows of a batch into GPU memory, each from the nearest memory that has it: this GPU's slab, a peer's slab, or
// host memory. They go to a pool (row_pool.h), which lacks but few of them, or, those of edges, one after the other.
//
// One pass over the batch looks every node up and splits the rows by tier. Host rows are ordered by address (3 % faster
// from managed memory, 2 to 4 times from a large table in page-locked memory: base/host_table.h), the others need no
// order. Then up to three gathers run side by side, each on SMs of its own, shared out by need (sm_share.h). A batch is
// looked up while the rows of the one before come, and its gathers follow theirs tier by tier, so that no link rests.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/owners.h"
#include "base/scratch.h"
#include "cache/directory.h"
#include "cache/far_gather.h"
#include "cache/host_features.h"
#include "cache/plan/cost.h"
#include "cache/row_pool.h"
#include "cache/row_slab.h"
#include "cache/sm_share.h"

namespace cohort::cache {

// The slabs of a clique as one of its GPUs sees them.
struct SlabView {
  Directory directory;
  std::array<ibp::RegionRef, ibp::kMaxRegions> regions;  // by member of the clique
  uint32_t own_region = 0;
  ibp::Profile profile;                               // of the rows in slabs
  uint32_t max_coded_bytes = 0;                       // of the longest row in slabs that is not raw
  uint32_t step_bytes = 4;                            // every row in slabs begins at a multiple of this
  std::vector<std::shared_ptr<const RowSlab>> slabs;  // what it keeps
};

// Rows of a batch are listed by where they come from: the memories that a link leads to, and behind them where far rows
// are (far_rows.h).
inline constexpr int kFarList = kNumLinks;
inline constexpr int kNumLists = kNumLinks + 1;

struct FetchSettings {
  int num_sms = 0;  // that may read rows; 0: kDefaultFetchSms
  bool order_host_rows = true;
  double host_bytes_per_second = 51e9;  // what the link to host memory gives
  std::size_t num_fetches = 2;          // that may be under way at once, above 1
};
inline constexpr int kDefaultFetchSms = 32;

// Where the rows of a batch go.
struct FetchTarget {
  std::byte* rows = nullptr;     // [count, row_bytes], 16-byte aligned; or the pool, [num_rows, row_bytes]
  int64_t* row_index = nullptr;  // int64 [count], rows of the pool, where there is one
  PoolBatch batch{};             // which one, where there is a pool
  bool poison = false;           // missing rows of the pool are filled with 0xFF first
  // Rows of codec planes, if all are stored so: as plane A alone tells them. Such rows of a pool are not found by
  // fetches of exact ones, nor the other way round.
  bool plane_a = false;
};

class FeatureFetch {
 public:
  // Of the current GPU. Without a view nothing is cached.
  FeatureFetch(std::shared_ptr<const HostFeatures> host, int64_t row_bytes, FetchSettings settings);
  void set_slabs(SlabView view);
  void set_num_sms(int num_sms);  // from the next fetch on
  // Reads on streams that `make_stream` makes, with so many SMs. Not while a fetch runs.
  void run_on(const std::function<base::Stream(base::Priority)>& make_stream, int num_sms);
  // From the next fetch on rows go to a pool, which is empty until it grows; `reuse`: they are found there again.
  void use_pool(int64_t num_nodes, bool reuse) { pool_.emplace(num_nodes, reuse); }
  // Not while a fetch runs; the next one follows what `stream` has.
  void grow_pool(int64_t num_rows, cudaStream_t stream) { pool_->grow(num_rows, stream); }
  int64_t pool_rows() const { return pool_ ? pool_->num_rows() : 0; }

  // From the next fetch on, rows that are not in host memory are far (far_rows.h); `host` has the others.
  void set_far(const FarPart& part);

  // target.rows[i], or [row_index[i]], = row nodes[i]; nodes: int64 [count], all different where there are slots; all
  // in GPU memory. Asynchronous: begins and ends on `stream`, but for far rows (far_ended); allocates only for a batch
  // larger than all before. Several may be under way, on streams of their own; use() comes after each.
  void fetch(const int64_t* nodes, int64_t count, const FetchTarget& target, cudaStream_t stream);
  // Whether the oldest fetch that use() has not told of has its far rows.
  bool far_ended() const { return !far_ || far_->ended(num_told_ % in_flight_.size()); }
  // What that fetch read, once it has ended. Throws base::Error when a row was damaged, or far rows did not come.
  TierUses use();

 private:
  // What a fetch has for itself while it is under way.
  struct InFlight {
    int64_t count = 0;
    uint32_t* far_rows = nullptr;                            // uint32 [count], for those that are far
    std::array<base::Scratch<uint64_t>, kNumLinks> entries;  // uint64 [rows of the tier]
    std::array<base::Scratch<int32_t>, kNumLists> positions;
    base::DeviceBytes tallies;
    base::PinnedBytes seen;
    base::Event split;
    std::array<base::Event, kNumLinks> begun, ended;
    std::array<int, kNumLinks> sms{};
    bool plane_a = false;
  };

  const InFlight& last() const { return in_flight_[(num_begun_ + in_flight_.size() - 1) % in_flight_.size()]; }
  bool has(Tier tier) const;  // whether any row may come from there
  bool has_planes() const;    // whether all rows are of codec planes, wherever they are stored
  bool orders_host_rows() const { return settings_.order_host_rows && has(Tier::kHost); }
  void split(InFlight& flight, const int64_t* nodes, int64_t count, const MissingRows& missing, cudaStream_t stream);
  void sum_bins(std::size_t num_bins, cudaStream_t stream);
  void gather(InFlight& flight, Tier tier, std::byte* out, cudaStream_t stream);
  ibp::LocatedRows located(Tier tier) const;
  void reserve(InFlight& flight, int64_t count);
  void share_anew();

  std::shared_ptr<const HostFeatures> host_;
  int64_t row_bytes_;
  FetchSettings settings_;
  SlabView slabs_;
  std::unique_ptr<ibp::DeviceTable> host_table_;  // finds coded host rows
  std::array<std::unique_ptr<ibp::DeviceProfile>, kNumLinks> profiles_;
  std::optional<RowPool> pool_;
  base::Scratch<uint32_t> host_rows_;      // uint32 [batch]
  base::Scratch<int32_t> host_positions_;  // int32 [batch]
  base::Scratch<uint32_t> bins_;           // of host rows
  base::Scratch<std::byte> scan_space_;
  std::array<base::Stream, kNumLinks> streams_;
  std::vector<InFlight> in_flight_;  // in turn
  std::unique_ptr<FarGather> far_;
  bool plane_a_ = false;  // of the last fetch
  uint64_t num_begun_ = 0, num_told_ = 0;
  SmShare share_;
};

}  // namespace cohort::cache
