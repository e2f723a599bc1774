// The rows of one batch: asking for them and, once they are in their stages, decoding them. Internal to gather.cu.
#pragma once

#include "ibp/device_view.cuh"
#include "ibp/gpu.h"
#include "ibp/staging.cuh"

namespace cohort::ibp {

// Keeps the first of what went wrong: position * 2, plus 1 when the row itself is damaged.
__device__ inline void report(unsigned long long* status, uint32_t position, bool damaged) {
  atomicMin(status, uint64_t{position} * 2 + (damaged ? 1 : 0));
}

// A row of `num_columns` of any float32 by one warp; `out` is a multiple of 2.
__device__ inline void round_row_warp(const uint32_t* words, std::byte* out, uint32_t num_columns) {
  auto* elements = reinterpret_cast<uint16_t*>(out);
  for (uint32_t i = threadIdx.x % 32; i < num_columns; i += 32) elements[i] = bfloat16_of_any(words[i]);
}

struct Job {
  LocatedRows rows;
  std::byte* out;  // [count, out_bytes]
  uint32_t row_bytes;
  uint32_t out_bytes;  // row_bytes, or half of them: rounded to bfloat16
  unsigned long long* status;
  uint32_t row_room;  // the place in its line and the bytes of a row in a stage may add up to this
  uint32_t stage_bytes;
  uint32_t batch_rows;
  // codec planes, else 0
  uint32_t slot_bytes;     // of plane A
  uint32_t plane_b_bytes;  // of a row
  uint32_t plane_b_at;     // in a stage; 0: plane A alone
};

// Whether rows are asked for by two windows.
constexpr bool has_two_windows(Form form) { return form == Form::kPlanes; }

// Where row i of the job lies, codec planes: its plane A, and the memory around it.
template <Form form>
__device__ inline RowSpan find_row(const Job& job, uint32_t i, RegionRef& region) {
  const uint64_t entry = job.rows.entries[i];
  region = job.rows.regions[entry_region(entry)];
  RowSpan span{region.begin + entry_offset_bytes(entry), entry_bytes(entry), entry_raw(entry), true};
  if ((is_plane_a(form) || form == Form::kPlanes) && !span.raw) span.bytes = min(span.bytes, job.slot_bytes);
  return span;
}

// Where plane B of row i of the job lies, whose plane A lies at `plane_a` in `region`, which becomes that of plane B.
__device__ inline const std::byte* find_plane_b(const Job& job, uint32_t i, const std::byte* plane_a,
                                                RegionRef& region) {
  if (!job.rows.plane_b.begin) return plane_a + job.slot_bytes;
  region = job.rows.plane_b;
  return region.begin + entry_offset_bytes(job.rows.entries[i]) / job.slot_bytes * job.plane_b_bytes;
}

// One row, as the lane that asked for it knows it.
struct Item {
  uint32_t position = 0;
  uint32_t tag = 0;  // the row's place in its line; from kTagRaw on flags; from kTagBytesBit on the row's bytes
};
inline constexpr uint32_t kTagRaw = 128, kTagStaged = 256, kTagBytesBit = 11;
inline constexpr uint32_t kTagCoded = 1024;    // staged, not raw, and as many bytes as its decoder asks for
inline constexpr uint32_t kTagPlaneBBit = 29;  // from here on the place of plane B in its line, in units of 16 bytes
inline constexpr uint32_t kTagBytesMask = (1u << (kTagPlaneBBit - kTagBytesBit)) - 1;

// Row first + lane, and the windows it is to be asked for by.
template <Form form>
__device__ inline Item load_item(const Job& job, uint32_t count, uint32_t least_bytes, uint32_t first,
                                 Windows& windows) {
  Item item;
  Window& window = windows.row;
  windows = {};
  const uint32_t i = first + lane_id();
  if (lane_id() >= job.batch_rows || i >= count) return item;
  item.position = job.rows.positions ? static_cast<uint32_t>(job.rows.positions[i]) : i;
  RegionRef region;
  const RowSpan span = find_row<form>(job, i, region);
  const auto offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(span.begin)) % kLineBytes;
  item.tag = offset | (span.raw ? kTagRaw : 0) | (span.bytes << kTagBytesBit);
  if (offset + span.bytes > job.row_room) {
    if (!span.raw) item.tag = 0;  // a damaged length: no row decodes from nothing
    return item;
  }
  window = window_of(span.begin, span.bytes, region.begin, region.bytes);
  if (window.bytes) item.tag |= kTagStaged | (!span.raw && span.bytes >= least_bytes ? kTagCoded : 0);
  if constexpr (has_two_windows(form)) {
    if (!(item.tag & kTagCoded)) return item;
    const std::byte* plane_b = find_plane_b(job, i, span.begin, region);
    windows.plane_b = window_of(plane_b, job.plane_b_bytes, region.begin, region.bytes);
    if (windows.plane_b.bytes == 0) item.tag &= ~kTagCoded;
    item.tag |= (static_cast<uint32_t>(reinterpret_cast<uintptr_t>(plane_b)) % kLineBytes / 16) << kTagPlaneBBit;
  }
  return item;
}

