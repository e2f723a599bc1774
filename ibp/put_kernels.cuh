// The kernels of DeviceWritableRows::put(): claim the rows, encode and store them, make cells free. Internal to ibp/.
#pragma once

#include "ibp/encode_view.cuh"
#include "ibp/homes.h"

namespace cohort::ibp {

// Why a put failed. PutStatus::fault is 4 * (position of the id in the put) + one of these.
enum class PutFault : uint32_t { kNoSuchRow = 0, kTwice = 1, kNoRoom = 2 };

// State in GPU memory; copied to the host after each put.
struct PutStatus {
  unsigned long long fault = ~0ull;  // the smallest of all puts since it was last cleared; all ones: no fault
  unsigned long long refused = 0;    // number of wrong ids in this put; if it is not 0, the put changes no row
  OverflowCells cells;
};

// One put.
struct PutJob {
  const int64_t* ids = nullptr;     // int64 [count]
  const std::byte* rows = nullptr;  // [count, row_bytes]
  int64_t count = 0;
  HomesRef homes;
  int64_t* list = nullptr;          // int64 [capacity]: of PutStatus::cells
  unsigned long long capacity = 0;  // cells in the overflow area
  PutStatus* status = nullptr;
};

__device__ inline void report_put(const PutJob& job, int64_t position, PutFault fault) {
  atomicMin(&job.status->fault, static_cast<unsigned long long>(position) * 4 + static_cast<uint32_t>(fault));
}

// Marks the row of id i as being put. Called by one thread for each id.
__device__ inline void claim_row(const PutJob& job, int64_t i) {
  const int64_t row = job.ids[i];
  const bool exists = row >= 0 && row < job.homes.num_rows;
  if (exists &&
      !(atomicOr(reinterpret_cast<unsigned long long*>(job.homes.entries + row), kEntryClaimed) & kEntryClaimed)) {
    return;
  }
  report_put(job, i, exists ? PutFault::kTwice : PutFault::kNoSuchRow);
  atomicAdd(&job.status->refused, 1ull);
}

// `bytes` of shared memory, a multiple of 4, to `to`, a multiple of 4.
__device__ inline void store_words_warp(std::byte* to, const uint32_t* words, uint32_t bytes) {
  uint32_t done = 0;
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    done = bytes / 16;
    for (uint32_t i = lane_id(); i < done; i += 32) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(words)[i];
    }
  }
  for (uint32_t i = done * 4 + lane_id(); i < bytes / 4; i += 32) reinterpret_cast<uint32_t*>(to)[i] = words[i];
}

// A raw row of any alignment to `to`, a multiple of 4, and zeros up to the next multiple of 4.
__device__ inline void store_raw_warp(std::byte* to, const std::byte* row, uint32_t bytes) {
  if ((reinterpret_cast<uintptr_t>(row) | bytes) % 4 == 0) {
    copy_row_warp(reinterpret_cast<const uint32_t*>(row), to, bytes);
  } else {
    write_words(to, (bytes + 3) / 4 * 4, row, bytes);
  }
}

// Returns the entry of a cell in the overflow area for a row that does not fit its home, or `entry` if none is free.
__device__ inline uint64_t find_cell_warp(const PutJob& job, int64_t i, uint64_t entry) {
  unsigned long long found = 0;
  if (lane_id() == 0) {
    const int64_t cell = job.status->cells.take(job.list, atomicAdd(&job.status->cells.taken, 1ull));
    const bool exists = static_cast<unsigned long long>(cell) < job.capacity;
    if (!exists) report_put(job, i, PutFault::kNoRoom);
    found = exists ? job.homes.entry_of_cell(cell) : entry;
  }
  return __shfl_sync(kAllLanes, found, 0);
}

// Stores row i, through `words`: room_words() in shared memory.
template <Form form>
__device__ void put_row_warp(const RowEncoder<form>& encoder, const PutJob& job, int64_t i, uint32_t* words) {
  const HomesRef& homes = job.homes;
  const int64_t row = job.ids[i];
  const std::byte* from = job.rows + i * homes.row_bytes;
  const Home home = homes.home_of(row);
  const uint64_t before = homes.entries[row] & ~kEntryClaimed;
  uint32_t coded = encoder.encode(from, words);
  if (coded > min(home.bytes, homes.longest_bytes)) coded = 0;
  const uint32_t used = coded ? coded : homes.raw_bytes();
  const bool was_away = homes.is_away(before);
  uint64_t entry = before;
  bool has_room = true;
  if (used <= home.bytes) {
    entry = make_entry(home.offset, used, coded == 0);
    if (was_away && lane_id() == 0) {
      OverflowCells& cells = job.status->cells;
      job.list[cells.free + atomicAdd(&cells.left, 1ull)] = homes.cell_of(before);
    }
  } else if (!was_away) {
    entry = find_cell_warp(job, i, before);
    has_room = entry != before;
  }
  std::byte* to = homes.data + entry_offset_bytes(entry);
  if (coded) {
    store_words_warp(to, words, coded);
  } else if (has_room) {
    store_raw_warp(to, from, homes.row_bytes);
  }
  __syncwarp();  // every lane has read the entry and the words
  if (lane_id() == 0) homes.entries[row] = entry;
}

// Stores rows first, first + step, ... of a put. If the put is refused, removes the marks of its rows instead.
template <Form form>
__device__ void put_rows_warp(const RowEncoder<form>& encoder, const PutJob& job, int64_t first, int64_t step,
                              uint32_t* words) {
  const bool refused = job.status->refused != 0;
  for (int64_t i = first; i < job.count; i += step) {
    if (!refused) {
      put_row_warp(encoder, job, i, words);
    } else if (lane_id() == 0 && job.ids[i] >= 0 && job.ids[i] < job.homes.num_rows) {
      job.homes.entries[job.ids[i]] &= ~kEntryClaimed;
    }
  }
}

}  // namespace cohort::ibp
