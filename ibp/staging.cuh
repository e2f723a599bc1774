// Two ways to bring rows into shared memory ahead of their use: each warp owns a ring of stages. Internal to ibp/.
#pragma once

#include <cstdint>

#include "ibp/device_view.cuh"

namespace cohort::ibp {

// The 16-byte aligned window of memory that holds a row.
struct Window {
  const std::byte* begin;
  uint32_t bytes;
};
__device__ inline Window window_of(const RowSpan& span) {
  const auto address = reinterpret_cast<uintptr_t>(span.begin);
  const uintptr_t begin = address & ~uintptr_t{15};
  const uintptr_t end = (address + span.bytes + 15) & ~uintptr_t{15};
  return {reinterpret_cast<const std::byte*>(begin), static_cast<uint32_t>(end - begin)};
}

// Bulk copies: one lane asks for a whole row, a transaction barrier per stage says when it is there.
class BulkStaging {
 public:
  static constexpr bool kBulk = true;
  __device__ BulkStaging(std::byte* stages, uint64_t* barriers, uint32_t stage_bytes, uint32_t num_stages)
      : stages_(stages), barriers_(barriers), stage_bytes_(stage_bytes) {
#if __CUDA_ARCH__ >= 900
    if (lane_id() == 0) {
      for (uint32_t i = 0; i < num_stages; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + i)) : "memory");
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
#endif
  }

  // Called by all lanes; `owner` is the lane whose `span` is meant.
  __device__ void issue(uint32_t stage, const RowSpan& span, bool staged, uint32_t owner) {
#if __CUDA_ARCH__ >= 900
    if (lane_id() != owner || !staged) return;
    const Window window = window_of(span);
    const uint32_t barrier = shared_address(barriers_ + stage);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(window.bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(stages_ + stage * stage_bytes_)),
                 "l"(window.begin), "r"(window.bytes), "r"(barrier)
                 : "memory");
#endif
  }

  __device__ void wait(uint32_t stage, bool staged, uint32_t) {
#if __CUDA_ARCH__ >= 900
    if (!staged) return;
    const uint32_t barrier = shared_address(barriers_ + stage);
    uint32_t done = 0;
    while (!done) {
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier), "r"((parities_ >> stage) & 1)
                   : "memory");
    }
    parities_ ^= 1u << stage;
#endif
  }

  __device__ const std::byte* stage(uint32_t i) const { return stages_ + i * stage_bytes_; }

 private:
  __device__ static uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
  }
  std::byte* stages_;
  uint64_t* barriers_;
  uint32_t stage_bytes_;
  uint32_t parities_ = 0;
};

// 16-byte asynchronous copies by all lanes; the groups end in the order they began.
class AsyncStaging {
 public:
  static constexpr bool kBulk = false;
  __device__ AsyncStaging(std::byte* stages, uint64_t*, uint32_t stage_bytes, uint32_t num_stages)
      : stages_(stages), stage_bytes_(stage_bytes), num_stages_(num_stages) {}

  __device__ void issue(uint32_t stage, const RowSpan& mine, bool mine_staged, uint32_t owner) {
    const bool staged = __shfl_sync(kAllLanes, mine_staged, owner);
    RowSpan span;
    span.begin = reinterpret_cast<const std::byte*>(
        __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(mine.begin), owner));
    span.bytes = __shfl_sync(kAllLanes, mine.bytes, owner);
    if (staged) {
      const Window window = window_of(span);
      const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(stages_ + stage * stage_bytes_));
      for (uint32_t offset = lane_id() * 16; offset < window.bytes; offset += 512) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + offset), "l"(window.begin + offset)
                     : "memory");
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // One group is committed for every row, so that the row waited for is the oldest of num_stages_.
  __device__ void wait(uint32_t, bool, uint32_t) {
    switch (num_stages_) {
      case 8:
        asm volatile("cp.async.wait_group 7;" ::: "memory");
        break;
      case 4:
        asm volatile("cp.async.wait_group 3;" ::: "memory");
        break;
      case 2:
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        break;
      default:
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        break;
    }
    __syncwarp();  // every lane's part is there
  }

  __device__ const std::byte* stage(uint32_t i) const { return stages_ + i * stage_bytes_; }

 private:
  std::byte* stages_;
  uint32_t stage_bytes_;
  uint32_t num_stages_;
};

}  // namespace cohort::ibp
