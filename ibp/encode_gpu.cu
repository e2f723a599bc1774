// encode() on the GPU, batch by batch: encode rows, place them, pack them straight into pinned host memory.
#include <cub/device/device_scan.cuh>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/launch.h"
#include "ibp/batch_encoder.h"
#include "ibp/bits.h"
#include "ibp/encode_view.cuh"
#include "ibp/gpu.h"
#include "ibp/packing.h"
#include "ibp/table_check.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr uint32_t kSharedBytes = 200 * 1024;
constexpr int64_t kBatchBytes = int64_t{64} << 20;

// Arrays of one batch, in GPU memory.
struct Batch {
  const std::byte* rows;   // [count, row_bytes]
  std::byte* coded;        // [count, coded_stride]
  uint32_t* lengths;       // uint32 [count], 0 = raw
  uint32_t* offsets;       // uint32 [count] within the group
  uint64_t* group_bytes;   // uint64 [num_groups]
  uint64_t* group_starts;  // uint64 [num_groups]
  uint64_t* entries;       // uint64 [count]
  int64_t count;
  uint32_t coded_stride;
};

__device__ int64_t warp_first() { return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; }
__device__ int64_t warp_step() { return int64_t{gridDim.x} * blockDim.x / 32; }

__global__ void encode_kernel(ProfileRef profile, Batch batch) {
  extern __shared__ __align__(16) uint32_t shared_words[];
  uint32_t* words = shared_words + threadIdx.x / 32 * (batch.coded_stride / 4);
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    const uint32_t bytes = encode_row_warp(profile, batch.rows + i * profile.row_bytes, words);
    auto* out = reinterpret_cast<uint32_t*>(batch.coded + i * batch.coded_stride);
    for (uint32_t w = lane_id(); w < bytes / 4; w += 32) out[w] = words[w];
    if (lane_id() == 0) batch.lengths[i] = bytes;
    __syncwarp();
  }
}

__global__ void place_kernel(ProfileRef profile, Batch batch) {
  const int64_t num_groups = (batch.count + kGroupRows - 1) / kGroupRows;
  for (int64_t group = base::grid_first(); group < num_groups; group += base::grid_step()) {
    uint32_t end = 0;
    for (int64_t i = group * kGroupRows; i < min((group + 1) * kGroupRows, batch.count); ++i) {
      const uint32_t bytes = batch.lengths[i] ? batch.lengths[i] : (profile.row_bytes + 3) / 4 * 4;
      batch.offsets[i] = place_in_group(end, bytes);
      end = batch.offsets[i] + bytes;
    }
    batch.group_bytes[group] = round_up_to_line(end);
  }
}

// Writes [begin, end) of `out`: the row's bytes, then zeros. All at multiples of 4.
__device__ void write_words(std::byte* out, uint32_t end, const std::byte* from, uint32_t bytes) {
  for (uint32_t i = lane_id(); i < end / 4; i += 32) {
    uint32_t word = 0;
    if (i * 4 < bytes) word = static_cast<uint32_t>(load_bytes(from + i * 4, min(4u, bytes - i * 4)));
    reinterpret_cast<uint32_t*>(out)[i] = word;
  }
}

// Each warp writes a row and the zeros between it and the next row or the end of the group.
__global__ void pack_kernel(ProfileRef profile, Batch batch, std::byte* out, uint64_t data_bytes) {
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    const int64_t group = i / kGroupRows;
    const bool last = i + 1 == batch.count || (i + 1) % kGroupRows == 0;
    const auto end = last ? static_cast<uint32_t>(batch.group_bytes[group]) : batch.offsets[i + 1];
    const uint32_t length = batch.lengths[i];
    const std::byte* from = length ? batch.coded + i * batch.coded_stride : batch.rows + i * profile.row_bytes;
    const uint64_t at = batch.group_starts[group] + batch.offsets[i];
    write_words(out + at, end - batch.offsets[i], from, length ? length : profile.row_bytes);
    const uint32_t bytes = length ? length : (profile.row_bytes + 3) / 4 * 4;
    if (lane_id() == 0) batch.entries[i] = make_entry(data_bytes + at, bytes, length == 0);
  }
}

