// put() on the GPU: the rows are claimed first, so that nothing changes if ids are wrong, then encoded and stored.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/cuda_check.h"
#include "base/device.h"
#include "base/launch.h"
#include "base/mapping.h"
#include "ibp/gpu.h"
#include "ibp/put_kernels.cuh"
#include "ibp/writable.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr int kMaxWritingWarps = 32;
constexpr int kSettleThreads = 1024;

__global__ void claim_kernel(PutJob job) {
  for (int64_t i = base::grid_first(); i < job.count; i += base::grid_step()) claim_row(job, i);
}

// A warp a row.
template <Form form>
__global__ void __launch_bounds__(kMaxWritingWarps * 32, 1) put_kernel(ProfileRef profile, PutJob job) {
  extern __shared__ __align__(16) uint32_t shared_words[];
  uint32_t* words = shared_words + threadIdx.x / 32 * room_words(profile.row_bytes);
  const RowEncoder<form> encoder(profile);
  put_rows_warp(encoder, job, base::grid_first() / 32, base::grid_step() / 32, words);
}

// One block.
__global__ void settle_kernel(PutJob job) {
  OverflowCells& cells = job.status->cells;
  cells.close_gap(job.list, threadIdx.x, blockDim.x);
  __syncthreads();
  if (threadIdx.x == 0) cells.count_again(job.capacity);
}

using PutKernel = void (*)(ProfileRef, PutJob);

PutKernel put_kernel_for(Form form) {
  return with_form<kEncodeForms>(form, [](auto known) -> PutKernel { return put_kernel<known()>; });
}

int num_sms() {
  int sms = 0;
  cuda_check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, base::current_gpu()), "count SMs");
  return sms;
}

[[noreturn]] void fail_put(unsigned long long fault) {
  const std::string place = "put: ids[" + std::to_string(fault / 4) + "]";
  switch (static_cast<PutFault>(fault % 4)) {
    case PutFault::kNoSuchRow:
      throw Error({place, "the number of a row of the table", "a number below 0, or too large",
                   "no row was changed; an earlier put may have had the wrong number"});
    case PutFault::kTwice:
      throw Error({place, "each row once", "a row twice", "no row was changed; keep only the last of its values"});
    default:
      throw Error({place, "room for rows that encoding does not make shorter", "no room: this row keeps its old value",
                   "make a new table, with a larger spare; spare=1 is always enough"});
  }
}

}  // namespace

struct DeviceWritableRows::State {
  // `rows`: what the homes were made from; null: rows of zeros.
  State(const Profile& rows_profile, const Homes& plan, const EncodedRows* rows, Place place, int64_t spare_rows)
      : profile(rows_profile),
        ref(plan.ref()),
        capacity(plan.num_cells() + std::clamp<int64_t>(spare_rows, 0, ref.num_rows)),
        bytes(plan.bytes_with(capacity)),
        entries(static_cast<std::size_t>(ref.num_rows), "allocate the directory of rows"),
        list(static_cast<std::size_t>(capacity), "allocate the list of free cells"),
        status(1),
        host_status(sizeof(PutStatus)) {
    const auto num_rows = static_cast<std::size_t>(ref.num_rows);
    base::copy_to_gpu(entries.data(), ref.entries, num_rows * sizeof(uint64_t));
    if (ref.homes) {
      homes = base::DeviceArray<uint64_t>(num_rows, "allocate the homes of rows");
      base::copy_to_gpu(homes.data(), ref.homes, num_rows * sizeof(uint64_t));
      ref.homes = homes.data();
    }
    ref.entries = entries.data();
    ref.data = place == Place::kPinned ? fill_host(plan, rows) : fill_gpu(rows);
    PutStatus first;
    first.cells.used = static_cast<unsigned long long>(plan.num_cells());
    base::copy_to_gpu(status.data(), &first, sizeof(first));
    std::memcpy(host_status.data(), &first, sizeof(first));
    table.emplace(profile, Homes::packed_ref(ref, capacity), place == Place::kPinned);
    set_geometry();
  }

  std::byte* fill_host(const Homes& plan, const EncodedRows* rows) {
    host_rows = base::HostTable(bytes);
    plan.fill(rows, {host_rows.data(), bytes});
    host_rows.open_to_gpu();
    return host_rows.data();
  }

  std::byte* fill_gpu(const EncodedRows* rows) {
    device_rows = base::DeviceBytes(bytes, "allocate encoded rows");
    base::fill_gpu(device_rows.data(), 0, bytes);
    if (rows) {
      base::copy_to_gpu(device_rows.data(), rows->ref.data, static_cast<std::size_t>(rows->ref.data_bytes));
      base::copy_to_gpu(device_rows.data() + ref.overflow_begin, rows->ref.overflow,
                        static_cast<std::size_t>(rows->ref.overflow_bytes));
    }
    return device_rows.data();
  }

