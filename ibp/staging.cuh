// Two ways to bring rows into shared memory ahead of their use: each warp owns two batches of stages, one on its way
// while the other is decoded. Internal to ibp/.
//
// A row keeps its place within a line of 128 bytes: bulk copies whose ends differ in that were measured at half the
// rate of the link (28 of 51 GB/s).
#pragma once

#include <cstdint>

#include "ibp/device_bits.cuh"
#include "ibp/ibp.h"

namespace cohort::ibp {

inline constexpr uint32_t kSectorBytes = 32;  // what memory is read in

// The part of memory that holds one row, as the lane that asks for it knows it.
struct Window {
  const std::byte* begin = nullptr;
  uint32_t bytes = 0;  // 0: no copy
};

// window_of() a row some of whose sectors leave the region [low, high).
__device__ inline Window narrow_window_of(uintptr_t row, uint32_t bytes, uintptr_t low, uintptr_t high) {
  uintptr_t begin = row & ~uintptr_t{kSectorBytes - 1};
  uintptr_t end = (row + bytes + kSectorBytes - 1) & ~uintptr_t{kSectorBytes - 1};
  if (begin < low) begin = row & ~uintptr_t{15};
  if (end > high) end = (row + bytes + 15) & ~uintptr_t{15};
  if (end > high) return {};
  return {reinterpret_cast<const std::byte*>(begin), static_cast<uint32_t>(end - begin)};
}

// The whole sectors that hold [row, row + bytes), or, where these leave the region [first, first + region_bytes), its
// 16-byte words; no copy where these leave it too. `first` is a multiple of 16.
__device__ inline Window window_of(const std::byte* row, uint32_t bytes, const std::byte* first, int64_t region_bytes) {
  const auto low = reinterpret_cast<uintptr_t>(first), at = reinterpret_cast<uintptr_t>(row);
  const uintptr_t high = low + static_cast<uintptr_t>(region_bytes), begin = at & ~uintptr_t{kSectorBytes - 1};
  const uint32_t room = (static_cast<uint32_t>(at) % kSectorBytes + bytes + kSectorBytes - 1) & ~(kSectorBytes - 1);
  if (begin < low || begin + room > high) return narrow_window_of(at, bytes, low, high);
  return {reinterpret_cast<const std::byte*>(begin), room};
}

// What a row is asked for by: codec planes: plane B comes to a place of its own in the stage.
struct Windows {
  Window row, plane_b;
};

// What both ways share: where the stages are.
class Stages {
 public:
  // plane_b_at: of plane B in a stage, a multiple of 128; 0: no row has one.
  __device__ Stages(std::byte* stages, uint32_t stage_bytes, uint32_t batch_rows, uint32_t plane_b_at)
      : plane_b_at_(plane_b_at), stages_(stages), stage_bytes_(stage_bytes), batch_rows_(batch_rows) {}
  __device__ std::byte* stage(uint32_t batch, uint32_t i) const {
    return stages_ + (batch * batch_rows_ + i) * stage_bytes_;
  }
  __device__ uint32_t batch_rows() const { return batch_rows_; }

 protected:
  __device__ static uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
  }
  // Where the window goes within its stage, or within the part of it that is for plane B.
  __device__ static uint32_t offset_of(const Window& window) {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(window.begin) % kLineBytes);
  }
  uint32_t plane_b_at_;

 private:
  std::byte* stages_;
  uint32_t stage_bytes_;
  uint32_t batch_rows_;
};

// What this thread has stored in shared memory comes before the bulk copies that follow.
__device__ inline void order_before_bulk_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Bulk copies: each lane asks for its row, a transaction barrier per batch says when all of them are there.
class BulkStaging : public Stages {
 public:
  // To be made by all threads of the block at once. The warps need no common start; racecheck does: of barriers that a
  // warp initialises while others already copy it loses some.
  __device__ BulkStaging(std::byte* stages, uint64_t* barriers, uint32_t stage_bytes, uint32_t batch_rows,
                         uint32_t plane_b_at)
      : Stages(stages, stage_bytes, batch_rows, plane_b_at), barriers_(barriers) {
#if __CUDA_ARCH__ >= 900
    if (lane_id() == 0) {
      for (uint32_t batch = 0; batch < 2; ++batch) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + batch)) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
#endif
  }

  // Called by all lanes; the windows of lane i are for stage i. kTwo: of codec planes, both.
  template <bool kTwo>
  __device__ void issue(uint32_t batch, const Windows& windows) {
#if __CUDA_ARCH__ >= 900
    const uint32_t barrier = shared_address(barriers_ + batch);
    const uint32_t total = __reduce_add_sync(kAllLanes, windows.row.bytes + (kTwo ? windows.plane_b.bytes : 0));
    if (lane_id() == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(total) : "memory");
    }
    __syncwarp();
    const uint32_t to = shared_address(stage(batch, lane_id()));
    copy(windows.row, to, barrier);
    if constexpr (kTwo) copy(windows.plane_b, to + plane_b_at_, barrier);
#endif
  }

  __device__ void wait(uint32_t batch) {
#if __CUDA_ARCH__ >= 900
    const uint32_t barrier = shared_address(barriers_ + batch);
    uint32_t done = 0;
    while (!done) {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier), "r"((parities_ >> batch) & 1)
                   : "memory");
    }
    parities_ ^= 1u << batch;
#endif
  }

 private:
  __device__ static void copy(const Window& window, uint32_t to, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    if (window.bytes == 0) return;
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     to + offset_of(window)),
                 "l"(window.begin), "r"(window.bytes), "r"(barrier)
                 : "memory");
#endif
  }

  uint64_t* barriers_;
  uint32_t parities_ = 0;
};

// 16-byte asynchronous copies by all lanes, one group a batch; the groups end in the order they began.
class AsyncStaging : public Stages {
 public:
  __device__ AsyncStaging(std::byte* stages, uint64_t*, uint32_t stage_bytes, uint32_t batch_rows, uint32_t plane_b_at)
      : Stages(stages, stage_bytes, batch_rows, plane_b_at) {}

  template <bool kTwo>
  __device__ void issue(uint32_t batch, const Windows& mine) {
    for (uint32_t i = 0; i < batch_rows(); ++i) {
      const uint32_t to = shared_address(stage(batch, i));
      copy(mine.row, i, to);
      if constexpr (kTwo) copy(mine.plane_b, i, to + plane_b_at_);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  __device__ void wait(uint32_t) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncwarp();  // every lane's part is there
  }

 private:
  // The window that lane `i` knows.
  __device__ static void copy(const Window& mine, uint32_t i, uint32_t to) {
    Window window;
    window.begin =
        reinterpret_cast<const std::byte*>(__shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.begin), i));
    window.bytes = __shfl_sync(kAllLanes, mine.bytes, i);
    to += offset_of(window);
    for (uint32_t offset = lane_id() * 16; offset < window.bytes; offset += 512) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + offset), "l"(window.begin + offset)
                   : "memory");
    }
  }
};

}  // namespace cohort::ibp
