#include "cache/feature_fetch.h"

#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/cuda_check.h"
#include "base/launch.h"

namespace cohort::cache {
namespace {

using base::cuda_check;

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kSplitBlocks = 1024;
constexpr int kMostBinBits = 15;  // order rows well enough for address translation

// Counted on the GPU while a batch is fetched.
struct Counters {
  unsigned long long rows[kNumLists];
  unsigned long long bytes[kNumLinks];
  PoolCounters pool;
  unsigned long long damaged;  // what fetch_located() reports
  uint32_t next_host_row;      // that no warp has taken
};

// Host rows as kernels find them.
struct HostRowsRef {
  ibp::EncodedRef coded;  // used when stride_bytes is 0
  int64_t stride_bytes = 0;
  uint32_t plane_b_bytes = 0;  // that are read of a coded row beside its entry's

  __device__ uint64_t entry(int64_t row) const {
    if (stride_bytes) return ibp::make_entry(row * stride_bytes, static_cast<uint32_t>(stride_bytes), true);
    return ibp::entry_of(coded, row);
  }
};

// Rows that come from the host, in the order in which they are found.
struct HostKeys {
  uint32_t* rows;      // uint32 [count]
  int32_t* positions;  // int32 [count], where they go
  uint32_t* bins;  // of 2^bin_bits rows each: how many come from a bin, then where its next one comes in the order of
                   // addresses; null: rows are read as they are found
  int bin_bits;
};

struct Split {
  const int64_t* nodes;       // int64 [count]
  int64_t count;              // at most, where the pool lacks them
  const uint32_t* pool_rows;  // uint32 [count], rows of the pool to be written; null: row i goes to position i
  DirectoryRef directory;
  RowBitsRef in_host_memory;  // the others are far; no words: all are
  uint32_t* far_rows;         // uint32 [far rows]
  uint32_t own_region;
  HostKeys host_keys;
  uint64_t* entries[kNumLinks];   // uint64 [rows of the tier]
  int32_t* positions[kNumLists];  // int32 [rows of the tier]
  Counters* counters;
  uint32_t most_bytes;  // that are read of a coded row: plane A alone

  __device__ uint32_t bytes_of(uint64_t entry) const {
    return ibp::entry_raw(entry) ? ibp::entry_bytes(entry) : min(ibp::entry_bytes(entry), most_bytes);
  }
};

// Takes entries at the ends of the tiers' lists, for the rows of a block at once: one atomic addition a tier.
class ListEnds {
 public:
  // To be called by all threads of the block. A row's position in the list of its tier; a list of kNumLists: no row.
  __device__ int64_t take(int tier, Counters* counters) {
    const uint32_t warp = threadIdx.x / 32, below = (1u << threadIdx.x % 32) - 1;
    uint32_t before = 0;  // rows of this tier in this warp's lanes before
    for (int t = 0; t < kNumLists; ++t) {
      const uint32_t lanes = __ballot_sync(kAllLanes, t == tier);
      if (threadIdx.x % 32 == 0) counts_[warp][t] = __popc(lanes);
      if (t == tier) before = __popc(lanes & below);
    }
    __syncthreads();
    if (threadIdx.x < kNumLists) {
      uint32_t total = 0;
      for (auto& count : counts_) total += std::exchange(count[threadIdx.x], total);
      first_[threadIdx.x] = total > 0 ? atomicAdd(&counters->rows[threadIdx.x], total) : 0;
    }
    __syncthreads();
    const int64_t position = tier < kNumLists ? first_[tier] + counts_[warp][tier] + before : 0;
    __syncthreads();  // everybody has read
    return position;
  }