__global__ void slots_kernel(Batch batch, std::byte* out, uint32_t slot_bytes) {
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    const uint32_t length = batch.lengths[i] <= slot_bytes ? batch.lengths[i] : 0;
    write_words(out + i * slot_bytes, slot_bytes, batch.coded + i * batch.coded_stride, length);
  }
}

// Encodes batches on one stream and collects the directory on the host.
class GpuEncoder {
 public:
  GpuEncoder(const RowTable& rows, const Profile& profile, const EncodeOptions& options)
      : rows_(rows), device_profile_(profile), chosen_(choose_layout(profile, options)) {
    row_bytes_ = rows.row_bytes();
    step_ = std::max<int64_t>(kBatchBytes / row_bytes_ / kGroupRows, 1) * kGroupRows;
    step_ = std::min<int64_t>(step_, round_up(static_cast<uint64_t>(rows.num_rows), kGroupRows));
    const auto count = static_cast<std::size_t>(step_);
    coded_stride_ = static_cast<uint32_t>(round_up(row_bytes_, 16));
    input_ = base::DeviceBytes(count * row_bytes_ + 16);
    coded_ = base::DeviceBytes(count * coded_stride_);
    lengths_ = base::DeviceArray<uint32_t>(count);
    offsets_ = base::DeviceArray<uint32_t>(count);
    groups_ = base::DeviceArray<uint64_t>(2 * count / kGroupRows);
    entries_ = base::DeviceArray<uint64_t>(count);
    cuda_check(cub::DeviceScan::ExclusiveSum(nullptr, scan_bytes_, groups_.data(), groups_.data(), step_ / kGroupRows));
    scan_space_ = base::DeviceBytes(scan_bytes_);
  }

  // Encodes rows [first, first + step) to `out`; returns the bytes used.
  uint64_t encode(int64_t first, std::byte* out, Directory& directory) {
    const int64_t count = std::min(step_, rows_.num_rows - first);
    const Batch batch = start(first, count);
    return chosen_.layout == Layout::kSlots ? finish_slots(batch, first, out, directory)
                                            : finish_packed(batch, out, directory);
  }
  int64_t step() const { return step_; }

