#include <algorithm>

#include "trainer/nn/native/split_factor.cuh"

namespace cohort::trainer {
namespace {

// A block keeps kColumns columns of the weight in shared memory; each of its warpgroups takes tiles of rows, which go
// from memory into registers, two chunks ahead. The depths of a chunk are exchanged, alike in both factors, so that a
// lane's are side by side in memory: depth 8 step + 4 part + quad of the tensor core is depth 16 part + 4 quad + step.

constexpr int kColumns = 64;
constexpr int kGroups = 3;
constexpr int kRounds = 2;  // of blocks: one is 2 % faster on all SMs, but would become two full ones on most of them
constexpr int kPlaneBytes = kColumns * wgmma::kColumnBytes;  // of a chunk of the weight, high or low

int shared_bytes(int64_t depth) { return static_cast<int>(parts_of(depth, kChunk)) * 2 * kPlaneBytes + 1024; }

// Four floats, or zeros where there are none.
__device__ float4 load_4(const float* from, bool exists) {
  return exists ? __ldg(reinterpret_cast<const float4*>(from)) : float4{};
}
__device__ float at(const float4& from, int i) { return i == 0 ? from.x : i == 1 ? from.y : i == 2 ? from.z : from.w; }

// The block's columns of the weight, split: of each chunk the high parts, then the low ones.
__device__ void load_weight(const ProductCall& call, int64_t column, int chunks, uint8_t* planes) {
  for (int i = threadIdx.x; i < chunks * kColumns * 2; i += kGroups * kGroup) {
    const int part = i % 2, n = i / 2 % kColumns, chunk = i / 2 / kColumns;
    float4 of_quad[4];
#pragma unroll
    for (int quad = 0; quad < 4; ++quad) {
      const int k = chunk * kChunk + 16 * part + 4 * quad;
      of_quad[quad] = load_4(call.weight + (column + n) * call.depth + k, column + n < call.width && k < call.depth);
    }
    uint8_t* high = planes + chunk * 2 * kPlaneBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      store_split(high, high + kPlaneBytes, wgmma::placed(n, 2 * step + part),
                  {at(of_quad[0], step), at(of_quad[1], step), at(of_quad[2], step), at(of_quad[3], step)});
    }
  }
  wgmma::publish();
}

// What a lane multiplies of a chunk: of its two rows the depths from 4 quad and from 16 + 4 quad on.
struct Rows {
  float4 value[2][2];

  __device__ void load(const ProductCall& call, int64_t row, int depth) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t m = min(row + 8 * half, call.num_rows - 1);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int k = depth + 16 * part;
        value[half][part] = load_4(call.rows + m * call.depth + k, k < call.depth);
      }
    }
  }
};

__device__ void store(const ProductCall& call, const WarpgroupPlace& place, int64_t row, int64_t column,
                      const float* bias, const float (&sums)[kColumns / 2]) {
  for_pairs<kColumns>(place, [&](int in_row, int in_column, int first) {
    const int64_t m = row + in_row, n = column + in_column;
    const float2 add = *reinterpret_cast<const float2*>(bias + in_column);
    if (m < call.num_rows && n < call.width) {
      *reinterpret_cast<float2*>(call.out + m * call.width + n) = {sums[first] + add.x, sums[first + 1] + add.y};
    }
  });
}

__global__ void __launch_bounds__(kGroups* kGroup, 1) product_kernel(const __grid_constant__ ProductCall call) {
  extern __shared__ uint8_t shared[];
  __shared__ float bias[kColumns];
  uint8_t* planes = aligned(shared);
  const int chunks = static_cast<int>(parts_of(call.depth, kChunk)),
            group = __shfl_sync(~0u, static_cast<int>(threadIdx.x / kGroup), 0);  // alike in a warp
  const int64_t across = parts_of(call.width, kColumns), column = blockIdx.x % across * kColumns;
  const int64_t stride = gridDim.x / across * kGroups * kGroupRows;
  const WarpgroupPlace place;
  int64_t row = (blockIdx.x / across * kGroups + group) * kGroupRows, next_row = row;
  int chunk = 0, next_chunk = 0;
  const auto advance = [&](int64_t& of_row, int& of_chunk) {
    if (++of_chunk < chunks) return;
    of_chunk = 0;
    of_row += stride;
  };
  Rows rows[2];
  const auto load = [&](Rows& to) {
    if (next_row < call.num_rows) to.load(call, next_row + place.row, next_chunk * kChunk + 4 * place.quad);
    advance(next_row, next_chunk);
  };
  load(rows[0]);
  load(rows[1]);
  load_weight(call, column, chunks, planes);
  if (threadIdx.x < kColumns) {
    const int64_t n = column + threadIdx.x;
    bias[threadIdx.x] = call.bias && n < call.width ? call.bias[n] : 0;
  }
  __syncthreads();
  float sums[kColumns / 2] = {}, of_chunk[kColumns / 2];
  const auto multiply_chunk = [&](Rows& from) {
    const LeftFactor left([&](int half, int step, int part) { return at(from.value[half][part], step); });
    load(from);
    const uint32_t right = wgmma::shared_address(planes + chunk * 2 * kPlaneBytes);
    wgmma::begin();
    multiply<kColumns>(left, right, right + kPlaneBytes, of_chunk);
    wgmma::commit();
    wgmma::wait();
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) sums[j] += of_chunk[j];
    if (chunk == chunks - 1) {
      store(call, place, row, column, bias, sums);
#pragma unroll
      for (int j = 0; j < kColumns / 2; ++j) sums[j] = 0;
    }
    advance(row, chunk);
  };
  while (row < call.num_rows) {
    multiply_chunk(rows[0]);
    if (row < call.num_rows) multiply_chunk(rows[1]);
  }
}

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  base::cuda_check(cudaGetDevice(&device));
  base::cuda_check(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

}  // namespace

bool has_products() {
  return attribute(cudaDevAttrComputeCapabilityMajor) == 9 && attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

void run_on_gpu(const ProductCall& call, cudaStream_t stream) {
  if (call.num_rows == 0 || call.width == 0) return;
  base::require(0 < call.depth && call.depth <= kMaxProductDepth, "a product of rows of 1 to 256 columns");
  const int bytes = shared_bytes(call.depth);
  allow_shared(product_kernel, bytes);
  const int64_t across = parts_of(call.width, kColumns), tiles = parts_of(call.num_rows, kGroups * kGroupRows);
  const int64_t at_once = attribute(cudaDevAttrMultiProcessorCount);  // fewer on a part of the SMs
  const auto blocks = static_cast<unsigned>(across * std::clamp<int64_t>(kRounds * at_once / across, 1, tiles));
  product_kernel<<<blocks, kGroups * kGroup, static_cast<unsigned>(bytes), stream>>>(call);
  base::cuda_check(cudaGetLastError(), "launch a product of rows");
}

}  // namespace cohort::trainer
