// encode() on the GPU: batches pass through lanes, so that one is copied in while another is encoded and a third is
// copied out; the memory of the result is page-locked by a thread of its own just ahead of them.
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/device.h"
#include "base/pinned_reservation.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/encode_kernels.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;
using base::Error;

constexpr int64_t kBatchBytes = int64_t{32} << 20, kMaxBatchRows = int64_t{1} << 20;
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

template <typename T>
void append(std::vector<T>& to, const std::byte* from, std::size_t count) {
  const auto* first = reinterpret_cast<const T*>(from);
  to.insert(to.end(), first, first + count);
}

// Where encoded bytes go: the caller's memory, or memory that is locked as it is needed.
class Output {
 public:
  Output(std::span<std::byte> given, uint64_t bound) : given_(given), bound_(bound) {}

  // Room for all bytes up to `end`, of about `expected` in the end.
  std::byte* room(uint64_t end, uint64_t expected) {
    if (given_.data()) {
      if (end <= given_.size()) return given_.data();
      throw Error({"encode_gpu: out", "at least " + std::to_string(end) + " bytes",
                   std::to_string(given_.size()) + " bytes", "data_bound() says how many are enough"});
    }
    expect(expected);
    memory_->wait(end);
    return memory_->data();
  }
  // Locks memory ahead of the need for it.
  void expect(uint64_t bytes) {
    if (given_.data()) return;
    if (!memory_) memory_ = std::make_shared<base::PinnedReservation>(bound_);
    memory_->want(std::min(bytes, bound_));
  }
  // The bytes used; with what keeps them, when it is not the caller.
  std::byte* finish(uint64_t used, std::vector<Keeper>& keepers) {
    if (!memory_) return given_.data();
    memory_->finish(used);
    keepers.push_back(memory_);
    return memory_->data();
  }

 private:
  std::span<std::byte> given_;
  uint64_t bound_;
  std::shared_ptr<base::PinnedReservation> memory_;
};

// What a batch uses while it is under way.
struct Lane {
  EncodeBatch batch;
  int64_t first = 0;               // row of the table
  std::byte* directory = nullptr;  // in pinned host memory: entries, or flags and ranks
  base::Event arrived{cudaEventDisableTiming}, encoded{cudaEventDisableTiming}, left{cudaEventDisableTiming};
};

class GpuEncoder {
 public:
  GpuEncoder(const RowTable& rows, const Profile& profile, const EncodeOptions& options, std::span<std::byte> out)
      : rows_(rows),
        shell_(std::make_shared<BatchEncoder>(profile, options)),
        directory_(shell_->directory()),
        device_profile_(profile),
        slot_bytes_(choose_layout(profile, options).slot_bytes),
        row_bytes_(rows.row_bytes()),
        whole_bytes_(static_cast<uint32_t>(round_up(row_bytes_, 16))),
        data_(out, shell_->batch_bound(rows.num_rows)),
        overflow_({}, static_cast<uint64_t>(rows.num_rows) * whole_bytes_) {
    const int64_t wanted = std::clamp<int64_t>(kBatchBytes / row_bytes_, 1, kMaxBatchRows);
    step_ = static_cast<int64_t>(round_up(static_cast<uint64_t>(std::min(wanted, rows.num_rows)), kGroupRows));
    num_batches_ = (rows.num_rows + step_ - 1) / step_;
    data_.expect(shell_->batch_bound(slots() ? rows.num_rows : step_));  // before what takes time itself
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
    std::vector<Keeper> keepers{shell_};
    EncodedRef ref = shell_->ref(data_.finish(directory_.data_bytes, keepers));
    ref.overflow = overflow_.finish(overflow_bytes(), keepers);
    ref.overflow_bytes = static_cast<int64_t>(overflow_bytes());
    return {shell_->profile(), ref, keepers};
  }

