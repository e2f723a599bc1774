// Gather and decode: a persistent grid of warps, each with two batches of rows: one on its way, one being decoded.
#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/launch.h"
#include "ibp/copy_rows.cuh"
#include "ibp/gather_batch.cuh"
#include "ibp/gpu.h"
#include "ibp/row_codec.h"
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
    if (!job_.rows.next) {
      const uint32_t first = own_;
      own_ += step_;
      return first;
    }
    uint32_t first = 0;
    if (lane_id() == 0) first = atomicAdd(job_.rows.next, job_.batch_rows);
    return __shfl_sync(kAllLanes, first, 0);
  }

 private:
  const Job& job_;
  uint32_t own_, step_;
};

template <Form form, uint32_t kWords, typename Staging>
__global__ void __launch_bounds__(kMaxWarps * 32, 1) gather_kernel(ProfileRef profile, Job job) {
  extern __shared__ __align__(128) std::byte shared[];
  const uint32_t warp = threadIdx.x / 32;
  constexpr bool kTwo = has_two_windows(form);
  Staging staging(shared + kBarrierBytes + warp * 2 * job.batch_rows * job.stage_bytes,
                  reinterpret_cast<uint64_t*>(shared) + warp * 2, job.stage_bytes, job.batch_rows, job.plane_b_at);
  const RowDecoder<form, kWords> decoder(profile);
  Tickets tickets(job);
  const uint32_t count = static_cast<uint32_t>(*job.rows.count), least_bytes = decoder.least_bytes();
  uint32_t first = tickets.take(), next_first = tickets.take();
  Windows windows, next_windows;
  Item items = load_item<form>(job, count, least_bytes, first, windows);
  Item next = load_item<form>(job, count, least_bytes, next_first, next_windows);
  staging.template issue<kTwo>(0, windows);
  staging.template issue<kTwo>(1, next_windows);
  __syncwarp();  // for racecheck, to which a bulk copy is its lane's own write
  for (uint32_t batch = 0; first < count; batch ^= 1) {
    const uint32_t ahead_first = tickets.take();
    const Item ahead = load_item<form>(job, count, least_bytes, ahead_first, windows);
    staging.wait(batch);
    decode_batch(decoder, job, {first, min(job.batch_rows, count - first), staging.stage(batch, 0)}, items);
    __syncwarp();  // every lane is done with the stages
    staging.template issue<kTwo>(batch, windows);
    items = next;
    next = ahead;
    first = next_first;
    next_first = ahead_first;
  }
}

// Sort keys: the row, or num_rows for a bad index, which so comes last.
__global__ void make_keys_kernel(const int64_t* index, int64_t count, int64_t num_rows, uint32_t* keys,
                                 int32_t* positions) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const int64_t row = index[i];
    keys[i] = static_cast<uint32_t>(row >= 0 && row < num_rows ? row : num_rows);
    positions[i] = static_cast<int32_t>(i);
  }
}

// What locate_kernel() writes.
struct Located {
  uint64_t* entries;  // uint64 [count]
  unsigned long long* count;
  uint32_t* next;
  unsigned long long* status;
};

// The rows of `index` as fetch_located() takes them, in the order of `positions`; null: as given. A bad one is reported
// and has no bytes.
__global__ void locate_kernel(EncodedRef rows, const int64_t* index, const int32_t* positions, int64_t count,
                              Located to) {
  if (base::grid_first() == 0) {
    *to.next = 0;
    *to.count = static_cast<unsigned long long>(count);
  }
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const auto position = static_cast<uint32_t>(positions ? positions[i] : i);
    const int64_t row = index[position];
    const bool exists = row >= 0 && row < rows.num_rows;
    to.entries[i] = exists ? entry_of(rows, row) : make_entry(0, 0, true);
    if (!exists) report(to.status, position, false);
  }
}

