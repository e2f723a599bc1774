#include <algorithm>

#include "base/check.h"
#include "base/host_device.h"
#include "base/launch.h"
#include "trainer/native/product.h"

namespace cohort::trainer {
namespace {

// A block makes kTile x kTile elements of out; 4 x 2 warps have 32 x 64 each, in pieces of 16 x 8 and steps of 8.
constexpr int kTile = 128;
constexpr int kStep = 16;  // of the sum, that are in shared memory at once; twice, one for the copies under way
constexpr int kThreads = 256;
constexpr int kWarpRows = 32, kWarpColumns = 64;
constexpr int kRowPieces = kWarpRows / 16, kColumnPieces = kWarpColumns / 8;
constexpr int kAlong = kStep + 4,
              kAcross = kTile + 8;  // strides in shared memory at which a warp meets every bank once
constexpr int kTileFloats = std::max(kTile * kAlong, kStep* kAcross);

COHORT_HOST_DEVICE constexpr int64_t tiles(int64_t size) { return (size + kTile - 1) / kTile; }

// A factor. kDeep: what is summed over lies side by side in memory ([outer, depth]), else it counts rows ([depth,
// outer]).
struct Factor {
  const float* data;
  int64_t outer;   // rows or columns of out
  int64_t stride;  // between rows in memory
};

__device__ void copy_16(float* to, const float* from, bool exists) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(exists ? 16 : 0) : "memory");
}

// Begins the copy of a tile: outer from `first` on, kStep of the sum from `begin` on; zeros beyond the ends.
template <bool kDeep>
__device__ void copy_tile(const Factor& factor, int64_t first, int64_t begin, int64_t end, float* tile) {
#pragma unroll
  for (int i = threadIdx.x; i < kTile * kStep / 4; i += kThreads) {
    const int row = kDeep ? i / (kStep / 4) : i / (kTile / 4);
    const int column = 4 * (kDeep ? i % (kStep / 4) : i % (kTile / 4));
    const int64_t outer = first + (kDeep ? row : column), deep = begin + (kDeep ? column : row);
    const bool exists = outer < factor.outer && deep < end;
    const int64_t at = (kDeep ? outer : deep) * factor.stride + (kDeep ? deep : outer);
    copy_16(tile + row * (kDeep ? kAlong : kAcross) + column, factor.data + (exists ? at : 0), exists);
  }
}

template <bool kDeep>
__device__ float element(const float* tile, int outer, int deep) {
  return kDeep ? tile[outer * kAlong + deep] : tile[deep * kAcross + outer];
}

struct Split {
  uint32_t high, low;
};

__device__ uint32_t to_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

__device__ Split split(float value) {
  const uint32_t high = to_tf32(value);
  return {high, to_tf32(value - __uint_as_float(high))};
}

__device__ void multiply(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Which elements of a piece of 16 x 8 a lane has: rows `row` and `row` + 8, columns 2 `quad` and 2 `quad` + 1.
struct Place {
  int row, quad, warp_row, warp_column;
  __device__ Place()
      : row(threadIdx.x % 32 / 4),
        quad(threadIdx.x % 4),
        warp_row(threadIdx.x / 64 * kWarpRows),
        warp_column(threadIdx.x / 32 % 2 * kWarpColumns) {}
};

using Sums = float[kRowPieces][kColumnPieces][4];

// Adds the products of two tiles.
template <bool kDeep>
__device__ void add_products(const float* left, const float* right, const Place& place, Sums& sums) {
#pragma unroll
  for (int deep = 0; deep < kStep; deep += 8) {
    uint32_t high[kRowPieces][4], low[kRowPieces][4];
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // rows +0 +8 +0 +8, depths +0 +0 +4 +4
        const int row = place.warp_row + 16 * i + place.row + 8 * (k % 2);
        const Split parts = split(element<kDeep>(left, row, deep + place.quad + 4 * (k / 2)));
        high[i][k] = parts.high, low[i][k] = parts.low;
      }
    }
#pragma unroll
    for (int j = 0; j < kColumnPieces; ++j) {
      uint32_t right_high[2], right_low[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const int column = place.warp_column + 8 * j + place.row;
        const Split parts = split(element<kDeep>(right, column, deep + place.quad + 4 * k));
        right_high[k] = parts.high, right_low[k] = parts.low;
      }
#pragma unroll
      for (int i = 0; i < kRowPieces; ++i) {
        multiply(sums[i][j], low[i], right_high);
        multiply(sums[i][j], high[i], right_low);
        multiply(sums[i][j], high[i], right_high);
      }
    }
  }
}