 private:
  Batch start(int64_t first, int64_t count) {
    cuda_check(cudaMemcpyAsync(input_.data(), rows_.row(first), static_cast<std::size_t>(count) * row_bytes_,
                               cudaMemcpyDefault, stream_),
               "copy rows to the GPU");
    const int64_t capacity_groups = step_ / kGroupRows;
    Batch batch{input_.data(),   coded_.data(),  lengths_.data(),
                offsets_.data(), groups_.data(), groups_.data() + capacity_groups,
                entries_.data(), count,          coded_stride_};
    const int warps = std::clamp<int>(static_cast<int>(kSharedBytes / coded_stride_), 1, 8);
    const std::size_t shared = std::size_t(warps) * coded_stride_;
    cuda_check(
        cudaFuncSetAttribute(encode_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)));
    encode_kernel<<<kBlocks, warps * 32, shared, stream_>>>(device_profile_.ref(), batch);
    cuda_check(cudaGetLastError(), "launch the encoder");
    return batch;
  }

  uint64_t finish_packed(const Batch& batch, std::byte* out, Directory& directory) {
    const int64_t num_groups = (batch.count + kGroupRows - 1) / kGroupRows;
    place_kernel<<<kBlocks, base::kBlockThreads, 0, stream_>>>(device_profile_.ref(), batch);
    cuda_check(cub::DeviceScan::ExclusiveSum(scan_space_.data(), scan_bytes_, batch.group_bytes, batch.group_starts,
                                             num_groups, stream_));
    pack_kernel<<<kBlocks, base::kBlockThreads, 0, stream_>>>(device_profile_.ref(), batch, out, directory.data_bytes);
    cuda_check(cudaGetLastError(), "launch the packer");
    uint64_t last_start = 0, last_bytes = 0;
    const auto count = static_cast<std::size_t>(batch.count);
    const std::size_t before = directory.entries.size();
    directory.entries.resize(before + count);
    download(directory.entries.data() + before, batch.entries, count * 8);
    download(&last_start, batch.group_starts + num_groups - 1, 8);
    download(&last_bytes, batch.group_bytes + num_groups - 1, 8);
    note_lengths(batch, directory);
    directory.num_rows += batch.count;
    return last_start + last_bytes;
  }

  uint64_t finish_slots(const Batch& batch, int64_t first, std::byte* out, Directory& directory) {
    slots_kernel<<<kBlocks, base::kBlockThreads, 0, stream_>>>(batch, out, chosen_.slot_bytes);
    cuda_check(cudaGetLastError(), "launch the slot writer");
    note_lengths(batch, directory);
    std::vector<std::byte> row(row_bytes_);
    for (int64_t i = 0; i < batch.count; ++i) {
      const uint32_t length = host_lengths_[static_cast<std::size_t>(i)];
      const bool overflows = length == 0 || length > chosen_.slot_bytes;
      if (overflows) {
        cuda_check(cudaMemcpy(row.data(), rows_.row(first + i), row_bytes_, cudaMemcpyDefault), "read an overflow row");
      }
      directory.add_slot(overflows, row.data(), row_bytes_);
    }
    directory.max_coded_bytes = chosen_.slot_bytes;
    return static_cast<uint64_t>(batch.count) * chosen_.slot_bytes;
  }

  void note_lengths(const Batch& batch, Directory& directory) {
    host_lengths_.resize(static_cast<std::size_t>(batch.count));
    download(host_lengths_.data(), batch.lengths, host_lengths_.size() * 4);
    stream_.synchronize();
    for (const uint32_t length : host_lengths_) directory.max_coded_bytes = std::max(directory.max_coded_bytes, length);
  }

  void download(void* to, const void* from, std::size_t bytes) const {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "read the encoder's directory");
  }

  static constexpr int kBlocks = 1024;
  RowTable rows_;
  DeviceProfile device_profile_;
  ChosenLayout chosen_;
  uint32_t row_bytes_ = 0, coded_stride_ = 0;
  int64_t step_ = 0;
  std::size_t scan_bytes_ = 0;
  base::Stream stream_;
  base::DeviceBytes input_, coded_, scan_space_;
  base::DeviceArray<uint32_t> lengths_, offsets_;
  base::DeviceArray<uint64_t> groups_, entries_;
  std::vector<uint32_t> host_lengths_;
};

// Room for a batch is needed ahead of it, so the rows go to a buffer that grows with the table.
base::PinnedBytes grow(base::PinnedBytes old, std::size_t used, std::size_t needed, std::size_t bound) {
  if (needed <= old.bytes()) return old;
  base::PinnedBytes larger(std::min(bound, std::max(needed, old.bytes() * 2)));
  if (used) std::memcpy(larger.data(), old.data(), used);
  return larger;
}

}  // namespace

EncodedRows encode_gpu(const RowTable& rows, const Profile& profile, const EncodeOptions& options) {
  check_table_fits(rows, profile, "encode_gpu");
  auto shell = std::make_shared<BatchEncoder>(profile, options);
  if (rows.num_rows == 0) return {profile, shell->ref(nullptr), {shell}};
  GpuEncoder encoder(rows, profile, options);
  Directory& directory = shell->directory();
  const std::size_t bound = shell->batch_bound(rows.num_rows);
  const bool slots = choose_layout(profile, options).layout == Layout::kSlots;  // its size is known at once
  auto memory = std::make_shared<base::PinnedBytes>();
  for (int64_t first = 0; first < rows.num_rows; first += encoder.step()) {
    const int64_t count = std::min(encoder.step(), rows.num_rows - first);
    const std::size_t used = directory.data_bytes;
    const std::size_t needed = slots ? bound : used + shell->batch_bound(count);
    *memory = grow(std::move(*memory), used, needed, bound);
    directory.data_bytes += encoder.encode(first, memory->data() + used, directory);
  }
  return {profile, shell->ref(memory->data()), {memory, shell}};
}

}  // namespace cohort::ibp
