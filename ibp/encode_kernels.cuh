// The kernels of encode_gpu(): one batch of rows in GPU memory to encoded rows, packed or in slots, and their
// directory: encode, place, a scan of the groups' sizes, pack. Internal to ibp/.
#pragma once

#include "base/launch.h"
#include "ibp/encode_view.cuh"
#include "ibp/encoded_ref.h"
#include "ibp/packing.h"

namespace cohort::ibp {

// What one batch came to: written by the GPU to pinned host memory.
struct BatchEnd {
  uint64_t moved_bytes = 0;
  uint32_t longest_row_bytes = 0;  // coded, of all batches so far
};

// One batch, in GPU memory.
struct EncodeBatch {
  std::byte* rows = nullptr;        // [count, row_bytes]
  std::byte* coded = nullptr;       // [count, coded_stride]: slots: the slots themselves
  std::byte* moved = nullptr;       // packed: the data; slots: the overflow rows, at overflow_stride
  uint32_t* lengths = nullptr;      // uint32 [count] of the coded row, 0 = raw
  uint32_t* offsets = nullptr;      // uint32 [count] of the row within its group of `moved`
  uint64_t* group_sizes = nullptr;  // uint64 [num_groups]: bytes of `moved`
  uint64_t* group_starts = nullptr;
  uint64_t* entries = nullptr;  // uint64 [count]: where in `moved`; raw: slots: it is there
  uint32_t* longest = nullptr;  // coded row of all batches so far
  BatchEnd* end = nullptr;      // in pinned host memory
  int64_t count = 0;
  int64_t num_groups = 0;
  uint32_t words_stride = 0;  // bytes of shared memory for a row
  uint32_t coded_stride = 0;
  uint32_t longest_coded = 0;    // longer ones are raw: slots: the slot
  uint32_t overflow_stride = 0;  // row_bytes rounded up to 16
  bool slots = false;
};

__device__ inline int64_t warp_first() { return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; }
__device__ inline int64_t warp_step() { return int64_t{gridDim.x} * blockDim.x / 32; }

// A warp a row, through shared memory. A slot is filled with zeros behind its row.
template <Form form>
__global__ void encode_kernel(ProfileRef profile, EncodeBatch batch) {
  extern __shared__ __align__(16) uint32_t shared_words[];
  uint32_t* words = shared_words + threadIdx.x / 32 * (batch.words_stride / 4);
  const RowEncoder<form> encoder(profile);
  uint32_t longest = 0;
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    uint32_t bytes = encoder.encode(batch.rows + i * profile.row_bytes, words);
    if (bytes > batch.longest_coded) bytes = 0;
    const uint32_t end = batch.slots ? batch.coded_stride : bytes;
    write_words(batch.coded + i * batch.coded_stride, end, reinterpret_cast<const std::byte*>(words), bytes);
    if (lane_id() == 0) batch.lengths[i] = bytes;
    longest = max(longest, bytes);
    __syncwarp();
  }
  if (lane_id() == 0 && longest) atomicMax(batch.longest, longest);
}

// Bytes of `moved` that a row takes.
__device__ inline uint32_t moved_bytes(const ProfileRef& profile, const EncodeBatch& batch, uint32_t length) {
  if (batch.slots) return length ? 0 : batch.overflow_stride;
  return length ? length : (profile.row_bytes + 3) / 4 * 4;
}

// A thread a group: where its rows lie in it.
static __global__ void place_kernel(ProfileRef profile, EncodeBatch batch) {
  for (int64_t group = base::grid_first(); group < batch.num_groups; group += base::grid_step()) {
    uint32_t end = 0;
    for (int64_t i = group * kGroupRows; i < min((group + 1) * kGroupRows, batch.count); ++i) {
      const uint32_t bytes = moved_bytes(profile, batch, batch.lengths[i]);
      batch.offsets[i] = batch.slots ? end : place_in_group(end, bytes);
      end = batch.offsets[i] + bytes;
    }
    batch.group_sizes[group] = batch.slots ? end : round_up_to_line(end);
  }
}

// A warp a row: the row and the zeros between it and the next row or the end of the group.
static __global__ void pack_kernel(ProfileRef profile, EncodeBatch batch) {
  if (base::grid_first() == 0) {
    const int64_t last = batch.num_groups - 1;
    *batch.end = {batch.group_starts[last] + batch.group_sizes[last], *batch.longest};
  }
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    const int64_t group = i / kGroupRows;
    const bool last = i + 1 == batch.count || (i + 1) % kGroupRows == 0;
    const auto end = last ? static_cast<uint32_t>(batch.group_sizes[group]) : batch.offsets[i + 1];
    const uint32_t length = batch.lengths[i], bytes = moved_bytes(profile, batch, length);
    const std::byte* from = length ? batch.coded + i * batch.coded_stride : batch.rows + i * profile.row_bytes;
    const uint64_t at = batch.group_starts[group] + batch.offsets[i];
    if (bytes) write_words(batch.moved + at, end - batch.offsets[i], from, length ? length : profile.row_bytes);
    if (lane_id() == 0) batch.entries[i] = make_entry(at, bytes, length == 0);
  }
}

}  // namespace cohort::ibp
