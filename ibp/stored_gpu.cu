// Rows as they are stored, for other GPUs.
#include <numeric>

#include "base/bits.h"
#include "base/cuda_check.h"
#include "base/device.h"
#include "base/launch.h"
#include "ibp/device_bits.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr int kMostBlocks = 1024;
constexpr int kWarps = base::kBlockThreads / 32;

__device__ bool is_inside(const EncodedRef& rows, int64_t row) { return row >= 0 && row < rows.num_rows; }

__global__ void sizes_kernel(EncodedRef rows, const int64_t* index, int64_t count, int64_t* sizes) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint32_t bytes = is_inside(rows, index[i]) ? joined_bytes(rows, locate(rows, index[i])) : 0;
    sizes[i] = base::round_up(bytes, kStoredStep);
  }
}

// `bytes` of them, and up to a whole Word more.
template <typename Word>
__device__ void copy_bytes(const std::byte* from, std::byte* to, uint32_t bytes) {
  const auto* words = reinterpret_cast<const Word*>(from);
  for (uint32_t i = lane_id(); i * sizeof(Word) < bytes; i += 32) reinterpret_cast<Word*>(to)[i] = __ldcs(words + i);
}

// A warp a row; all begin at multiples of a Word, planes B too.
template <typename Word>
__global__ void __launch_bounds__(base::kBlockThreads)
    take_kernel(EncodedRef rows, const int64_t* index, int64_t count, const int64_t* ends, StoredRef out) {
  const int64_t step = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < count; i += step) {
    const int64_t begin = i == 0 ? 0 : ends[i - 1];
    RowSpan row;
    if (is_inside(rows, index[i])) row = locate(rows, index[i]);
    const uint32_t bytes = row.begin ? joined_bytes(rows, row) : 0;
    if (lane_id() == 0) {
      out.entries[i] = make_entry(static_cast<uint64_t>(begin), base::round_up(bytes, 4u), row.raw);
    }
    std::byte* const to = out.data + begin;
    copy_bytes<Word>(row.begin, to, row.bytes);
    if (row.plane_b) copy_bytes<Word>(row.plane_b, to + row.bytes, rows.plane_b_stride_bytes);
  }
}

}  // namespace

void stored_sizes(const DeviceTable& table, const int64_t* index, int64_t count, int64_t* sizes, cudaStream_t stream) {
  if (count == 0) return;
  sizes_kernel<<<base::grid_for(count, kMostBlocks), base::kBlockThreads, 0, stream>>>(table.ref(), index, count,
                                                                                       sizes);
  cuda_check(cudaGetLastError(), "launch the sizes of stored rows");
}

void take_stored(const DeviceTable& table, const int64_t* index, int64_t count, const int64_t* ends,
                 const StoredRef& out, cudaStream_t stream) {
  if (count == 0) return;
  const EncodedRef& rows = table.ref();
  uint32_t step = step_of(rows);
  if (rows.plane_b) step = std::gcd(step, std::gcd(rows.plane_b_stride_bytes, rows.stride_bytes));
  const int blocks = base::grid_for(count * 32, kMostBlocks);
  const auto launch = [&]<typename Word>(Word) {
    take_kernel<Word><<<blocks, base::kBlockThreads, 0, stream>>>(rows, index, count, ends, out);
  };
  if (step % 16 == 0) {
    launch(uint4{});
  } else if (step % 4 == 0) {
    launch(uint32_t{});
  } else {
    launch(uint8_t{});
  }
  cuda_check(cudaGetLastError(), "launch the copy of stored rows");
}

}  // namespace cohort::ibp
