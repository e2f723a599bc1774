// encode() on the GPU: batches pass through lanes, so that one is copied in while another is encoded and a third is
// copied out.
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <array>
#include <string>

#include "base/cuda_check.h"
#include "base/device.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/encode_kernels.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr int64_t kBatchBytes = int64_t{32} << 20, kMaxEncodedRows = int64_t{1} << 20;
constexpr int kBlocks = 1024;
constexpr int64_t kLanes = 4;  // batches under way
constexpr int64_t kAhead = 2;  // of them, those that are encoded before the host asks how long they became

// Arrays, each at a multiple of 256 bytes of one allocation: counted with `base` null, then cut from it.
class Cutter {
 public:
  explicit Cutter(std::byte* base) : base_(base) {}
  template <typename T>
  T* take(uint64_t count) {
    const uint64_t at = round_up(used_, 256);
    used_ = at + count * sizeof(T);
    return base_ ? reinterpret_cast<T*>(base_ + at) : nullptr;
  }
  std::size_t used() const { return round_up(used_, 256); }

 private:
  std::byte* base_;
  uint64_t used_ = 0;
};

using EncodeKernel = void (*)(ProfileRef, EncodeBatch);

EncodeKernel encode_kernel_for(Form form) {
  return with_form<kEncodeForms>(form, [](auto known) -> EncodeKernel { return encode_kernel<known()>; });
}

// What a batch uses while it is under way.
struct Lane {
  EncodeBatch batch;
  uint64_t data_begin = 0;      // of its rows in the result, once they are on their way there
  uint64_t* entries = nullptr;  // in pinned host memory: batch.entries
  base::Event arrived{cudaEventDisableTiming}, encoded{cudaEventDisableTiming}, left{cudaEventDisableTiming};
};

class GpuEncoder {
 public:
  // `out` has room for data_bound() bytes, or for as many as the rows come to.
  GpuEncoder(const RowTable& rows, const Profile& profile, const EncodeOptions& options, std::span<std::byte> out)
      : rows_(rows),
        shell_(std::make_shared<BatchEncoder>(profile, options)),
        directory_(shell_->directory()),
        device_profile_(profile),
        slot_bytes_(choose_layout(profile, options).slot_bytes),
        row_bytes_(rows.row_bytes()),
        whole_bytes_(static_cast<uint32_t>(round_up(row_bytes_, 16))),
        data_(out) {
    const int64_t wanted = std::clamp<int64_t>(kBatchBytes / row_bytes_, 1, kMaxEncodedRows);
    step_ = static_cast<int64_t>(round_up(static_cast<uint64_t>(std::min(wanted, rows.num_rows)), kGroupRows));
    num_batches_ = (rows.num_rows + step_ - 1) / step_;
    allocate();
  }

  // After an error work may still be under way on what is freed next.
  ~GpuEncoder() {
    for (const base::Stream* stream : {&in_, &compute_, &out_}) cudaStreamSynchronize(*stream);
  }

  EncodedRows encode() {
    for (int64_t i = 0; i < num_batches_ + kLanes; ++i) {
      if (i >= kLanes) keep_directory(lane(i - kLanes));
      if (i < num_batches_) start(lane(i), i * step_);
      if (i >= kAhead && i - kAhead < num_batches_) send(lane(i - kAhead));
    }
    return {shell_->profile(), shell_->ref(data_.data(), nullptr), {shell_}};
  }

 private:
  bool slots() const { return slot_bytes_ != 0; }
  Lane& lane(int64_t batch) { return lanes_[static_cast<std::size_t>(batch % kLanes)]; }

