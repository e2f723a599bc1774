// Gather and decode: a persistent grid of warps, each with a ring of rows on their way.
#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "base/launch.h"
#include "ibp/gpu.h"
#include "ibp/staging.cuh"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr int kMaxWarps = 32;
constexpr uint32_t kMaxStages = 8;
constexpr uint32_t kSharedBytes = 200 * 1024;  // of a block, for stages; the SM has 227 KB
constexpr unsigned long long kNoError = ~0ull;

// What went wrong first: position * 2, plus 1 when the row itself is damaged.
__device__ void report(unsigned long long* status, int64_t position, bool damaged) {
  atomicMin(status, static_cast<unsigned long long>(position) * 2 + (damaged ? 1 : 0));
}

struct Job {
  const int64_t* index;      // int64 [count]
  const uint32_t* sorted;    // uint32 [count] rows by address, or null: as given
  const int32_t* positions;  // int32 [count] where each of `sorted` goes
  int64_t count;
  std::byte* out;  // [count, row_bytes]
  unsigned long long* status;
  uint32_t stage_bytes;
  uint32_t num_stages;
};

// One row of a warp's list, as its lane knows it.
struct Item {
  RowSpan span;
  int32_t position = -1;  // -1: no row
  bool staged = false;
};

__device__ Item load_item(const EncodedRef& rows, const Job& job, int64_t i) {
  Item item;
  if (i >= job.count) return item;
  item.position = job.sorted ? job.positions[i] : static_cast<int32_t>(i);
  const int64_t row = job.sorted ? int64_t{job.sorted[i]} : job.index[i];
  if (row < 0 || row >= rows.num_rows) return item;
  item.span = locate(rows, row);
  const Window window = window_of(item.span);
  const bool inside = rows.layout != Layout::kInPlace || window.begin + window.bytes <= rows.data + rows.data_bytes;
  item.staged = inside && window.bytes <= job.stage_bytes;
  return item;
}

// The item of lane `owner`, in every lane.
__device__ Item broadcast(const Item& mine, uint32_t owner) {
  Item item;
  item.span.begin = reinterpret_cast<const std::byte*>(
      __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.span.begin), owner));
  const uint32_t packed = mine.span.bytes * 4 + (mine.span.raw ? 1u : 0u) + (mine.staged ? 2u : 0u);
  const uint32_t bits = __shfl_sync(kAllLanes, packed, owner);
  item.span.bytes = bits / 4;
  item.span.raw = bits & 1;
  item.staged = bits & 2;
  item.position = __shfl_sync(kAllLanes, mine.position, owner);
  return item;
}

// By value and field by field, so that both stay in registers.
__device__ Item choose(bool first, const Item& a, const Item& b) {
  Item item;
  item.span.begin = first ? a.span.begin : b.span.begin;
  item.span.bytes = first ? a.span.bytes : b.span.bytes;
  item.staged = first ? a.staged : b.staged;
  return item;
}

template <Form form, typename Staging>
__device__ void decode_item(const ProfileRef& profile, const Job& job, const Item& item, const Staging& staging,
                            uint32_t stage) {
  std::byte* out = job.out + item.position * int64_t{profile.row_bytes};
  const bool found = item.span.begin != nullptr;
  bool ok = false;
  if (item.staged) {
    const auto offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(item.span.begin) % 16);
    const auto* words = reinterpret_cast<const uint32_t*>(staging.stage(stage) + offset);
    __builtin_assume(__isShared(words));
    ok = decode_row_warp<form>(profile, item.span, words, out);
  } else if (found) {
    ok = decode_row_warp<form>(profile, item.span, reinterpret_cast<const uint32_t*>(item.span.begin), out);
  }
  if (ok) return;
  __syncwarp();
  zero_row_warp(out, profile.row_bytes);
  if (lane_id() == 0) report(job.status, item.position, found);
}

template <Form form, typename Staging>
__global__ void __launch_bounds__(kMaxWarps * 32) gather_kernel(ProfileRef profile, EncodedRef rows, Job job) {
  extern __shared__ __align__(128) std::byte shared[];
  const uint32_t warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
  const uint32_t barrier_bytes = (num_warps * kMaxStages * 8 + 127) / 128 * 128;
  Staging staging(shared + barrier_bytes + warp * job.num_stages * job.stage_bytes,
                  reinterpret_cast<uint64_t*>(shared) + warp * kMaxStages, job.stage_bytes, job.num_stages);
  const int64_t first = int64_t{blockIdx.x} * num_warps + warp, step = int64_t{gridDim.x} * num_warps;
  const auto item_at = [&](int64_t k) { return load_item(rows, job, first + k * step); };
  Item current = item_at(lane_id()), next;
  for (uint32_t k = 0; k < job.num_stages; ++k) staging.issue(k, current.span, current.staged, k);
  const auto count = static_cast<int32_t>(first < job.count ? (job.count - first + step - 1) / step : 0);
  uint32_t stage = 0;
  for (int32_t k = 0; k < count; ++k) {
    const uint32_t turn = static_cast<uint32_t>(k) % 32;
    if (turn == 0) next = item_at(k + 32 + lane_id());
    const Item item = broadcast(current, turn);
    staging.wait(stage, item.staged, turn);
    decode_item<form>(profile, job, item, staging, stage);
    __syncwarp();  // every lane is done with the stage
    const uint32_t ahead = turn + job.num_stages;
    const Item coming = choose(ahead < 32, current, next);
    staging.issue(stage, coming.span, coming.staged, ahead % 32);
    stage = stage + 1 == job.num_stages ? 0 : stage + 1;
    if (turn == 31) current = next;
  }
}