// Sums over [begin, end) of the products of two factors, for the block's tile of out.
template <bool kDeep>
__device__ void sum_products(const Factor& left, const Factor& right, int64_t row, int64_t column, int64_t begin,
                             int64_t end, Sums& sums) {
  __shared__ alignas(16) float tiles[2][2][kTileFloats];
  const Place place;
  const auto copy = [&](int64_t at, int stage) {
    copy_tile<kDeep>(left, row, at, end, tiles[stage][0]);
    copy_tile<kDeep>(right, column, at, end, tiles[stage][1]);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  copy(begin, 0);
  int stage = 0;
  for (int64_t at = begin; at < end; at += kStep) {
    if (at + kStep < end) {
      copy(at + kStep, 1 - stage);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    add_products<kDeep>(tiles[stage][0], tiles[stage][1], place, sums);
    __syncthreads();
    stage = 1 - stage;
  }
}

// Stores the block's tile of out [rows, columns], where it is inside, with `bias` added to each row.
__device__ void store(const Sums& sums, int64_t row, int64_t column, int64_t rows, int64_t columns, const float* bias,
                      float* out) {
  const Place place;
#pragma unroll
  for (int i = 0; i < kRowPieces; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnPieces; ++j) {
      const int64_t n = column + place.warp_column + 8 * j + 2 * place.quad;
      if (n >= columns) continue;
      const float2 more = bias ? *reinterpret_cast<const float2*>(bias + n) : float2{0, 0};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t m = row + place.warp_row + 16 * i + place.row + 8 * half;
        if (m >= rows) continue;
        *reinterpret_cast<float2*>(out + m * columns + n) = {sums[i][j][2 * half] + more.x,
                                                             sums[i][j][2 * half + 1] + more.y};
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2) product_kernel(const __grid_constant__ ProductCall call) {
  const int64_t across = tiles(call.width);  // neighbours share rows
  const int64_t column = blockIdx.x % across * kTile, row = blockIdx.x / across * kTile;
  Sums sums = {};
  sum_products<true>({call.rows, call.num_rows, call.depth}, {call.weight, call.width, call.depth}, row, column, 0,
                     call.depth, sums);
  store(sums, row, column, call.num_rows, call.width, call.bias, call.out);
}

__global__ void __launch_bounds__(kThreads, 2) product_grad_kernel(const __grid_constant__ ProductGradCall call) {
  const int64_t across = tiles(call.depth), in_part = across * tiles(call.width);
  const int64_t tile = blockIdx.x % in_part, part = blockIdx.x / in_part;
  const int64_t column = tile % across * kTile, row = tile / across * kTile;
  const int64_t begin = part * kPartRows;
  const int64_t end = begin + kPartRows < call.num_rows ? begin + kPartRows : call.num_rows;
  Sums sums = {};
  sum_products<false>({call.grad, call.width, call.width}, {call.rows, call.depth, call.depth}, row, column, begin, end,
                      sums);
  store(sums, row, column, call.width, call.depth, nullptr, call.partial + part * call.width * call.depth);
}

__global__ void add_parts_kernel(const __grid_constant__ ProductGradCall call) {
  const int64_t size = call.width * call.depth, i = base::grid_first();
  if (i >= size) return;
  float sum = 0;
  for (int64_t part = 0; part < num_parts(call.num_rows); ++part) sum += call.partial[part * size + i];
  call.out[i] = sum;
}

}  // namespace

void run_on_gpu(const ProductCall& call, cudaStream_t stream) {
  if (call.num_rows == 0 || call.width == 0) return;
  const auto blocks = static_cast<unsigned>(tiles(call.width) * tiles(call.num_rows));
  product_kernel<<<blocks, kThreads, 0, stream>>>(call);
  base::cuda_check(cudaGetLastError(), "launch a product of rows");
}

void run_on_gpu(const ProductGradCall& call, cudaStream_t stream) {
  const int64_t size = call.width * call.depth;
  if (size == 0) return;
  const int64_t parts = num_parts(call.num_rows);
  if (parts > 0) {
    const auto blocks = static_cast<unsigned>(tiles(call.depth) * tiles(call.width) * parts);
    product_grad_kernel<<<blocks, kThreads, 0, stream>>>(call);
    base::cuda_check(cudaGetLastError(), "launch a product of gradients and rows");
  }
  add_parts_kernel<<<static_cast<unsigned>((size + base::kBlockThreads - 1) / base::kBlockThreads), base::kBlockThreads,
                     0, stream>>>(call);
  base::cuda_check(cudaGetLastError(), "launch the sum of parts");
}

}  // namespace cohort::trainer