// The current GPU.
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
  uint32_t row_room = 0;
  uint32_t plane_b_at = 0;
  std::size_t shared_bytes() const { return kBarrierBytes + std::size_t(warps) * 2 * batch_rows * stage_bytes; }
};

// What a stage must hold: a row from its place in its line on, and what its decoder reads beyond.
uint32_t bytes_to_stage(const ProfileRef& profile, const LocatedRows& rows, uint32_t read_ahead) {
  const uint32_t last_place = kLineBytes - std::gcd(rows.step_bytes, kLineBytes);
  const uint32_t longest = rows.max_coded_bytes ? rows.max_coded_bytes : profile.row_bytes;
  const uint32_t raw = std::min(profile.row_bytes, kMostRawBytes) + read_ahead;
  const uint32_t coded = std::max(longest + read_ahead, least_coded_bytes(profile) + kReadAheadBytes);
  return last_place + std::max(raw, coded);
}

// Codec planes: a stage is a slot of plane A from its place in its line on and, if it is asked for, plane B the same
// way. A raw row that finds no room in it is not staged.
void stage_planes(const ProfileRef& profile, const LocatedRows& rows, bool plane_a, Geometry& geometry) {
  const auto room = [](uint32_t step_bytes, uint32_t bytes) {
    return (kLineBytes - std::gcd(step_bytes, kLineBytes) + bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  };
  const uint32_t step = std::gcd(rows.step_bytes, kLineBytes), plane_b_bytes = profile.plane_b_bytes();
  geometry.stage_bytes = room(step, profile.slot_bytes);
  if (!plane_a) {
    geometry.plane_b_at = geometry.stage_bytes;
    const auto begin = reinterpret_cast<uintptr_t>(rows.plane_b.begin);
    const uint64_t step_b = begin ? std::gcd(begin, uintptr_t{plane_b_bytes}) : std::gcd(step, profile.slot_bytes);
    geometry.stage_bytes += room(static_cast<uint32_t>(std::gcd(step_b, uint64_t{kLineBytes})), plane_b_bytes);
  }
  geometry.row_room = geometry.stage_bytes;
}

// Shares out the shared memory: as many warps as get two rows in each batch, then as many rows as fit.
Geometry choose_geometry(const ProfileRef& profile, Form form, const LocatedRows& rows, const DeviceLimits& limits) {
  const uint32_t read_ahead = reads_ahead(form) ? kReadAheadBytes : 0;
  Geometry geometry;
  geometry.stage_bytes = (bytes_to_stage(profile, rows, read_ahead) + kLineBytes - 1) / kLineBytes * kLineBytes;
  geometry.row_room = geometry.stage_bytes - read_ahead;
  if (profile.codec == Codec::kPlanes) stage_planes(profile, rows, is_plane_a(form), geometry);
  const uint32_t shared = std::min(kMostSharedBytes, limits.shared_bytes - kBarrierBytes);
  const uint32_t room = shared / geometry.stage_bytes;
  geometry.warps = std::clamp(static_cast<int>(room / 4), 1, kMaxWarps);
  geometry.batch_rows = std::clamp<uint32_t>(room / (2 * uint32_t(geometry.warps)), 1, kMaxBatchRows);
  return geometry;
}

using GatherKernel = void (*)(ProfileRef, Job);

template <typename Staging>
GatherKernel kernel_for(Form form, uint32_t words) {
  return with_form<kDecodeForms>(form, [words](auto known) -> GatherKernel {
    constexpr Form kForm = known();
    if constexpr (stores_words(kForm, 4)) {
      if (words == 4 || !stores_words(kForm, 1)) return gather_kernel<kForm, 4, Staging>;
    }
    if constexpr (stores_words(kForm, 2)) {
      if (words == 2) return gather_kernel<kForm, 2, Staging>;
    }
    if constexpr (stores_words(kForm, 1)) return gather_kernel<kForm, 1, Staging>;
    return nullptr;
  });
}

bool has_plane_a_alone(const DeviceTable& table) {  // plane_a_of()
  return table.profile().ref().codec == Codec::kPlanes && !table.ref().plane_b;
}

}  // namespace