// Sort keys: the row, or num_rows for a bad index, which so comes last and is reported by the gather.
__global__ void make_keys_kernel(const int64_t* index, int64_t count, int64_t num_rows, uint32_t* keys,
                                 int32_t* positions) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const int64_t row = index[i];
    keys[i] = static_cast<uint32_t>(row >= 0 && row < num_rows ? row : num_rows);
    positions[i] = static_cast<int32_t>(i);
  }
}

// The GPU in use: asked once a device.
struct DeviceLimits {
  int num_sms = 0;
  bool bulk = false;
};
DeviceLimits current_limits() {
  int device = 0, major = 0;
  DeviceLimits limits;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&limits.num_sms, cudaDevAttrMultiProcessorCount, device));
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  limits.bulk = major >= 9;
  return limits;
}

struct Geometry {
  int warps = 1;
  uint32_t stages = 1;
  uint32_t stage_bytes = 0;
  std::size_t shared_bytes() const {
    return (std::size_t(warps) * kMaxStages * 8 + 127) / 128 * 128 + std::size_t(warps) * stages * stage_bytes;
  }
};

// Shares out the shared memory: as many warps as get at least two stages each, then as many stages as fit.
Geometry choose_geometry(const EncodedRef& rows, const FetchOptions& options) {
  const uint32_t longest = rows.max_coded_bytes ? rows.max_coded_bytes : (rows.row_bytes + 3) / 4 * 4;
  Geometry geometry;
  geometry.stage_bytes = (std::max(longest, std::min(rows.row_bytes, 1024u)) + 30) / 16 * 16;
  const uint32_t room = kSharedBytes / geometry.stage_bytes;
  int warps = options.warps_per_block > 0 ? std::min(options.warps_per_block, kMaxWarps) : kMaxWarps;
  while (warps > 1 && uint32_t(warps) * 2 > room) warps /= 2;
  geometry.warps = warps;
  geometry.stages = std::bit_floor(std::clamp<uint32_t>(room / uint32_t(warps), 1, kMaxStages));
  return geometry;
}

using GatherKernel = void (*)(ProfileRef, EncodedRef, Job);

template <typename Staging>
GatherKernel kernel_for(Form form) {
  switch (form) {
    case Form::kSingles:
      return gather_kernel<Form::kSingles, Staging>;
    case Form::kPairs:
      return gather_kernel<Form::kPairs, Staging>;
    case Form::kChunks4:
      return gather_kernel<Form::kChunks4, Staging>;
    case Form::kChunks8:
      return gather_kernel<Form::kChunks8, Staging>;
    case Form::kSparse:
      return gather_kernel<Form::kSparse, Staging>;
    default:
      return gather_kernel<Form::kRaw, Staging>;
  }
}

void launch_gather(GatherKernel kernel, const DeviceTable& table, const Job& job, const Geometry& geometry, int blocks,
                   cudaStream_t stream) {
  const std::size_t bytes = geometry.shared_bytes();
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "give the gather its shared memory");
  kernel<<<blocks, geometry.warps * 32, bytes, stream>>>(table.profile(), table.ref(), job);
  cuda_check(cudaGetLastError(), "launch the gather");
}

}  // namespace

struct Gather::Scratch {
  explicit Scratch(int64_t max_rows)
      : keys(std::size_t(max_rows)),
        keys_sorted(std::size_t(max_rows)),
        positions(std::size_t(max_rows)),
        positions_sorted(std::size_t(max_rows)),
        status(1),
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
  base::DeviceArray<unsigned long long> status;
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
  if (options.path == CopyPath::kBulk && !scratch_->limits.bulk) {
    throw Error({"fetch: path", "a GPU of compute capability 9.0 for bulk copies", "an older one", "take kAuto"});
  }
  if (reinterpret_cast<uintptr_t>(out) % 16 != 0) {
    throw Error({"fetch: out", "an address that is a multiple of 16", "another", ""});
  }
  if (count == 0) return;
  Scratch& scratch = *scratch_;
  if (scratch.clear_first) cuda_check(cudaMemsetAsync(scratch.status.data(), 0xff, sizeof(kNoError), stream));
  scratch.clear_first = false;
  const Geometry geometry = choose_geometry(table.ref(), options);
  Job job{index,
          nullptr,
          nullptr,
          count,
          static_cast<std::byte*>(out),
          scratch.status.data(),
          geometry.stage_bytes,
          geometry.stages};
  if (options.order == Order::kSorted || (options.order == Order::kAuto && table.on_host())) {
    const int64_t num_rows = table.ref().num_rows;
    make_keys_kernel<<<base::grid_for(count, 1024), base::kBlockThreads, 0, stream>>>(
        index, count, num_rows, scratch.keys.data(), scratch.positions.data());
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
  }
  const int sms = options.max_sms > 0 ? std::min(options.max_sms, scratch.limits.num_sms) : scratch.limits.num_sms;
  const bool bulk = options.path == CopyPath::kBulk || (options.path == CopyPath::kAuto && scratch.limits.bulk);
  const Form form = form_of(table.profile());
  launch_gather(bulk ? kernel_for<BulkStaging>(form) : kernel_for<AsyncStaging>(form), table, job, geometry, sms,
                stream);
  cuda_check(cudaMemcpyAsync(scratch.host_status.data(), scratch.status.data(), sizeof(kNoError),
                             cudaMemcpyDeviceToHost, stream),
             "report the gather's status");
  if (!options.check) return;
  cuda_check(cudaStreamSynchronize(stream), "fetch");
  check();
}

}  // namespace cohort::ibp
