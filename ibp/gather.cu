// Gather and decode: a persistent grid of warps, each with two batches of rows: one on its way, one being decoded.
#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "base/device.h"
#include "base/launch.h"
#include "ibp/device_view.cuh"
#include "ibp/gpu.h"
#include "ibp/staging.cuh"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr int kMaxWarps = 32;
constexpr uint32_t kMaxBatchRows = 16;
constexpr uint32_t kMostSharedBytes = 224 * 1024;      // of a block, for stages
constexpr uint32_t kBarrierBytes = kMaxWarps * 2 * 8;  // two barriers a warp, before the stages
constexpr unsigned long long kNoError = kNoFetchError;

// What went wrong first: position * 2, plus 1 when the row itself is damaged.
__device__ void report(unsigned long long* status, uint32_t position, bool damaged) {
  atomicMin(status, uint64_t{position} * 2 + (damaged ? 1 : 0));
}

struct Job {
  const int64_t* index;      // int64 [count]
  const uint32_t* sorted;    // uint32 [count] rows by address, or null: as given
  const int32_t* positions;  // int32 [count] where each of `sorted` goes
  unsigned long long* next;  // the first of `sorted` that no warp has taken; null: each warp knows its own
  int64_t count;
  std::byte* out;  // [count, row_bytes]
  unsigned long long* status;
  uint32_t stage_bytes;
  uint32_t batch_rows;
  // Rows that the caller has located; null: `index` and `sorted` are rows of the table.
  const uint64_t* entries;                // uint64 [count]
  const unsigned long long* found_count;  // what `count` is, in GPU memory
  std::array<RegionRef, kMaxRegions> regions;
};

// One row, as the lane that asked for it knows it. What all lanes need to decode it is in `tag`.
struct Item {
  RowSpan span;
  Window window;
  int32_t position = 0;
  uint32_t tag = 0;
};
constexpr uint32_t kTagRaw = 1, kTagStaged = 2, kTagFound = 4, kTagCoded = 8;  // coded: staged and not raw
constexpr uint32_t kTagOffsetBit = 4, kTagBytesBit = 11;                       // the place in its line; the row's bytes

// Finds row i of the job: where it lies, in what region, and where it goes. False when there is no such row.
__device__ bool find_item(const EncodedRef& rows, const Job& job, int64_t i, Item& item, RegionRef& region) {
  if (job.entries) {
    const uint64_t entry = job.entries[i];
    region = job.regions[entry_region(entry)];
    item.position = job.positions[i];
    item.span = {region.begin + entry_offset_bytes(entry), entry_bytes(entry), entry_raw(entry), true};
    return true;
  }
  item.position = job.sorted ? job.positions[i] : static_cast<int32_t>(i);
  const int64_t row = job.sorted ? int64_t{job.sorted[i]} : job.index[i];
  if (row < 0 || row >= rows.num_rows) return false;
  item.span = locate(rows, row);
  const bool overflow = rows.layout == Layout::kSlots && item.span.raw;
  region = {overflow ? rows.overflow : rows.data, overflow ? rows.overflow_bytes : rows.data_bytes};
  return true;
}

__device__ Item load_item(const EncodedRef& rows, const Job& job, int64_t first, int64_t count) {
  Item item;
  RegionRef region;
  const int64_t i = first + lane_id();
  if (lane_id() >= job.batch_rows || i >= count || !find_item(rows, job, i, item, region)) return item;
  const bool fits = kLineBytes + item.span.bytes + kSectorBytes + kReadAheadBytes <= job.stage_bytes;
  if (fits) {
    item.window = window_of(item.span.begin, item.span.bytes, region.begin, region.bytes);
  } else if (!item.span.raw) {
    item.span.bytes = 0;  // a damaged length: no row decodes from nothing
  }
  const auto offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(item.span.begin) % kLineBytes);
  const bool staged = item.window.bytes != 0;
  item.tag = (item.span.raw ? kTagRaw : 0) | (staged ? kTagStaged : 0) | kTagFound |
             (staged && !item.span.raw ? kTagCoded : 0) | (offset << kTagOffsetBit) | (item.span.bytes << kTagBytesBit);
  return item;
}

// A row that no window could be asked for, or that is raw: false when it is no valid row. `stage` is where its bytes
// are or may be put.
template <typename Decoder>
__device__ bool decode_unusual(const Decoder& decoder, uint32_t row_bytes, uint32_t tag, const std::byte* row,
                               std::byte* stage, std::byte* out) {
  const uint32_t bytes = tag >> kTagBytesBit;
  if (!(tag & kTagFound) || ((tag & kTagRaw) && bytes < row_bytes)) return false;
  if (tag & kTagRaw) {  // too long for a stage, if it is not in one
    copy_row_warp(reinterpret_cast<const uint32_t*>(tag & kTagStaged ? stage : row), out, row_bytes);
    return true;
  }
  // The last of a table whose bytes end with it.
  copy_row_warp(reinterpret_cast<const uint32_t*>(row), stage, bytes);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the stage's next bytes come by a bulk copy
  __syncwarp();
  return decoder.decode(reinterpret_cast<const uint32_t*>(stage), bytes, out);
}