  void allocate() {
    cuda_check(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes_, static_cast<uint64_t*>(nullptr),
                                             static_cast<uint64_t*>(nullptr), step_ / kGroupRows));
    Cutter device_count(nullptr), pinned_count(nullptr);
    cut(device_count, pinned_count);
    device_ = base::DeviceBytes(device_count.used(), "allocate the encoder's batches");
    pinned_ = base::PinnedBytes(pinned_count.used());
    Cutter device(device_.data()), pinned(pinned_.data());
    cut(device, pinned);
    cuda_check(cudaMemsetAsync(longest_, 0, sizeof(*longest_), compute_), "clear the encoder's longest row");
    directory_.entries.reserve(slots() ? 0 : static_cast<std::size_t>(rows_.num_rows));
    warps_ = std::clamp<int>(static_cast<int>(base::most_shared_bytes() / whole_bytes_), 1, 8);
    shared_bytes_ = warps_ * whole_bytes_;
    cuda_check(
        cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes_)));
  }

  void cut(Cutter& device, Cutter& pinned) {
    const auto count = static_cast<uint64_t>(step_), groups = count / kGroupRows;
    longest_ = device.take<uint32_t>(1);
    scan_space_ = device.take<std::byte>(scan_bytes_);
    for (int64_t i = 0; i < std::min(kLanes, num_batches_); ++i) {
      EncodeBatch& batch = lane(i).batch;
      batch.words_stride = batch.overflow_stride = whole_bytes_;
      batch.slots = slots();
      batch.coded_stride = batch.longest_coded = slots() ? slot_bytes_ : whole_bytes_;
      batch.rows = device.take<std::byte>(count * row_bytes_);
      batch.coded = device.take<std::byte>(count * batch.coded_stride);
      batch.moved = device.take<std::byte>(slots() ? count * whole_bytes_ : shell_->batch_bound(step_));
      batch.lengths = device.take<uint32_t>(count);
      batch.offsets = device.take<uint32_t>(count);
      batch.group_sizes = device.take<uint64_t>(groups);
      batch.group_starts = device.take<uint64_t>(groups);
      batch.entries = device.take<uint64_t>(count);
      batch.longest = longest_;
      batch.end = pinned.take<BatchEnd>(1);
      lane(i).entries = pinned.take<uint64_t>(count);
    }
  }

  // Copies a batch in and encodes it.
  void start(Lane& lane, int64_t first) {
    EncodeBatch& batch = lane.batch;
    batch.count = std::min(step_, rows_.num_rows - first);
    batch.num_groups = (batch.count + kGroupRows - 1) / kGroupRows;
    copy(batch.rows, rows_.row(first), static_cast<std::size_t>(batch.count) * row_bytes_, in_);
    lane.arrived.record(in_);
    lane.arrived.wait_on(compute_);
    kernel_<<<kBlocks, warps_ * 32, shared_bytes_, compute_>>>(device_profile_.ref(), batch);
    place_kernel<<<kBlocks, base::kBlockThreads, 0, compute_>>>(device_profile_.ref(), batch);
    cuda_check(cub::DeviceScan::ExclusiveSum(scan_space_, scan_bytes_, batch.group_sizes, batch.group_starts,
                                             batch.num_groups, compute_));
    pack_kernel<<<kBlocks, base::kBlockThreads, 0, compute_>>>(device_profile_.ref(), batch);
    cuda_check(cudaGetLastError(), "launch the encoder");
    lane.encoded.record(compute_);
  }

  // Copies an encoded batch and its directory out.
  void send(Lane& lane) {
    lane.encoded.synchronize();
    const EncodeBatch& batch = lane.batch;
    const uint64_t moved = batch.end->moved_bytes;
    const uint64_t bytes = slots() ? static_cast<uint64_t>(batch.count) * slot_bytes_ : moved;
    lane.data_begin = directory_.data_bytes;
    directory_.data_bytes += bytes;
    directory_.max_coded_bytes =
        slots() && slots_are_read_whole(device_profile_.ref().codec) ? slot_bytes_ : batch.end->longest_row_bytes;
    if (directory_.data_bytes > data_.size()) {
      throw Error({"encode_gpu: out", "at least " + std::to_string(directory_.data_bytes) + " bytes",
                   std::to_string(data_.size()) + " bytes", "data_bound() says how many are enough"});
    }
    copy(data_.data() + lane.data_begin, slots() ? batch.coded : batch.moved, bytes, out_);
    copy(lane.entries, batch.entries, static_cast<std::size_t>(batch.count) * sizeof(uint64_t), out_);
    lane.left.record(out_);
    if (!slots() || moved == 0) return;
    std::vector<std::byte>& overflow = directory_.overflow;
    overflow.resize(overflow.size() + moved);
    copy(overflow.data() + overflow.size() - moved, batch.moved, moved, out_);
    out_.synchronize();  // the next batch's rows may move these
  }

  // Appends the directory of a batch that has left; the lane is free then.
  void keep_directory(const Lane& lane) {
    lane.left.synchronize();
    for (int64_t i = 0; i < lane.batch.count; ++i) {
      const uint64_t entry = lane.entries[i];
      if (slots()) {
        directory_.add_slot(entry_raw(entry));
      } else {
        directory_.entries.push_back(entry + lane.data_begin / 4);
      }
    }
    if (!slots()) directory_.num_rows += lane.batch.count;
  }

  static void copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "copy rows to the GPU or back");
  }

  RowTable rows_;
  std::shared_ptr<BatchEncoder> shell_;
  Directory& directory_;
  DeviceProfile device_profile_;
  uint32_t slot_bytes_;  // 0: packed
  uint32_t row_bytes_, whole_bytes_;
  EncodeKernel kernel_ = encode_kernel_for(encode_form_of(device_profile_.ref()));
  std::span<std::byte> data_;
  int64_t step_ = 0, num_batches_ = 0;
  int warps_ = 0;
  std::size_t shared_bytes_ = 0, scan_bytes_ = 0;
  base::PinnedBytes pinned_;
  base::DeviceBytes device_;
  uint32_t* longest_ = nullptr;
  std::byte* scan_space_ = nullptr;
  std::array<Lane, kLanes> lanes_;
  base::Stream in_, compute_, out_;
};

}  // namespace

EncodedRows encode_gpu(const RowTable& rows, const Profile& profile, const EncodeOptions& options,
                       std::span<std::byte> out) {
  check_table_fits(rows, profile, "encode_gpu");
  if (profile.codec == Codec::kPlanes) {
    throw Error({"encode_gpu: codec", "a codec that the GPU can encode", "planes", "use encode()"});
  }
  std::shared_ptr<base::PinnedBytes> memory;
  if (out.empty()) {
    memory = std::make_shared<base::PinnedBytes>(data_bound(profile, rows.num_rows, options));
    out = {memory->data(), memory->bytes()};
  }
  demand_multiple("encode_gpu: out", out.data(), 16);
  if (rows.num_rows == 0) {
    auto shell = std::make_shared<BatchEncoder>(profile, options);
    return {profile, shell->ref(nullptr, nullptr), {shell}};
  }
  EncodedRows encoded = GpuEncoder(rows, profile, options, out).encode();
  if (memory) encoded.keepers.push_back(memory);
  return encoded;
}

}  // namespace cohort::ibp