  void set_geometry() {
    kernel = put_kernel_for(encode_form_of(table->profile().ref()));
    const uint32_t row_bytes = room_words(ref.row_bytes) * 4;
    warps = std::clamp(static_cast<int>(base::most_shared_bytes() / row_bytes), 1, kMaxWritingWarps);
    shared_bytes = static_cast<std::size_t>(warps) * row_bytes;
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(base::most_shared_bytes())),
               "give put its shared memory");
    sms = num_sms();
  }

  volatile PutStatus* seen() const { return reinterpret_cast<volatile PutStatus*>(host_status.data()); }

  Profile profile;
  HomesRef ref;
  int64_t capacity;  // cells
  std::size_t bytes;
  base::DeviceArray<uint64_t> entries, homes;
  base::DeviceArray<int64_t> list;
  base::DeviceArray<PutStatus> status;
  base::PinnedBytes host_status;
  base::DeviceBytes device_rows;
  base::HostTable host_rows;
  std::optional<DeviceTable> table;
  PutKernel kernel = nullptr;
  int warps = 0, sms = 0;
  std::size_t shared_bytes = 0;
  bool clear_first = false;
};

DeviceWritableRows::DeviceWritableRows(const EncodedRows& rows, Place place, int64_t spare_rows)
    : state_(std::make_unique<State>(rows.profile, Homes(rows), &rows, place, spare_rows)) {}

DeviceWritableRows::DeviceWritableRows(const Profile& profile, int64_t num_rows, uint32_t slot_bytes, Place place,
                                       int64_t spare_rows)
    : state_(std::make_unique<State>(profile, Homes(profile, num_rows, slot_bytes), nullptr, place, spare_rows)) {}

DeviceWritableRows::~DeviceWritableRows() = default;

const DeviceTable& DeviceWritableRows::table() const { return *state_->table; }
const Profile& DeviceWritableRows::profile() const { return state_->profile; }
int64_t DeviceWritableRows::stored_bytes() const { return static_cast<int64_t>(state_->bytes); }

int64_t DeviceWritableRows::room_left() const {
  const volatile OverflowCells& cells = state_->seen()->cells;
  return state_->capacity - static_cast<int64_t>(cells.used - cells.free);
}

void DeviceWritableRows::check() {
  const unsigned long long fault = state_->seen()->fault;
  if (fault == ~0ull) return;
  state_->seen()->fault = ~0ull;
  state_->clear_first = true;
  fail_put(fault);
}

void DeviceWritableRows::put(const int64_t* ids, const void* rows, int64_t count, cudaStream_t stream,
                             const FetchOptions& options) {
  check();
  State& state = *state_;
  demand_multiple("put: rows", rows, element_bytes(state.profile.dtype));
  if (count <= 0) return;
  PutStatus* status = state.status.data();
  if (state.clear_first) cuda_check(cudaMemsetAsync(&status->fault, 0xff, sizeof(status->fault), stream));
  state.clear_first = false;
  cuda_check(cudaMemsetAsync(&status->refused, 0, sizeof(status->refused), stream), "begin a put");
  const PutJob job{.ids = ids,
                   .rows = static_cast<const std::byte*>(rows),
                   .count = count,
                   .homes = state.ref,
                   .list = state.list.data(),
                   .capacity = static_cast<unsigned long long>(state.capacity),
                   .status = status};
  const int sms = options.max_sms > 0 ? std::min(options.max_sms, state.sms) : state.sms;
  claim_kernel<<<base::grid_for(count, sms * 4), base::kBlockThreads, 0, stream>>>(job);
  state.kernel<<<sms, state.warps * 32, state.shared_bytes, stream>>>(state.table->profile().ref(), job);
  settle_kernel<<<1, kSettleThreads, 0, stream>>>(job);
  cuda_check(cudaGetLastError(), "launch put");
  cuda_check(cudaMemcpyAsync(state.host_status.data(), status, sizeof(PutStatus), cudaMemcpyDeviceToHost, stream),
             "report the put's status");
  if (!options.check) return;
  cuda_check(cudaStreamSynchronize(stream), "put");
  check();
}

EncodedRows DeviceWritableRows::to_host() const {
  const State& state = *state_;
  cuda_check(cudaDeviceSynchronize(), "wait for puts");
  const auto used = static_cast<int64_t>(state.seen()->cells.used);
  const auto entries = std::make_shared<std::vector<uint64_t>>(static_cast<std::size_t>(state.ref.num_rows));
  cuda_check(cudaMemcpy(entries->data(), state.entries.data(), entries->size() * sizeof(uint64_t), cudaMemcpyDefault),
             "copy the directory of rows");
  HomesRef at = state.ref;
  at.entries = entries->data();
  EncodedRows rows{state.profile, Homes::packed_ref(at, used), {entries}};
  const auto bytes = static_cast<std::size_t>(rows.ref.data_bytes);
  const auto memory = std::make_shared<base::Mapping>(
      base::Mapping::zeros(std::max<std::size_t>(bytes, 1), "copy of rows: host memory", ""));
  cuda_check(cudaMemcpy(memory->data(), state.ref.data, bytes, cudaMemcpyDefault), "copy encoded rows");
  rows.ref.data = memory->data();
  rows.keepers.push_back(memory);
  return rows;
}

}  // namespace cohort::ibp