 private:
  bool slots() const { return slot_bytes_ != 0; }
  uint64_t overflow_bytes() const { return uint64_t{directory_.num_overflow} * whole_bytes_; }
  Lane& lane(int64_t batch) { return lanes_[static_cast<std::size_t>(batch % kLanes)]; }

  void allocate() {
    const int64_t most_units = step_ / kWordRows;
    cuda_check(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes_, static_cast<uint64_t*>(nullptr),
                                             static_cast<uint64_t*>(nullptr), most_units));
    Cutter device_count(nullptr), pinned_count(nullptr);
    cut(device_count, pinned_count);
    device_ = base::DeviceBytes(device_count.used(), "allocate the encoder's batches");
    pinned_ = base::PinnedBytes(pinned_count.used());
    Cutter device(device_.data()), pinned(pinned_.data());
    cut(device, pinned);
    cuda_check(cudaMemsetAsync(running_, 0, sizeof(Running), compute_), "clear the encoder's totals");
    directory_.entries.reserve(slots() ? 0 : static_cast<std::size_t>(rows_.num_rows));
    warps_ = std::clamp<int>(static_cast<int>(base::most_shared_bytes() / whole_bytes_), 1, 8);
    shared_bytes_ = warps_ * whole_bytes_;
    cuda_check(cudaFuncSetAttribute(encode_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes_)));
  }

  void cut(Cutter& device, Cutter& pinned) {
    const auto count = static_cast<uint64_t>(step_), units = count / kWordRows;
    running_ = device.take<Running>(1);
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
      batch.offsets = device.take<uint32_t>(slots() ? 0 : count);
      batch.unit_sizes = device.take<uint64_t>(units);
      batch.unit_starts = device.take<uint64_t>(units);
      batch.entries = device.take<uint64_t>(slots() ? 0 : count);
      batch.flags = device.take<uint32_t>(units);
      batch.ranks = device.take<uint32_t>(units);
      batch.running = running_;
      batch.end = pinned.take<BatchEnd>(1);
      lane(i).directory = pinned.take<std::byte>(slots() ? units * 8 : count * 8);
    }
  }

  // Copies a batch in and encodes it.
  void start(Lane& lane, int64_t first) {
    EncodeBatch& batch = lane.batch;
    lane.first = first;
    batch.count = std::min(step_, rows_.num_rows - first);
    const int64_t unit_rows = slots() ? kWordRows : kGroupRows;
    batch.num_units = (batch.count + unit_rows - 1) / unit_rows;
    base::copy_in_pieces(batch.rows, rows_.row(first), static_cast<std::size_t>(batch.count) * row_bytes_, in_,
                         "copy rows to the GPU");
    lane.arrived.record(in_);
    lane.arrived.wait_on(compute_);
    encode_kernel<<<kBlocks, warps_ * 32, shared_bytes_, compute_>>>(device_profile_.ref(), batch);
    if (slots()) mark_kernel<<<kBlocks, base::kBlockThreads, 0, compute_>>>(batch);
    if (!slots()) place_kernel<<<kBlocks, base::kBlockThreads, 0, compute_>>>(device_profile_.ref(), batch);
    cuda_check(cub::DeviceScan::ExclusiveSum(scan_space_, scan_bytes_, batch.unit_sizes, batch.unit_starts,
                                             batch.num_units, compute_));
    if (slots()) collect_kernel<<<kBlocks, base::kBlockThreads, 0, compute_>>>(device_profile_.ref(), batch);
    if (!slots()) pack_kernel<<<kBlocks, base::kBlockThreads, 0, compute_>>>(device_profile_.ref(), batch);
    end_kernel<<<1, 1, 0, compute_>>>(batch);
    cuda_check(cudaGetLastError(), "launch the encoder");
    lane.encoded.record(compute_);
  }

  // Copies an encoded batch and its directory out.
  void send(Lane& lane) {
    lane.encoded.synchronize();
    const EncodeBatch& batch = lane.batch;
    if (slots()) send_overflow(batch);
    const uint64_t at = directory_.data_bytes;
    const uint64_t bytes = slots() ? static_cast<uint64_t>(batch.count) * slot_bytes_ : batch.end->total;
    std::byte* data = data_.room(at + bytes, expected_bytes(at + bytes, lane.first + batch.count));
    base::copy_in_pieces(data + at, slots() ? batch.coded : batch.moved, bytes, out_, "copy encoded rows");
    const auto words = static_cast<std::size_t>(batch.num_units);
    if (slots()) {
      download(lane.directory, batch.flags, words * 4);
      download(lane.directory + words * 4, batch.ranks, words * 4);
    } else {
      download(lane.directory, batch.entries, static_cast<std::size_t>(batch.count) * 8);
    }
    lane.left.record(out_);
    directory_.num_rows += batch.count;
    directory_.data_bytes += bytes;
    directory_.max_coded_bytes = slots() ? slot_bytes_ : batch.end->longest_row_bytes;
  }

  void send_overflow(const EncodeBatch& batch) {
    const auto num_rows = static_cast<uint32_t>(batch.end->total);
    if (num_rows == 0) return;
    const uint64_t at = overflow_bytes();
    directory_.num_overflow += num_rows;
    std::byte* to = overflow_.room(overflow_bytes(), overflow_bytes());
    base::copy_in_pieces(to + at, batch.moved, overflow_bytes() - at, out_, "copy overflow rows");
  }

  // At the rate so far, but no more than this ahead.
  uint64_t expected_bytes(uint64_t used, int64_t rows_done) const {
    constexpr uint64_t kMostAheadBytes = uint64_t{1} << 30;
    const double all = static_cast<double>(used) / static_cast<double>(rows_done) * static_cast<double>(rows_.num_rows);
    return std::clamp(static_cast<uint64_t>(all), used, used + kMostAheadBytes);
  }

  // Appends the directory of a batch that has left; the lane is free then.
  void keep_directory(const Lane& lane) {
    lane.left.synchronize();
    const auto words = static_cast<std::size_t>(lane.batch.num_units);
    if (slots()) {
      append(directory_.flags, lane.directory, words);
      append(directory_.ranks, lane.directory + words * 4, words);
    } else {
      append(directory_.entries, lane.directory, static_cast<std::size_t>(lane.batch.count));
    }
  }

  void download(void* to, const void* from, std::size_t bytes) const {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, out_), "read the encoder's directory");
  }

  RowTable rows_;
  std::shared_ptr<BatchEncoder> shell_;
  Directory& directory_;
  DeviceProfile device_profile_;
  uint32_t slot_bytes_;  // 0: packed
  uint32_t row_bytes_, whole_bytes_;
  Output data_, overflow_;
  int64_t step_ = 0, num_batches_ = 0;
  int warps_ = 0;
  std::size_t shared_bytes_ = 0, scan_bytes_ = 0;
  base::PinnedBytes pinned_;
  base::DeviceBytes device_;
  Running* running_ = nullptr;
  std::byte* scan_space_ = nullptr;
  std::array<Lane, kLanes> lanes_;
  base::Stream in_, compute_, out_;
};

}  // namespace

EncodedRows encode_gpu(const RowTable& rows, const Profile& profile, const EncodeOptions& options,
                       std::span<std::byte> out, Keeper keeper) {
  check_table_fits(rows, profile, "encode_gpu");
  if (reinterpret_cast<uintptr_t>(out.data()) % 16 != 0) {
    throw Error({"encode_gpu: out", "an address that is a multiple of 16", "another", ""});
  }
  if (rows.num_rows == 0) {
    auto shell = std::make_shared<BatchEncoder>(profile, options);
    return {profile, shell->ref(nullptr), {shell}};
  }
  EncodedRows encoded = GpuEncoder(rows, profile, options, out).encode();
  if (keeper) encoded.keepers.push_back(std::move(keeper));
  return encoded;
}

}  // namespace cohort::ibp