// Row i of the job, which is raw or could not be staged: false when it is no valid row. `stage` is where its bytes are
// or may be put.
template <typename Decoder>
__device__ bool decode_unusual(const Decoder& decoder, const Job& job, uint32_t i, uint32_t tag, std::byte* stage,
                               std::byte* out) {
  const uint32_t bytes = tag >> kTagBytesBit & kTagBytesMask;
  if (bytes < (tag & kTagRaw ? job.row_bytes : decoder.least_bytes())) return false;
  RegionRef region;
  const std::byte* row = tag & kTagStaged ? stage : find_row<Decoder::kForm>(job, i, region).begin;
  if (tag & kTagRaw) {  // too long for a stage, if it is not in one
    if constexpr (is_rounded(Decoder::kForm)) {
      round_row_warp(reinterpret_cast<const uint32_t*>(row), out, job.row_bytes / 4);
    } else {
      copy_row_warp(reinterpret_cast<const uint32_t*>(row), out, job.row_bytes);
    }
    return true;
  }
  if constexpr (has_two_windows(Decoder::kForm)) return false;  // slots are whole windows
  // The last of a table whose bytes end with it.
  copy_row_warp(reinterpret_cast<const uint32_t*>(row), stage, bytes);
  order_before_bulk_copies();  // the stage's next bytes come by one
  __syncwarp();
  return decoder.decode(reinterpret_cast<const uint32_t*>(stage), bytes, out);
}

// A batch of rows that are in their stages: rows [first, first + count) of the job.
struct StagedRows {
  uint32_t first;
  uint32_t count;
  std::byte* stages;
};

// Row i of a batch that decode_batch() has not decoded: raw, without a window, or damaged.
template <typename Decoder>
__device__ void finish_row(const Decoder& decoder, const Job& job, const StagedRows& batch, const Item& mine,
                           uint32_t i) {
  const uint32_t tag = __shfl_sync(kAllLanes, mine.tag, i), position = __shfl_sync(kAllLanes, mine.position, i);
  std::byte* out = job.out + uint64_t{position} * job.out_bytes;
  if (!(tag & kTagCoded)) {
    std::byte* stage = batch.stages + i * job.stage_bytes + tag % kLineBytes;
    if (decode_unusual(decoder, job, batch.first + i, tag, stage, out)) return;
  }
  __syncwarp();
  zero_row_warp(out, job.out_bytes);
  if (lane_id() == 0) report(job.status, position, true);
}

// The lanes know an item each. Rows that are not plainly decoded come last, out of the way of the others.
template <typename Decoder>
__device__ void decode_batch(const Decoder& decoder, const Job& job, const StagedRows& batch, const Item& mine) {
  const uint32_t coded = __ballot_sync(kAllLanes, mine.tag & kTagCoded);
  uint32_t left = low_bits_32(batch.count) & ~coded;
  const std::byte* stage = batch.stages;
#pragma unroll 1
  for (uint32_t i = 0; coded >> i; ++i, stage += job.stage_bytes) {
    const uint32_t tag = __shfl_sync(kAllLanes, mine.tag, i), position = __shfl_sync(kAllLanes, mine.position, i);
    if (!(tag & kTagCoded)) continue;
    const std::byte* row = stage + tag % kLineBytes;
    __builtin_assume(__isShared(row));
    std::byte* out = job.out + uint64_t{position} * job.out_bytes;
    bool valid;
    if constexpr (has_two_windows(Decoder::kForm)) {
      const std::byte* plane_b = stage + job.plane_b_at + (tag >> kTagPlaneBBit) * 16;
      __builtin_assume(__isShared(plane_b));
      valid = decoder.decode(reinterpret_cast<const uint32_t*>(row), tag >> kTagBytesBit & kTagBytesMask, out,
                             reinterpret_cast<const uint32_t*>(plane_b));
    } else {
      valid = decoder.decode(reinterpret_cast<const uint32_t*>(row), tag >> kTagBytesBit, out);
    }
    if (!valid) left |= 1u << i;
  }
#pragma unroll 1
  for (uint32_t i = 0; left >> i; ++i) {
    if (left >> i & 1) finish_row(decoder, job, batch, mine, i);
  }
}

}  // namespace cohort::ibp