// The rows of a batch, which are in their stages; the lanes know an item each.
template <typename Decoder>
__device__ void decode_batch(const Decoder& decoder, uint32_t row_bytes, const Job& job, const Item& mine,
                             uint32_t count, std::byte* stage) {
  for (uint32_t i = 0; i < count; ++i, stage += job.stage_bytes) {
    const uint32_t tag = __shfl_sync(kAllLanes, mine.tag, i);
    const auto position = static_cast<uint32_t>(__shfl_sync(kAllLanes, mine.position, i));
    std::byte* out = job.out + uint64_t{position} * row_bytes;
    std::byte* row = stage + ((tag >> kTagOffsetBit) % kLineBytes);
    __builtin_assume(__isShared(row));
    if (tag & kTagCoded) {
      if (decoder.decode(reinterpret_cast<const uint32_t*>(row), tag >> kTagBytesBit, out)) continue;
    } else {
      const auto from = __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.span.begin), i);
      if (decode_unusual(decoder, row_bytes, tag, reinterpret_cast<const std::byte*>(from), row, out)) continue;
    }
    __syncwarp();
    zero_row_warp(out, row_bytes);
    if (lane_id() == 0) report(job.status, position, tag & kTagFound);
  }
}

// The batches of one warp: handed out in order, so that the rows on their way lie close together (address translation
// then holds: measured 50 instead of 32 GB/s from a table of 16 GB), or every so-manyth.
class Tickets {
 public:
  __device__ explicit Tickets(const Job& job) : job_(job) {
    const int64_t num_warps = blockDim.x / 32;
    own_ = (blockIdx.x * num_warps + threadIdx.x / 32) * job.batch_rows;
    step_ = gridDim.x * num_warps * job.batch_rows;
  }
  __device__ int64_t take() {
    if (!job_.next) {
      const int64_t first = own_;
      own_ += step_;
      return first;
    }
    unsigned long long first = 0;
    if (lane_id() == 0) first = atomicAdd(job_.next, job_.batch_rows);
    return static_cast<int64_t>(__shfl_sync(kAllLanes, first, 0));
  }

 private:
  const Job& job_;
  int64_t own_, step_;
};

template <Form form, uint32_t kWords, typename Staging>
__global__ void __launch_bounds__(kMaxWarps * 32, 1) gather_kernel(ProfileRef profile, EncodedRef rows, Job job) {
  extern __shared__ __align__(128) std::byte shared[];
  const uint32_t warp = threadIdx.x / 32;
  Staging staging(shared + kBarrierBytes + warp * 2 * job.batch_rows * job.stage_bytes,
                  reinterpret_cast<uint64_t*>(shared) + warp * 2, job.stage_bytes, job.batch_rows);
  const RowDecoder<form, kWords> decoder(profile);
  Tickets tickets(job);
  const int64_t all = job.found_count ? static_cast<int64_t>(*job.found_count) : job.count;
  int64_t first = tickets.take(), next_first = tickets.take();
  Item items = load_item(rows, job, first, all), next = load_item(rows, job, next_first, all);
  staging.issue(0, items.window);
  staging.issue(1, next.window);
  for (uint32_t batch = 0; first < all; batch ^= 1) {
    const int64_t ahead_first = tickets.take();
    const Item ahead = load_item(rows, job, ahead_first, all);
    const auto count = static_cast<uint32_t>(min(int64_t{job.batch_rows}, all - first));
    staging.wait(batch);
    decode_batch(decoder, profile.row_bytes, job, items, count, staging.stage(batch, 0));
    __syncwarp();  // every lane is done with the stages
    staging.issue(batch, ahead.window);
    items = next;
    next = ahead;
    first = next_first;
    next_first = ahead_first;
  }
}

// Sort keys: the row, or num_rows for a bad index, which so comes last and is reported by the gather.
__global__ void make_keys_kernel(const int64_t* index, int64_t count, int64_t num_rows, uint32_t* keys,
                                 int32_t* positions, unsigned long long* next) {
  if (base::grid_first() == 0) *next = 0;
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const int64_t row = index[i];
    keys[i] = static_cast<uint32_t>(row >= 0 && row < num_rows ? row : num_rows);
    positions[i] = static_cast<int32_t>(i);
  }
}

