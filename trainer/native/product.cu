#include "trainer/native/split_factor.cuh"

namespace cohort::trainer {
namespace {

// A block keeps kColumns columns of the weight in shared memory; each warpgroup by itself brings its rows, chunk by
// chunk, some of them ahead.

constexpr int kColumns = 64;
constexpr int kGroups = 3;
constexpr int kTiles = 8;  // of kGroupRows rows, that a warpgroup makes
constexpr int kBlockRows = kGroups * kTiles * kGroupRows;
constexpr int kStages = 3;
constexpr int kStride = kChunk + 4;  // of rows in shared memory: the lanes of a warp meet every bank once
constexpr int kStageFloats = kGroupRows * kStride;
constexpr int kPlaneBytes = kColumns * wgmma::kColumnBytes;  // of a chunk of the weight, high or low

int shared_bytes(int64_t depth) {
  return static_cast<int>(parts_of(depth, kChunk)) * 2 * kPlaneBytes + kGroups * kStages * kStageFloats * 4 + 1024;
}

// The block's columns of the weight, split: of each chunk the high parts, then the low ones.
__device__ void load_weight(const ProductCall& call, int64_t column, int chunks, uint8_t* planes) {
  for (int i = threadIdx.x; i < chunks * kColumns * 8; i += kGroups * kGroup) {
    const int part = i % 8, n = i / 8 % kColumns, chunk = i / 8 / kColumns, k = chunk * kChunk + 4 * part;
    float4 values{};
    if (column + n < call.width && k < call.depth) {
      values = *reinterpret_cast<const float4*>(call.weight + (column + n) * call.depth + k);
    }
    uint8_t* high = planes + chunk * 2 * kPlaneBytes;
    store_split(high, high + kPlaneBytes, wgmma::placed(n, part), {values.x, values.y, values.z, values.w});
  }
  wgmma::publish();
}

// The rows of a warpgroup, as a sequence of chunks of tiles.
struct Rows {
  const ProductCall& call;
  float* stages;
  int64_t first;  // row
  int chunks;

  // Begins the copy of chunk i of the sequence.
  __device__ void copy(int i) const {
    const int64_t row = first + i / chunks * kGroupRows;
    if (i < kTiles * chunks && row < call.num_rows) {
      const int depth = i % chunks * kChunk;
#pragma unroll
      for (int turn = 0; turn < kGroupRows * kChunk / 4 / kGroup; ++turn) {
        const int part = turn * kGroup + threadIdx.x % kGroup;
        const int64_t m = row + part / 8, k = depth + 4 * (part % 8);
        const bool exists = m < call.num_rows && k < call.depth;
        copy_16(at(i) + part / 8 * kStride + 4 * (part % 8), call.rows + (exists ? m * call.depth + k : 0), exists);
      }
    }
    commit_copies();
  }
  __device__ float* at(int i) const { return stages + i % kStages * kStageFloats; }
};

__device__ void store(const ProductCall& call, const WarpgroupPlace& place, int64_t row, int64_t column,
                      const float (&sums)[kColumns / 2]) {
  for_pairs<kColumns>(place, [&](int in_row, int in_column, int first) {
    const int64_t m = row + in_row, n = column + in_column;
    if (m >= call.num_rows || n >= call.width) return;
    const float2 bias = call.bias ? *reinterpret_cast<const float2*>(call.bias + n) : float2{0, 0};
    *reinterpret_cast<float2*>(call.out + m * call.width + n) = {sums[first] + bias.x, sums[first + 1] + bias.y};
  });
}

__global__ void __launch_bounds__(kGroups* kGroup, 1) product_kernel(const __grid_constant__ ProductCall call) {
  extern __shared__ uint8_t shared[];
  uint8_t* planes = aligned(shared);
  const int chunks = static_cast<int>(parts_of(call.depth, kChunk)), group = threadIdx.x / kGroup;
  const int64_t across = parts_of(call.width, kColumns), column = blockIdx.x % across * kColumns;
  float* stages = reinterpret_cast<float*>(planes + chunks * 2 * kPlaneBytes) + group * kStages * kStageFloats;
  const int64_t first = blockIdx.x / across * kBlockRows + group * kTiles * kGroupRows;
  const Rows rows{call, stages, first, chunks};
  for (int i = 0; i < kStages - 1; ++i) rows.copy(i);
  load_weight(call, column, chunks, planes);
  __syncthreads();
  const WarpgroupPlace place;
  float sums[kColumns / 2] = {}, of_chunk[kColumns / 2];
  for (int i = 0; i < kTiles * chunks; ++i) {
    const int chunk = i % chunks;
    const int64_t row = first + i / chunks * kGroupRows;
    if (row >= call.num_rows) break;
    wait_for_copies<kStages - 2>();
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup) : "memory");  // of this warpgroup alone
    const LeftFactor left(rows.at(i) + place.row * kStride + place.quad, kStride, 1, [](int, float) {});
    const uint32_t right = wgmma::shared_address(planes + chunk * 2 * kPlaneBytes);
    wgmma::begin();
    multiply<kColumns>(left, right, right + kPlaneBytes, of_chunk);
    wgmma::commit();
    rows.copy(i + kStages - 1);
    wgmma::wait();
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) sums[j] += of_chunk[j];
    if (chunk < chunks - 1) continue;
    store(call, place, row, column, sums);
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) sums[j] = 0;
  }
}

}  // namespace

bool has_products() {
  int device = 0, major = 0, minor = 0;
  base::cuda_check(cudaGetDevice(&device));
  base::cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  base::cuda_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major == 9 && minor == 0;
}

void run_on_gpu(const ProductCall& call, cudaStream_t stream) {
  if (call.num_rows == 0 || call.width == 0) return;
  base::require(0 < call.depth && call.depth <= kMaxProductDepth, "a product of rows of 1 to 256 columns");
  const int bytes = shared_bytes(call.depth);
  allow_shared(product_kernel, bytes);
  const auto blocks = static_cast<unsigned>(parts_of(call.width, kColumns) * parts_of(call.num_rows, kBlockRows));
  product_kernel<<<blocks, kGroups * kGroup, static_cast<unsigned>(bytes), stream>>>(call);
  base::cuda_check(cudaGetLastError(), "launch a product of rows");
}

}  // namespace cohort::trainer