 private:
  uint32_t counts_[base::kBlockThreads / 32][kNumLists];  // rows of a warp, then of the warps before it
  unsigned long long first_[kNumLists];
};

// Adds up over the warp, then into `sum`.
__device__ void add_up(unsigned long long* sum, unsigned long long value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(kAllLanes, value, step);
  if (threadIdx.x % 32 == 0 && value) atomicAdd(sum, value);
}

// The nearest tier that has the node's row, and there its entry; that of host rows is found later.
__device__ Tier find_row(const Split& job, int64_t node, uint64_t& entry) {
  entry = job.directory.find(node);
  if (entry == kNoEntry) return Tier::kHost;
  return ibp::entry_region(entry) == job.own_region ? Tier::kLocal : Tier::kPeer;
}

__global__ void split_kernel(const __grid_constant__ Split job) {
  __shared__ ListEnds list_ends;
  const int64_t count = job.pool_rows ? static_cast<int64_t>(job.counters->pool.missing) : job.count;
  unsigned long long bytes[kNumLinks] = {};
  for (int64_t first = base::grid_first() - threadIdx.x; first < count; first += base::grid_step()) {
    const int64_t i = first + threadIdx.x;
    const bool active = i < count;
    const int64_t node = active ? job.nodes[i] : 0;
    const auto position = static_cast<int32_t>(active && job.pool_rows ? job.pool_rows[i] : i);
    uint64_t entry = kNoEntry;
    int from = active ? index_of(find_row(job, node, entry)) : kNumLists;
    int64_t host_row = node;
    if (from == index_of(Tier::kHost) && job.in_host_memory.words) {
      host_row = job.in_host_memory.find(node);
      if (host_row < 0) from = kFarList;
    }
    const int64_t at = list_ends.take(from, job.counters);
    if (!active) continue;
    if (from == index_of(Tier::kHost)) {
      const HostKeys& keys = job.host_keys;
      keys.rows[at] = static_cast<uint32_t>(host_row);
      keys.positions[at] = position;
      if (keys.bins) atomicAdd(&keys.bins[host_row >> keys.bin_bits], 1u);
    } else if (from == kFarList) {
      job.far_rows[at] = static_cast<uint32_t>(node);
      job.positions[from][at] = position;
    } else {
      job.entries[from][at] = entry;
      job.positions[from][at] = position;
      for (int tier = 0; tier < kNumLinks; ++tier) bytes[tier] += tier == from ? job.bytes_of(entry) : 0;
    }
  }
  for (int tier = 0; tier < kNumLinks; ++tier) add_up(&job.counters->bytes[tier], bytes[tier]);
}

// Where the host rows lie and where they go, in the order in which they are read.
__global__ void locate_host_rows_kernel(HostRowsRef rows, HostKeys keys, Counters* counters, uint64_t* entries,
                                        int32_t* positions) {
  const auto count = static_cast<int64_t>(counters->rows[index_of(Tier::kHost)]);
  unsigned long long bytes = 0;
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const uint32_t row = keys.rows[i];
    const int64_t at = keys.bins ? atomicAdd(&keys.bins[row >> keys.bin_bits], 1u) : i;
    const uint64_t entry = rows.entry(row);
    entries[at] = entry;
    positions[at] = keys.positions[i];
    bytes += ibp::entry_bytes(entry) + (ibp::entry_raw(entry) ? 0 : rows.plane_b_bytes);
  }
  add_up(&counters->bytes[index_of(Tier::kHost)], bytes);
}

}  // namespace

FeatureFetch::FeatureFetch(std::shared_ptr<const HostFeatures> host, int64_t row_bytes, FetchSettings settings)
    : host_(std::move(host)),
      row_bytes_(row_bytes),
      settings_(settings),
      in_flight_(settings.num_fetches),
      share_(settings.num_sms, row_bytes, settings.host_bytes_per_second, {}) {
  host_->open_to_gpu();
  for (InFlight& flight : in_flight_) {
    flight.tallies = base::DeviceBytes(sizeof(Counters));
    flight.seen = base::PinnedBytes(sizeof(Counters));
  }
  if (settings_.num_sms == 0) settings_.num_sms = kDefaultFetchSms;
  if (host_->coded() && host_->num_rows() > 0) host_table_ = std::make_unique<ibp::DeviceTable>(host_->encoded());
  const ibp::Profile profile = host_->coded() ? host_->encoded().profile : ibp::raw_profile(row_bytes);
  if (row_bytes_ > 0) profiles_[index_of(Tier::kHost)] = std::make_unique<ibp::DeviceProfile>(profile);
  share_anew();
}

void FeatureFetch::reserve(InFlight& flight, int64_t count) {
  const auto rows = static_cast<std::size_t>(count);
  host_rows_.reserve(rows);
  host_positions_.reserve(rows);
  for (int tier = 0; tier < kNumLinks; ++tier) {
    if (!has(static_cast<Tier>(tier))) continue;
    flight.entries[tier].reserve(rows);
    flight.positions[tier].reserve(rows);
  }
  if (far_) flight.positions[kFarList].reserve(rows);
}

