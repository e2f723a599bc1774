// Gather and decode: a persistent grid of warps, each with two batches of rows: one on its way, one being decoded.
#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/device.h"
#include "base/launch.h"
#include "ibp/copy_rows.cuh"
#include "ibp/gather_batch.cuh"
#include "ibp/gpu.h"
#include "ibp/staging.cuh"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr int kMaxWarps = 32;
constexpr uint32_t kMaxBatchRows = 16;
constexpr uint32_t kMostSharedBytes = 224 * 1024;      // of a block, for stages
constexpr uint32_t kMostRawBytes = 1024;               // a longer raw row among shorter coded ones is not staged
constexpr uint32_t kBarrierBytes = kMaxWarps * 2 * 8;  // two barriers a warp, before the stages
constexpr unsigned long long kNoError = kNoFetchError;

// The batches of one warp: handed out in order, so that the rows on their way lie close together (address translation
// then holds: measured 50 instead of 32 GB/s from a table of 16 GB), or every so-manyth.
class Tickets {
 public:
  __device__ explicit Tickets(const Job& job) : job_(job) {
    const uint32_t num_warps = blockDim.x / 32;
    own_ = (blockIdx.x * num_warps + threadIdx.x / 32) * job.batch_rows;
    step_ = gridDim.x * num_warps * job.batch_rows;
  }
  __device__ uint32_t take() {
    if (!job_.next) {
      const uint32_t first = own_;
      own_ += step_;
      return first;
    }
    uint32_t first = 0;
    if (lane_id() == 0) first = atomicAdd(job_.next, job_.batch_rows);
    return __shfl_sync(kAllLanes, first, 0);
  }

 private:
  const Job& job_;
  uint32_t own_, step_;
};

template <Form form, uint32_t kWords, typename Staging>
__global__ void __launch_bounds__(kMaxWarps * 32, 1) gather_kernel(ProfileRef profile, EncodedRef rows, Job job) {
  extern __shared__ __align__(128) std::byte shared[];
  const uint32_t warp = threadIdx.x / 32;
  Staging staging(shared + kBarrierBytes + warp * 2 * job.batch_rows * job.stage_bytes,
                  reinterpret_cast<uint64_t*>(shared) + warp * 2, job.stage_bytes, job.batch_rows);
  const RowDecoder<form, kWords> decoder(profile);
  Tickets tickets(job);
  const uint32_t count = job.num_rows(), least_bytes = decoder.least_bytes();
  uint32_t first = tickets.take(), next_first = tickets.take();
  Window window, next_window;
  Item items = load_item(rows, job, count, least_bytes, first, window);
  Item next = load_item(rows, job, count, least_bytes, next_first, next_window);
  staging.issue(0, window);
  staging.issue(1, next_window);
  __syncwarp();  // for racecheck, to which a bulk copy is its lane's own write
  for (uint32_t batch = 0; first < count; batch ^= 1) {
    const uint32_t ahead_first = tickets.take();
    const Item ahead = load_item(rows, job, count, least_bytes, ahead_first, window);
    staging.wait(batch);
    decode_batch(decoder, rows, job, {first, min(job.batch_rows, count - first), staging.stage(batch, 0)}, items);
    __syncwarp();  // every lane is done with the stages
    staging.issue(batch, window);
    items = next;
    next = ahead;
    first = next_first;
    next_first = ahead_first;
  }
}

// Sort keys: the row, or num_rows for a bad index, which so comes last and is reported by the gather.
__global__ void make_keys_kernel(const int64_t* index, int64_t count, int64_t num_rows, uint32_t* keys,
                                 int32_t* positions, uint32_t* next) {
  if (base::grid_first() == 0) *next = 0;
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const int64_t row = index[i];
    keys[i] = static_cast<uint32_t>(row >= 0 && row < num_rows ? row : num_rows);
    positions[i] = static_cast<int32_t>(i);
  }
}

// The current GPU. A Gather asks once, fetch_located() at every call.
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

int sms_of(const FetchOptions& options, const DeviceLimits& limits) {
  return options.max_sms > 0 ? std::min(options.max_sms, limits.num_sms) : limits.num_sms;
}

struct Geometry {
  int warps = 1;
  uint32_t batch_rows = 1;
  uint32_t stage_bytes = 0;
  uint32_t row_room = 0;
  std::size_t shared_bytes() const { return kBarrierBytes + std::size_t(warps) * 2 * batch_rows * stage_bytes; }
};

// The furthest place in its line of a row of `first + i * stride`, any i.
uint32_t last_place(const std::byte* first, uint32_t stride) {
  const uint32_t step = std::gcd(stride, kLineBytes);
  return kLineBytes - step + static_cast<uint32_t>(reinterpret_cast<uintptr_t>(first) % step);
}

// The longest rows that a fetch may meet, and how far into a line they may begin.
struct RowExtent {
  uint32_t raw_bytes = 0, raw_place = 0;
  uint32_t coded_bytes = 0, coded_place = 0;
};