struct Gather::Scratch {
  explicit Scratch(int64_t max_rows)
      : keys(std::size_t(max_rows)),
        keys_sorted(std::size_t(max_rows)),
        positions(std::size_t(max_rows)),
        positions_sorted(std::size_t(max_rows)),
        entries(std::size_t(max_rows)),
        count(1),
        status(1),
        next(1),
        host_status(sizeof(kNoError)) {
    std::size_t bytes = 0;
    cuda_check(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys.data(), keys_sorted.data(), positions.data(),
                                               positions_sorted.data(), max_rows, 0, 32),
               "size the sort");
    sort_space = base::DeviceBytes(bytes);
    base::fill_gpu(status.data(), 0xff, sizeof(kNoError), "clear the gather's status");
    *seen() = kNoError;
  }
  // Orders rows by address: sixteen bits order them well enough for address translation, and take two passes.
  void sort(const int64_t* index, int64_t count, int64_t num_rows, cudaStream_t stream) {
    make_keys_kernel<<<base::grid_for(count, 1024), base::kBlockThreads, 0, stream>>>(index, count, num_rows,
                                                                                      keys.data(), positions.data());
    std::size_t bytes = sort_space.bytes();
    const int bits = std::bit_width(static_cast<uint64_t>(num_rows));
    cuda_check(
        cub::DeviceRadixSort::SortPairs(sort_space.data(), bytes, keys.data(), keys_sorted.data(), positions.data(),
                                        positions_sorted.data(), count, std::max(0, bits - 16), bits, stream),
        "order rows by address");
  }
  // The status, of an error that check() has raised.
  void clear(cudaStream_t stream) {
    if (clear_first) cuda_check(cudaMemsetAsync(status.data(), 0xff, sizeof(kNoError), stream));
    clear_first = false;
  }
  volatile unsigned long long* seen() const {
    return reinterpret_cast<volatile unsigned long long*>(host_status.data());
  }
  base::DeviceArray<uint32_t> keys, keys_sorted;           // uint32 [max_rows]
  base::DeviceArray<int32_t> positions, positions_sorted;  // int32 [max_rows]
  base::DeviceArray<uint64_t> entries;                     // uint64 [max_rows]
  base::DeviceArray<unsigned long long> count, status;
  base::DeviceArray<uint32_t> next;
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
  if (status % 2) throw Error({place, "a valid encoding", "bytes that are not an encoded row", "the data is damaged"});
  throw Error({place, "the number of a row of the table", "a number below 0, or too large",
               "an earlier fetch with this Gather may have had the wrong number"});
}

void Gather::fetch(const DeviceTable& table, const int64_t* index, int64_t count, void* out, cudaStream_t stream,
                   const FetchOptions& options) {
  check();
  if (count < 0 || count > max_rows_) {
    throw Error(
        {"fetch: rows", "at most " + std::to_string(max_rows_), std::to_string(count), "make the Gather larger"});
  }
  demand_multiple("fetch: out", out, 16);
  const Codec codec = table.profile().ref().codec;
  if (options.plane_a && codec != Codec::kPlanes) {
    throw Error(
        {"fetch: plane A", "rows of codec planes", "codec " + name_of(codec), "encode the rows with codec planes"});
  }
  const bool plane_a = options.plane_a || has_plane_a_alone(table);
  if (options.bfloat16 && !plane_a) {
    throw Error({"fetch: bfloat16", "plane A of rows of codec planes", "both planes of each row", "fetch plane A"});
  }
  if (count == 0) return;
  Scratch& scratch = *scratch_;
  scratch.clear(stream);
  LocatedRows rows = rows_of(table);
  rows.entries = scratch.entries.data();
  rows.count = scratch.count.data();
  if (table.on_host()) rows.next = scratch.next.data();
  if (options.by_address && table.on_host()) {
    scratch.sort(index, count, table.ref().num_rows, stream);
    rows.positions = scratch.positions_sorted.data();
  }
  locate_kernel<<<base::grid_for(count, 1024), base::kBlockThreads, 0, stream>>>(
      table.ref(), index, rows.positions, count,
      {scratch.entries.data(), scratch.count.data(), scratch.next.data(), scratch.status.data()});
  FetchOptions chosen = options;
  chosen.plane_a = plane_a;
  fetch_rows(table, rows, out, stream, chosen);
}