void FeatureFetch::fetch(const int64_t* nodes, int64_t count, const FetchTarget& target, cudaStream_t stream) {
  base::require(num_begun_ - num_told_ < in_flight_.size(), "use() after each fetch");
  const InFlight& before = last();
  const std::size_t number = num_begun_++ % in_flight_.size();
  InFlight& flight = in_flight_[number];
  auto* counters = reinterpret_cast<Counters*>(flight.tallies.data());
  cuda_check(cudaMemsetAsync(counters, 0, sizeof(Counters), stream), "clear counters");
  cuda_check(cudaMemsetAsync(&counters->damaged, 0xff, sizeof counters->damaged, stream), "clear counters");
  flight.plane_a = target.plane_a && has_planes();
  flight.count = count;
  const bool has_rows = count > 0 && row_bytes_ > 0;
  flight.far_rows = far_ ? far_->list(number, has_rows ? count : 0) : nullptr;
  before.split.wait_on(stream);
  if (!has_rows) flight.split.record(stream);  // the next fetch follows the one before
  if (has_rows) {
    reserve(flight, count);
    MissingRows missing;
    if (pool_) {
      if (std::exchange(plane_a_, flight.plane_a) != flight.plane_a) pool_->forget(stream);  // rows of the other kind
      missing = pool_->assign(nodes, count, target.batch, &counters->pool, target.row_index, stream);
      if (target.poison) fill_missing(missing, count, target.rows, row_bytes_, 0xff, stream);
    }
    split(flight, pool_ ? missing.nodes : nodes, count, missing, stream);
    flight.split.record(stream);
    if (far_) far_->listed(number, &counters->rows[kFarList], stream);
    flight.sms = share_.next();
    for (const Tier from : {Tier::kHost, Tier::kPeer, Tier::kLocal}) {
      if (!has(from)) continue;
      const int tier = index_of(from);
      flight.split.wait_on(streams_[tier]);
      flight.begun[tier].record(streams_[tier]);
      gather(flight, from, target.rows, streams_[tier]);
      flight.ended[tier].record(streams_[tier]);
      flight.ended[tier].wait_on(stream);
    }
  }
  cuda_check(cudaMemcpyAsync(flight.seen.data(), counters, sizeof(Counters), cudaMemcpyDeviceToHost, stream),
             "read counters");
  if (!far_ || !has_rows) return;
  far_->start(number,
              {.rows = target.rows,
               .positions = flight.positions[kFarList].data(),
               .damaged = &counters->damaged,
               .counters = flight.tallies.data(),
               .seen = flight.seen.data(),
               .num_counters = sizeof(Counters),
               .plane_a = flight.plane_a},
              stream);
}

void FeatureFetch::split(InFlight& flight, const int64_t* nodes, int64_t count, const MissingRows& missing,
                         cudaStream_t stream) {
  auto* counters = reinterpret_cast<Counters*>(flight.tallies.data());
  const auto last_row = static_cast<uint64_t>(std::max<int64_t>(host_->num_rows() - 1, 0));
  const int bin_bits = std::max(0, static_cast<int>(std::bit_width(last_row)) - kMostBinBits);
  const std::size_t num_bins = orders_host_rows() ? (last_row >> bin_bits) + 1 : 0;
  Split job{.nodes = nodes,
            .count = count,
            .pool_rows = missing.rows,
            .directory = slabs_.directory.ref(),
            .in_host_memory = far_ ? far_->in_memory() : RowBitsRef{},
            .far_rows = flight.far_rows,
            .own_region = slabs_.own_region,
            .host_keys = {.rows = host_rows_.data(),
                          .positions = host_positions_.data(),
                          .bins = num_bins > 0 ? bins_.reserve(num_bins) : nullptr,
                          .bin_bits = bin_bits},
            .entries = {},
            .positions = {},
            .counters = counters,
            .most_bytes = flight.plane_a ? host_->encoded().profile.slot_bytes : UINT32_MAX};
  for (int tier = 0; tier < kNumLinks; ++tier) {
    job.entries[tier] = flight.entries[tier].data();
    job.positions[tier] = flight.positions[tier].data();
  }
  job.positions[kFarList] = flight.positions[kFarList].data();
  if (num_bins > 0) cuda_check(cudaMemsetAsync(bins_.data(), 0, num_bins * sizeof(uint32_t), stream), "clear bins");
  const int grid = base::grid_for(count, kSplitBlocks);
  split_kernel<<<grid, base::kBlockThreads, 0, stream>>>(job);
  cuda_check(cudaGetLastError(), "launch the split by tier");
  if (!has(Tier::kHost)) return;
  if (num_bins > 0) sum_bins(num_bins, stream);
  HostRowsRef rows{{}, host_->stride_bytes(), 0};
  if (host_table_) rows.coded = host_table_->ref();
  if (!flight.plane_a) rows.plane_b_bytes = rows.coded.plane_b_stride_bytes;
  const int host = index_of(Tier::kHost);
  locate_host_rows_kernel<<<grid, base::kBlockThreads, 0, stream>>>(rows, job.host_keys, counters, job.entries[host],
                                                                    job.positions[host]);
  cuda_check(cudaGetLastError(), "locate host rows");
}

