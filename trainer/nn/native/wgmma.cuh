// Products of the tensor cores of compute capability 9.0 (PTX ISA, "asynchronous warpgroup level matrix instructions"):
// the four warps of a warpgroup together add [64, 8] times [8, kColumns], in TF32, to sums that they keep in registers.
//
// Lane l of warp w has of the left factor rows 16 w + l / 4 and 8 behind it, depths l % 4 and 4 behind it, in the order
// (row, depth), (row + 8, depth), (row, depth + 4), (row + 8, depth + 4); of the sums the same rows, and for each piece
// j of 8 columns those from 8 j + 2 (l % 4) on, two of `row` and then two of `row + 8`, from sums[4 j] on.
#pragma once

#include <cstdint>

namespace cohort::trainer::wgmma {

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// The right factor lies in shared memory as [columns, 32] floats, the 32 depths of a column side by side; a column has
// 128 bytes, from a multiple of 1024 on, and its eight parts of 16 bytes are exchanged: part p stands at placed(column,
// p).
constexpr int kDepths = 32;
constexpr int kColumnBytes = 4 * kDepths;
__device__ inline int placed(int column, int part) { return column * kColumnBytes + (part ^ (column % 8)) * 16; }

// Names such columns from `address` on, and of their depths those from 8 `step` on.
__device__ inline uint64_t right_factor(uint32_t address, int step) {
  constexpr uint64_t kEightColumnsApart = uint64_t{8 * kColumnBytes / 16} << 32, kExchanged = uint64_t{1} << 62;
  return (((address & 0x3FFFF) + 32 * step) >> 4) | (uint64_t{1} << 16) | kEightColumnsApart | kExchanged;
}

// What threads have stored in shared memory is there for products; a barrier must follow.
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Products stand between begin() and commit(); their sums are there after wait().
__device__ inline void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ inline void wait() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// sums = left * right, plus sums where `add`.
template <int kColumns>
__device__ void multiply(float (&sums)[kColumns / 2], const uint32_t (&left)[4], uint64_t right, bool add);

#define COHORT_SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])

template <>
__device__ inline void multiply<64>(float (&sums)[32], const uint32_t (&left)[4], uint64_t right, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %37, 0; wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, add, 1, 1;}"
      : COHORT_SUMS_4(0), COHORT_SUMS_4(4), COHORT_SUMS_4(8), COHORT_SUMS_4(12), COHORT_SUMS_4(16), COHORT_SUMS_4(20),
        COHORT_SUMS_4(24), COHORT_SUMS_4(28)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add)));
}

template <>
__device__ inline void multiply<104>(float (&sums)[52], const uint32_t (&left)[4], uint64_t right, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %57, 0; wgmma.mma_async.sync.aligned.m64n104k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51}, "
      "{%52, %53, %54, %55}, %56, add, 1, 1;}"
      : COHORT_SUMS_4(0), COHORT_SUMS_4(4), COHORT_SUMS_4(8), COHORT_SUMS_4(12), COHORT_SUMS_4(16), COHORT_SUMS_4(20),
        COHORT_SUMS_4(24), COHORT_SUMS_4(28), COHORT_SUMS_4(32), COHORT_SUMS_4(36), COHORT_SUMS_4(40),
        COHORT_SUMS_4(44), COHORT_SUMS_4(48)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add)));
}

template <>
__device__ inline void multiply<128>(float (&sums)[64], const uint32_t (&left)[4], uint64_t right, bool add) {
  asm volatile(
      "{.reg .pred add; setp.ne.b32 add, %69, 0; wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, add, 1, 1;}"
      : COHORT_SUMS_4(0), COHORT_SUMS_4(4), COHORT_SUMS_4(8), COHORT_SUMS_4(12), COHORT_SUMS_4(16), COHORT_SUMS_4(20),
        COHORT_SUMS_4(24), COHORT_SUMS_4(28), COHORT_SUMS_4(32), COHORT_SUMS_4(36), COHORT_SUMS_4(40),
        COHORT_SUMS_4(44), COHORT_SUMS_4(48), COHORT_SUMS_4(52), COHORT_SUMS_4(56), COHORT_SUMS_4(60)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(static_cast<int>(add)));
}

#undef COHORT_SUMS_4

}  // namespace cohort::trainer::wgmma