// The GPU in use: asked once a device.
struct DeviceLimits {
  int num_sms = 0;
  uint32_t shared_bytes = 0;  // that a block may have
  bool bulk = false;
};
DeviceLimits current_limits() {
  int device = 0, major = 0;
  DeviceLimits limits;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&limits.num_sms, cudaDevAttrMultiProcessorCount, device));
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  limits.shared_bytes = base::most_shared_bytes();
  limits.bulk = major >= 9;
  return limits;
}

struct Geometry {
  int warps = 1;
  uint32_t batch_rows = 1;
  uint32_t stage_bytes = 0;
  std::size_t shared_bytes() const { return kBarrierBytes + std::size_t(warps) * 2 * batch_rows * stage_bytes; }
};

// Shares out the shared memory: as many warps as get two rows in each batch, then as many rows as fit.
Geometry choose_geometry(uint32_t row_bytes, uint32_t max_coded_bytes, const FetchOptions& options,
                         const DeviceLimits& limits) {
  const uint32_t longest = max_coded_bytes ? max_coded_bytes : row_bytes;
  const uint32_t bytes = std::max(longest, std::min(row_bytes, 1024u));
  Geometry geometry;
  geometry.stage_bytes =
      (kLineBytes + bytes + kSectorBytes + kReadAheadBytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  const uint32_t shared = std::min(kMostSharedBytes, limits.shared_bytes - kBarrierBytes);
  const uint32_t room = shared / geometry.stage_bytes;
  int warps = options.warps_per_block > 0 ? std::min(options.warps_per_block, kMaxWarps) : kMaxWarps;
  warps = std::clamp(static_cast<int>(room / 4), 1, warps);
  geometry.warps = warps;
  geometry.batch_rows = std::clamp<uint32_t>(room / (2 * uint32_t(warps)), 1, kMaxBatchRows);
  return geometry;
}

using GatherKernel = void (*)(ProfileRef, EncodedRef, Job);

template <Form form, typename Staging>
GatherKernel kernel_for(uint32_t words) {
  if (words == 4) return gather_kernel<form, 4, Staging>;
  if (words == 2) return gather_kernel<form, 2, Staging>;
  return gather_kernel<form, 1, Staging>;
}

template <typename Staging>
GatherKernel kernel_for(Form form, uint32_t words) {
  switch (form) {
    case Form::kSingles:
      return kernel_for<Form::kSingles, Staging>(words);
    case Form::kPairs:
      return kernel_for<Form::kPairs, Staging>(words);
    case Form::kChunks4:
      return gather_kernel<Form::kChunks4, 1, Staging>;
    case Form::kChunks8:
      return gather_kernel<Form::kChunks8, 1, Staging>;
    case Form::kSparse:
      return gather_kernel<Form::kSparse, 1, Staging>;
    default:
      return gather_kernel<Form::kRaw, 1, Staging>;
  }
}

// `rows` may be empty when the job's rows are located.
void launch_gather(const ProfileRef& profile, const EncodedRef& rows, const Job& job, const Geometry& geometry,
                   const FetchOptions& options, const DeviceLimits& limits, cudaStream_t stream) {
  if (options.path == CopyPath::kBulk && !limits.bulk) {
    throw Error({"fetch: path", "a GPU of compute capability 9.0 for bulk copies", "an older one", "take kAuto"});
  }
  const bool bulk = options.path == CopyPath::kBulk || (options.path == CopyPath::kAuto && limits.bulk);
  const Form form = form_of(profile);
  const uint32_t words = words_at_once(0, profile.row_bytes);  // `out` itself is at a multiple of 16
  const GatherKernel kernel = bulk ? kernel_for<BulkStaging>(form, words) : kernel_for<AsyncStaging>(form, words);
  const std::size_t bytes = geometry.shared_bytes();
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "give the gather its shared memory");
  const int blocks = options.max_sms > 0 ? std::min(options.max_sms, limits.num_sms) : limits.num_sms;
  kernel<<<blocks, geometry.warps * 32, bytes, stream>>>(profile, rows, job);
  cuda_check(cudaGetLastError(), "launch the gather");
}

void check_out(const void* out) {
  if (reinterpret_cast<uintptr_t>(out) % 16 == 0) return;
  throw Error({"fetch: out", "an address that is a multiple of 16", "another", ""});
}

}  // namespace

struct Gather::Scratch {
  explicit Scratch(int64_t max_rows)
      : keys(std::size_t(max_rows)),
        keys_sorted(std::size_t(max_rows)),
        positions(std::size_t(max_rows)),
        positions_sorted(std::size_t(max_rows)),
        status(1),
        next(1),
        limits(current_limits()),
        host_status(sizeof(kNoError)) {
    std::size_t bytes = 0;
    cuda_check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys.data(), keys_sorted.data(), positions.data(),
                                               positions_sorted.data(), max_rows, 0, 32),
               "size the sort");
    sort_space = base::DeviceBytes(bytes);
    cuda_check(cudaMemset(status.data(), 0xff, sizeof(kNoError)), "clear the gather's status");
    *seen() = kNoError;
  }
  volatile unsigned long long* seen() const {
    return reinterpret_cast<volatile unsigned long long*>(host_status.data());
  }
  base::DeviceArray<uint32_t> keys, keys_sorted;           // uint32 [max_rows]
  base::DeviceArray<int32_t> positions, positions_sorted;  // int32 [max_rows]
  base::DeviceArray<unsigned long long> status, next;
  DeviceLimits limits;
  base::PinnedBytes host_status;
  base::DeviceBytes sort_space;
  bool clear_first = false;
};