RowExtent extent_of(const EncodedRef& rows) {
  const bool slots = rows.layout == Layout::kSlots;
  const uint32_t place = last_place(rows.data, rows.layout == Layout::kPacked ? 4 : rows.stride_bytes);
  const uint32_t longest = rows.max_coded_bytes ? rows.max_coded_bytes : rows.row_bytes;
  return {rows.row_bytes, slots ? last_place(rows.overflow, rows.overflow_stride_bytes) : place,
          std::max(longest, slots ? rows.stride_bytes : 0), place};
}

// What a stage must hold: a row from its place in its line on, and what its decoder reads beyond.
uint32_t bytes_to_stage(const ProfileRef& profile, const RowExtent& rows, uint32_t read_ahead) {
  const uint32_t raw = std::min(rows.raw_bytes, kMostRawBytes) + read_ahead;
  const uint32_t coded = std::max(rows.coded_bytes + read_ahead, least_coded_bytes(profile) + kReadAheadBytes);
  return std::max(rows.raw_place + raw, rows.coded_place + coded);
}

// Shares out the shared memory: as many warps as get two rows in each batch, then as many rows as fit.
Geometry choose_geometry(const ProfileRef& profile, const RowExtent& rows, const FetchOptions& options,
                         const DeviceLimits& limits) {
  const uint32_t read_ahead = reads_ahead(form_of(profile)) ? kReadAheadBytes : 0;
  Geometry geometry;
  geometry.stage_bytes = (bytes_to_stage(profile, rows, read_ahead) + kLineBytes - 1) / kLineBytes * kLineBytes;
  geometry.row_room = geometry.stage_bytes - read_ahead;
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
    case Form::kSingles128:
      return gather_kernel<Form::kSingles128, 4, Staging>;
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

void launch_gather(const ProfileRef& profile, const EncodedRef& rows, Job& job, const RowExtent& extent,
                   const FetchOptions& options, const DeviceLimits& limits, cudaStream_t stream) {
  if (options.path == CopyPath::kBulk && !limits.bulk) {
    throw Error({"fetch: path", "a GPU of compute capability 9.0 for bulk copies", "an older one", "take kAuto"});
  }
  const Geometry geometry = choose_geometry(profile, extent, options, limits);
  job.row_room = geometry.row_room;
  job.stage_bytes = geometry.stage_bytes;
  job.batch_rows = geometry.batch_rows;
  const bool bulk = options.path == CopyPath::kBulk || (options.path == CopyPath::kAuto && limits.bulk);
  const Form form = form_of(profile);
  const uint32_t words = words_at_once(0, profile.row_bytes);  // `out` itself is at a multiple of 16
  const GatherKernel kernel = bulk ? kernel_for<BulkStaging>(form, words) : kernel_for<AsyncStaging>(form, words);
  const std::size_t bytes = geometry.shared_bytes();
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "give the gather its shared memory");
  kernel<<<sms_of(options, limits), geometry.warps * 32, bytes, stream>>>(profile, rows, job);
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
    base::fill_gpu(status.data(), 0xff, sizeof(kNoError), "clear the gather's status");
    *seen() = kNoError;
  }
  volatile unsigned long long* seen() const {
    return reinterpret_cast<volatile unsigned long long*>(host_status.data());
  }
  base::DeviceArray<uint32_t> keys, keys_sorted;           // uint32 [max_rows]
  base::DeviceArray<int32_t> positions, positions_sorted;  // int32 [max_rows]
  base::DeviceArray<unsigned long long> status;
  base::DeviceArray<uint32_t> next;
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
  Job job{};
  job.index = index;
  job.count = static_cast<uint32_t>(count);
  job.out = static_cast<std::byte*>(out);
  job.status = scratch.status.data();
  if (options.order == Order::kSorted || (options.order == Order::kAuto && table.on_host())) {
    const int64_t num_rows = table.ref().num_rows;
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
  launch_gather(table.profile(), table.ref(), job, extent_of(table.ref()), options, scratch.limits, stream);
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
  if (rows.on_gpu && form_of(profile.ref()) == Form::kRaw && copies_words(rows, profile.ref().row_bytes)) {
    launch_copy(rows, profile.ref().row_bytes, static_cast<std::byte*>(out), sms_of(options, limits), stream);
    cuda_check(cudaGetLastError(), "launch the copy of rows");
    return;
  }
  EncodedRef decoded;
  decoded.row_bytes = profile.ref().row_bytes;
  Job job{};
  job.entries = rows.entries;
  job.positions = rows.positions;
  job.found_count = rows.count;
  job.next = rows.next;
  job.out = static_cast<std::byte*>(out);
  job.status = status;
  job.regions = rows.regions;
  const uint32_t place = last_place(nullptr, rows.step_bytes), row_bytes = decoded.row_bytes;
  const RowExtent extent{row_bytes, place, rows.max_coded_bytes ? rows.max_coded_bytes : row_bytes, place};
  launch_gather(profile.ref(), decoded, job, extent, options, limits, stream);
}

}  // namespace cohort::ibp
