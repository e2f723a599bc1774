// The kernels of encode_gpu(): one batch of rows in GPU memory to encoded rows, packed or in slots, and their
// directory. encode_kernel, then packed: place, scan, pack; slots: mark, scan, collect; then end_kernel. Internal to
// ibp/.
#pragma once

#include "base/launch.h"
#include "ibp/encode_view.cuh"
#include "ibp/packing.h"

namespace cohort::ibp {

inline constexpr uint32_t kWordRows = 32;  // rows of a word of flags

// What the batches so far came to; in GPU memory.
struct Running {
  uint64_t total = 0;              // packed: bytes of data; slots: rows in the overflow area
  uint32_t longest_row_bytes = 0;  // coded
};

// What one batch came to: written by the GPU to pinned host memory.
struct BatchEnd {
  uint64_t total = 0;
  uint32_t longest_row_bytes = 0;  // of all batches so far
};

// One batch, in GPU memory. A unit is what a scan places: kGroupRows rows (packed) or kWordRows rows (slots).
struct EncodeBatch {
  std::byte* rows = nullptr;       // [count, row_bytes]
  std::byte* coded = nullptr;      // [count, coded_stride]: slots: the slots themselves
  std::byte* moved = nullptr;      // packed: the data; slots: the overflow rows, at overflow_stride
  uint32_t* lengths = nullptr;     // uint32 [count] of the coded row, 0 = raw
  uint32_t* offsets = nullptr;     // uint32 [count] within the unit (packed)
  uint64_t* unit_sizes = nullptr;  // uint64 [num_units]: bytes (packed) or overflow rows (slots)
  uint64_t* unit_starts = nullptr;
  uint64_t* entries = nullptr;  // uint64 [count] (packed)
  uint32_t* flags = nullptr;    // uint32 [num_units] (slots)
  uint32_t* ranks = nullptr;    // uint32 [num_units] (slots)
  Running* running = nullptr;
  BatchEnd* end = nullptr;  // in pinned host memory
  int64_t count = 0;
  int64_t num_units = 0;
  uint32_t words_stride = 0;  // bytes of shared memory for a row
  uint32_t coded_stride = 0;
  uint32_t longest_coded = 0;    // longer ones are raw: slots: the slot
  uint32_t overflow_stride = 0;  // row_bytes rounded up to 16
  bool slots = false;
};

__device__ inline int64_t warp_first() { return (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; }
__device__ inline int64_t warp_step() { return int64_t{gridDim.x} * blockDim.x / 32; }

// A row of `bytes` (any alignment) to `out`, then zeros up to `end`, a multiple of 4. `out` is one of 4.
__device__ inline void write_words(std::byte* out, uint32_t end, const std::byte* from, uint32_t bytes) {
  auto* words = reinterpret_cast<uint32_t*>(out);
  for (uint32_t i = lane_id(); i < end / 4; i += 32) {
    words[i] = i * 4 < bytes ? static_cast<uint32_t>(load_bytes(from + i * 4, min(4u, bytes - i * 4))) : 0;
  }
}

// A warp a row, through shared memory. A slot is filled with zeros behind its row.
static __global__ void encode_kernel(ProfileRef profile, EncodeBatch batch) {
  extern __shared__ __align__(16) uint32_t shared_words[];
  uint32_t* words = shared_words + threadIdx.x / 32 * (batch.words_stride / 4);
  uint32_t longest = 0;
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    uint32_t bytes = encode_row_warp(profile, batch.rows + i * profile.row_bytes, words);
    if (bytes > batch.longest_coded) bytes = 0;
    const uint32_t end = batch.slots ? batch.coded_stride : bytes;
    write_words(batch.coded + i * batch.coded_stride, end, reinterpret_cast<const std::byte*>(words), bytes);
    if (lane_id() == 0) batch.lengths[i] = bytes;
    longest = max(longest, bytes);
    __syncwarp();
  }
  if (lane_id() == 0 && longest) atomicMax(&batch.running->longest_row_bytes, longest);
}

__device__ inline uint32_t stored_bytes(const ProfileRef& profile, uint32_t length) {
  return length ? length : (profile.row_bytes + 3) / 4 * 4;
}

// A thread a group: where its rows lie in it.
static __global__ void place_kernel(ProfileRef profile, EncodeBatch batch) {
  for (int64_t group = base::grid_first(); group < batch.num_units; group += base::grid_step()) {
    uint32_t end = 0;
    for (int64_t i = group * kGroupRows; i < min((group + 1) * kGroupRows, batch.count); ++i) {
      const uint32_t bytes = stored_bytes(profile, batch.lengths[i]);
      batch.offsets[i] = place_in_group(end, bytes);
      end = batch.offsets[i] + bytes;
    }
    batch.unit_sizes[group] = round_up_to_line(end);
  }
}

// A warp a row: the row and the zeros between it and the next row or the end of the group.
static __global__ void pack_kernel(ProfileRef profile, EncodeBatch batch) {
  const uint64_t data_bytes = batch.running->total;
  for (int64_t i = warp_first(); i < batch.count; i += warp_step()) {
    const int64_t group = i / kGroupRows;
    const bool last = i + 1 == batch.count || (i + 1) % kGroupRows == 0;
    const auto end = last ? static_cast<uint32_t>(batch.unit_sizes[group]) : batch.offsets[i + 1];
    const uint32_t length = batch.lengths[i];
    const std::byte* from = length ? batch.coded + i * batch.coded_stride : batch.rows + i * profile.row_bytes;
    const uint64_t at = batch.unit_starts[group] + batch.offsets[i];
    write_words(batch.moved + at, end - batch.offsets[i], from, length ? length : profile.row_bytes);
    if (lane_id() == 0) batch.entries[i] = make_entry(data_bytes + at, stored_bytes(profile, length), length == 0);
  }
}

// A warp a word of flags: which of its rows overflow.
static __global__ void mark_kernel(EncodeBatch batch) {
  for (int64_t word = warp_first(); word < batch.num_units; word += warp_step()) {
    const int64_t row = word * kWordRows + lane_id();
    const uint32_t flags = __ballot_sync(kAllLanes, row < batch.count && batch.lengths[row] == 0);
    if (lane_id() != 0) continue;
    batch.flags[word] = flags;
    batch.unit_sizes[word] = static_cast<uint64_t>(__popc(flags));
  }
}

// A warp a word of flags: its overflow rows, one after the other.
static __global__ void collect_kernel(ProfileRef profile, EncodeBatch batch) {
  for (int64_t word = warp_first(); word < batch.num_units; word += warp_step()) {
    uint64_t rank = batch.unit_starts[word];
    if (lane_id() == 0) batch.ranks[word] = static_cast<uint32_t>(batch.running->total + rank);
    for (uint32_t flags = batch.flags[word]; flags; flags &= flags - 1, ++rank) {
      const int64_t row = word * kWordRows + __ffs(flags) - 1;
      write_words(batch.moved + rank * batch.overflow_stride, batch.overflow_stride,
                  batch.rows + row * profile.row_bytes, profile.row_bytes);
    }
  }
}

// One thread: the batch's total, to the host and for the next batch.
static __global__ void end_kernel(EncodeBatch batch) {
  const int64_t last = batch.num_units - 1;
  batch.end->total = batch.unit_starts[last] + batch.unit_sizes[last];
  batch.end->longest_row_bytes = batch.running->longest_row_bytes;
  batch.running->total += batch.unit_starts[last] + batch.unit_sizes[last];
}

}  // namespace cohort::ibp