Gather::Gather(int64_t max_rows) : max_rows_(max_rows), scratch_(nullptr) {
  if (max_rows < 1 || max_rows > INT32_MAX) {
    throw Error({"Gather: max_rows", "1 to 2^31 - 1", std::to_string(max_rows), "fetch in several calls"});
  }
  scratch_ = std::make_unique<Scratch>(max_rows);
}

Gather::~Gather() = default;

void Gather::check() {
  const unsigned long long status = *scratch_->seen();
  if (status == kNoError) return;
  *scratch_->seen() = kNoError;
  scratch_->clear_first = true;
  const std::string place = "fetch: index[" + std::to_string(status / 2) + "]";
  if (status % 2) throw Error({place, "a valid encoding", "bytes that decode to nothing", "the data is damaged"});
  throw Error({place, "a row of the table", "another number", "an earlier fetch on this Gather may be meant"});
}

void Gather::fetch(const DeviceTable& table, const int64_t* index, int64_t count, void* out, cudaStream_t stream,
                   const FetchOptions& options) {
  check();
  if (count < 0 || count > max_rows_) {
    throw Error(
        {"fetch: rows", "at most " + std::to_string(max_rows_), std::to_string(count), "make the Gather larger"});
  }
  check_out(out);
  if (count == 0) return;
  Scratch& scratch = *scratch_;
  if (scratch.clear_first) cuda_check(cudaMemsetAsync(scratch.status.data(), 0xff, sizeof(kNoError), stream));
  scratch.clear_first = false;
  const EncodedRef& rows = table.ref();
  const Geometry geometry = choose_geometry(rows.row_bytes, rows.max_coded_bytes, options, scratch.limits);
  Job job{};
  job.index = index;
  job.count = count;
  job.out = static_cast<std::byte*>(out);
  job.status = scratch.status.data();
  job.stage_bytes = geometry.stage_bytes;
  job.batch_rows = geometry.batch_rows;
  if (options.order == Order::kSorted || (options.order == Order::kAuto && table.on_host())) {
    const int64_t num_rows = rows.num_rows;
    make_keys_kernel<<<base::grid_for(count, 1024), base::kBlockThreads, 0, stream>>>(
        index, count, num_rows, scratch.keys.data(), scratch.positions.data(), scratch.next.data());
    std::size_t bytes = scratch.sort_space.bytes();
    // Sixteen bits order the rows well enough for address translation, and take two passes.
    const int bits = std::bit_width(static_cast<uint64_t>(num_rows));
    cuda_check(
        cub::DeviceRadixSort::SortPairs(scratch.sort_space.data(), bytes, scratch.keys.data(),
                                        scratch.keys_sorted.data(), scratch.positions.data(),
                                        scratch.positions_sorted.data(), count, std::max(0, bits - 16), bits, stream),
        "order rows by address");
    job.sorted = scratch.keys_sorted.data();
    job.positions = scratch.positions_sorted.data();
    job.next = scratch.next.data();
  }
  launch_gather(table.profile(), rows, job, geometry, options, scratch.limits, stream);
  cuda_check(cudaMemcpyAsync(scratch.host_status.data(), scratch.status.data(), sizeof(kNoError),
                             cudaMemcpyDeviceToHost, stream),
             "report the gather's status");
  if (!options.check) return;
  cuda_check(cudaStreamSynchronize(stream), "fetch");
  check();
}

void fetch_located(const DeviceProfile& profile, const LocatedRows& rows, void* out, unsigned long long* status,
                   cudaStream_t stream, const FetchOptions& options) {
  check_out(out);
  const DeviceLimits limits = current_limits();
  const Geometry geometry = choose_geometry(profile.ref().row_bytes, rows.max_coded_bytes, options, limits);
  Job job{};
  job.entries = rows.entries;
  job.positions = rows.positions;
  job.found_count = rows.count;
  job.next = rows.next;
  job.out = static_cast<std::byte*>(out);
  job.status = status;
  job.stage_bytes = geometry.stage_bytes;
  job.batch_rows = geometry.batch_rows;
  job.regions = rows.regions;
  launch_gather(profile.ref(), EncodedRef{}, job, geometry, options, limits, stream);
}

}  // namespace cohort::ibp