void Gather::fetch_distinct(const DeviceTable& table, const DistinctRef& found, void* out, cudaStream_t stream) {
  check();
  scratch_->clear(stream);
  LocatedRows rows = rows_of(table);
  rows.entries = found.entries;
  rows.count = found.count;
  if (table.on_host()) rows.next = found.next;
  fetch_rows(table, rows, out, stream, {.plane_a = has_plane_a_alone(table)});
}

void Gather::fetch_rows(const DeviceTable& table, const LocatedRows& rows, void* out, cudaStream_t stream,
                        const FetchOptions& options) {
  Scratch& scratch = *scratch_;
  fetch_located(table.profile(), rows, out, scratch.status.data(), stream, options);
  cuda_check(cudaMemcpyAsync(scratch.host_status.data(), scratch.status.data(), sizeof(kNoError),
                             cudaMemcpyDeviceToHost, stream),
             "report the gather's status");
  if (!options.check) return;
  cuda_check(cudaStreamSynchronize(stream), "fetch");
  check();
}

void fetch_located(const DeviceProfile& device_profile, const LocatedRows& rows, void* out, unsigned long long* status,
                   cudaStream_t stream, const FetchOptions& options) {
  demand_multiple("fetch: out", out, 16);
  const ProfileRef& profile = device_profile.ref();
  const Form form = form_of(profile, options.plane_a, options.bfloat16);
  const DeviceLimits limits = current_limits();
  const int sms = options.max_sms > 0 ? std::min(options.max_sms, limits.num_sms) : limits.num_sms;
  if (rows.on_gpu && form == Form::kRaw && copies_words(rows, profile.row_bytes)) {
    launch_copy(rows, profile.row_bytes, static_cast<std::byte*>(out), sms, stream);
    cuda_check(cudaGetLastError(), "launch the copy of rows");
    return;
  }
  const Geometry geometry = choose_geometry(profile, form, rows, limits);
  const Job job{.rows = rows,
                .out = static_cast<std::byte*>(out),
                .row_bytes = profile.row_bytes,
                .out_bytes = is_rounded(form) ? profile.row_bytes / 2 : profile.row_bytes,
                .status = status,
                .row_room = geometry.row_room,
                .stage_bytes = geometry.stage_bytes,
                .batch_rows = geometry.batch_rows,
                .slot_bytes = profile.slot_bytes,
                .plane_b_bytes = profile.codec == Codec::kPlanes ? profile.plane_b_bytes() : 0,
                .plane_b_at = geometry.plane_b_at};
  const uint32_t words = words_at_once(profile.row_bytes);
  const bool bulk = options.bulk && limits.bulk;
  const GatherKernel kernel = bulk ? kernel_for<BulkStaging>(form, words) : kernel_for<AsyncStaging>(form, words);
  const std::size_t bytes = geometry.shared_bytes();
  // The most that any gather takes: threads that set what each of them takes would undo each other's.
  const uint32_t most = std::min(kMostSharedBytes + kBarrierBytes, limits.shared_bytes);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)),
             "give the gather its shared memory");
  kernel<<<sms, geometry.warps * 32, bytes, stream>>>(profile, job);
  cuda_check(cudaGetLastError(), "launch the gather");
}

}  // namespace cohort::ibp