// A counting sort, as only a few rows may be missing of a large batch, and only the GPU knows how many.
void FeatureFetch::sum_bins(std::size_t num_bins, cudaStream_t stream) {
  const auto sum = [&](void* space, std::size_t& bytes) {
    cuda_check(
        cub::DeviceScan::ExclusiveSum(space, bytes, bins_.data(), bins_.data(), static_cast<int>(num_bins), stream),
        "order rows by address");
  };
  std::size_t bytes = 0;
  sum(nullptr, bytes);
  sum(scan_space_.reserve(bytes), bytes);
}

// The memory that a tier's rows lie in.
ibp::LocatedRows FeatureFetch::located(Tier tier) const {
  ibp::LocatedRows rows;
  rows.on_gpu = tier != Tier::kHost;
  if (tier != Tier::kHost) {
    rows.regions = slabs_.regions;
    rows.step_bytes = slabs_.step_bytes;
    rows.max_coded_bytes = slabs_.max_coded_bytes;
  } else {
    rows.step_bytes = host_->step_bytes();
    rows.regions = {ibp::RegionRef{host_->data(), host_->bytes()}};
    if (host_table_) {
      const ibp::EncodedRef& coded = host_table_->ref();
      rows.regions = {ibp::RegionRef{coded.data, coded.data_bytes}, {coded.overflow, coded.overflow_bytes}};
      rows.plane_b = {coded.plane_b, coded.plane_b_bytes()};
      rows.max_coded_bytes = ibp::longest_coded_bytes(coded);
    }
  }
  return rows;
}

void FeatureFetch::gather(InFlight& flight, Tier tier, std::byte* out, cudaStream_t stream) {
  auto* counters = reinterpret_cast<Counters*>(flight.tallies.data());
  const int at = index_of(tier);
  ibp::LocatedRows rows = located(tier);
  rows.entries = flight.entries[at].data();
  rows.positions = flight.positions[at].data();
  rows.count = &counters->rows[at];
  if (tier == Tier::kHost && orders_host_rows()) rows.next = &counters->next_host_row;
  ibp::FetchOptions options;
  options.max_sms = flight.sms[at];
  options.plane_a = flight.plane_a;
  ibp::fetch_located(*profiles_[at], rows, out, &counters->damaged, stream, options);
}

TierUses FeatureFetch::use() {
  const std::size_t number = num_told_++ % in_flight_.size();
  const InFlight& flight = in_flight_[number];
  TierUses uses;
  if (far_) uses = far_->use(number);
  const auto& seen = *reinterpret_cast<const Counters*>(flight.seen.data());
  if (seen.damaged != ibp::kNoFetchError) {
    throw base::Error({"row " + std::to_string(seen.damaged / 2) + (pool_ ? " of the pool" : " of a batch"),
                       "a valid encoding", "bytes that are not an encoded row",
                       "the data is damaged: run cohort dataset check"});
  }
  base::require(seen.pool.given >= seen.pool.missing, "rows of the pool for all missing rows");
  for (int tier = 0; tier < kNumLinks; ++tier) {
    TierUse& use = uses[static_cast<std::size_t>(tier)];
    use.rows = static_cast<int64_t>(seen.rows[tier]);
    use.bytes = static_cast<int64_t>(seen.bytes[tier]);
    if (use.rows == 0) continue;
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, flight.begun[tier], flight.ended[tier]), "time a tier");
    use.us = 1e3 * ms;
  }
  if (pool_) uses[index_of(Tier::kRecent)].rows = flight.count - static_cast<int64_t>(seen.pool.missing);
  share_.learn(uses, flight.sms);
  return uses;
}

}  // namespace cohort::cache
