#include <algorithm>

#include "trainer/nn/native/split_factor.cuh"

namespace cohort::trainer {
namespace {

// A block makes kTileRows x kColumns elements over a part of the rows. The left factor is the gradient, of which lanes
// take what they need; the rows are turned round, since products want the 32 depths, here rows, of a column side by
// side.

constexpr int kGroups = 2;
constexpr int kTileRows = kGroups * kGroupRows;
constexpr int kThreads = kGroups * kGroup;
constexpr int kStages = 4;
constexpr int kMostColumns = 128;
constexpr int kStride = kMostColumns + 8;  // of both factors in shared memory
constexpr int kFactorFloats = kChunk * kStride;
constexpr int kPlaneBytes = kMostColumns * wgmma::kColumnBytes;
constexpr int kSharedBytes = 4 * kPlaneBytes + kStages * 2 * kFactorFloats * 4 + 1024;
constexpr int kBlocks = 132;               // one for each SM of the largest GPU
static_assert(kTileRows == kMostColumns);  // their copies share a loop

// Sixteen bytes on their way into shared memory; zeros where there are none.
__device__ void copy_16(float* to, const float* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(wgmma::shared_address(to)), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <int kColumns>
struct Part {
  const ProductGradCall& call;
  float* stages;
  uint8_t* planes;
  int64_t row, column, begin, end;  // of out, and rows that are summed

  __device__ int chunks() const { return static_cast<int>(parts_of(end - begin, kChunk)); }
  __device__ float* grad_at(int chunk) const { return stages + chunk % kStages * 2 * kFactorFloats; }
  __device__ float* rows_at(int chunk) const { return grad_at(chunk) + kFactorFloats; }
  __device__ uint8_t* plane_at(int chunk) const { return planes + chunk % 2 * 2 * kPlaneBytes; }

  __device__ void copy(int chunk) const {
    if (chunk < chunks()) {
#pragma unroll
      for (int turn = 0; turn < kChunk * kMostColumns / 4 / kThreads; ++turn) {
        const int i = turn * kThreads + threadIdx.x;
        const int in_row = i / (kMostColumns / 4), in_column = i % (kMostColumns / 4) * 4;
        const int at = in_row * kStride + in_column;
        const int64_t m = begin + chunk * kChunk + in_row, n = row + in_column, k = column + in_column;
        const bool has_grad = m < end && n < call.width, has_row = m < end && k < call.depth && in_column < kColumns;
        copy_16(grad_at(chunk) + at, call.grad + (has_grad ? m * call.width + n : 0), has_grad);
        copy_16(rows_at(chunk) + at, call.rows + (has_row ? m * call.depth + k : 0), has_row);
      }
    }
    commit_copies();
  }

  // Turns the rows of a chunk round, and splits them.
  __device__ void turn(int chunk) const {
    if (chunk >= chunks()) return;
    const float* from = rows_at(chunk);
#pragma unroll
    for (int turn = 0; turn < kChunk * kMostColumns / 4 / kThreads; ++turn) {
      const int i = turn * kThreads + threadIdx.x, k = i % kMostColumns, part = i / kMostColumns;
      if (k >= kColumns) continue;
      float values[4];
#pragma unroll
      for (int m = 0; m < 4; ++m) values[m] = from[(4 * part + m) * kStride + k];
      store_split(plane_at(chunk), plane_at(chunk) + kPlaneBytes, wgmma::placed(k, part), values);
    }
  }
};

template <int kColumns>
__device__ void store(const ProductGradCall& call, const Part<kColumns>& part, const WarpgroupPlace& place,
                      int64_t number, const float (&sums)[kColumns / 2], float (&of_columns)[2]) {
  float* out = call.partial + number * call.width * (call.depth + 1);
  const int64_t row = part.row + threadIdx.x / kGroup * kGroupRows;
  for_pairs<kColumns>(place, [&](int in_row, int in_column, int first) {
    const int64_t n = row + in_row, k = part.column + in_column;
    if (n >= call.width || k >= call.depth) return;
    *reinterpret_cast<float2*>(out + n * call.depth + k) = {sums[first], sums[first + 1]};
  });
  if (part.column > 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int other = 1; other < 4; other *= 2)
      of_columns[half] += __shfl_xor_sync(0xFFFFFFFFu, of_columns[half], other);
    const int64_t n = row + place.row + 8 * half;
    if (place.quad == 0 && n < call.width) out[call.width * call.depth + n] = of_columns[half];
  }
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, 1)
    product_grad_kernel(const __grid_constant__ ProductGradCall call, const int64_t part_rows) {
  extern __shared__ uint8_t shared[];
  uint8_t* planes = aligned(shared);
  const int64_t across = parts_of(call.depth, kColumns), tiles = across * parts_of(call.width, kTileRows);
  const int64_t number = blockIdx.x / tiles, begin = number * part_rows;
  float* stages = reinterpret_cast<float*>(planes + 4 * kPlaneBytes);
  const int64_t row = blockIdx.x % tiles / across * kTileRows, column = blockIdx.x % across * kColumns;
  const Part<kColumns> part{call, stages, planes, row, column, begin, min(begin + part_rows, call.num_rows)};
  const auto next_is_there = [] {  // and turned: so are the products of the chunk before
    wait_for_copies<kStages - 3>();
    wgmma::publish();
    __syncthreads();
  };
  for (int chunk = 0; chunk < kStages - 1; ++chunk) part.copy(chunk);
  next_is_there();
  part.turn(0);
  next_is_there();
  const WarpgroupPlace place;
  const int own = place.quad * kStride + threadIdx.x / kGroup * kGroupRows + place.row;
  float sums[kColumns / 2] = {}, of_chunk[kColumns / 2], of_columns[2] = {}, grad[2][2 * kSteps];
  const auto load_grad = [&](int chunk) {
    if (chunk >= part.chunks()) return;
    const float* from = part.grad_at(chunk) + own;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i) of_columns[half] += grad[half][i] = from[8 * half + 4 * i * kStride];
    }
  };
  load_grad(0);
  for (int chunk = 0; chunk < part.chunks(); ++chunk) {
    const LeftFactor left([&](int half, int step, int at) { return grad[half][2 * step + at]; });
    const uint32_t right = wgmma::shared_address(part.plane_at(chunk));
    wgmma::begin();
    multiply<kColumns>(left, right, right + kPlaneBytes, of_chunk);
    wgmma::commit();
    part.turn(chunk + 1);
    part.copy(chunk + kStages - 1);
    load_grad(chunk + 1);
    wgmma::wait();
#pragma unroll
    for (int j = 0; j < kColumns / 2; ++j) sums[j] += of_chunk[j];
    next_is_there();
  }
  store(call, part, place, number, sums, of_columns);
}

__global__ void add_parts_kernel(const __grid_constant__ ProductGradCall call, const int64_t parts) {
  const int64_t of_out = call.width * call.depth, size = of_out + call.width, i = base::grid_first();
  if (i >= size) return;
  float sum = 0;
#pragma unroll 8
  for (int64_t part = 0; part < parts; ++part) sum += call.partial[part * size + i];
  (i < of_out ? call.out + i : call.column_sums + (i - of_out))[0] = sum;
}

// Columns of a tile: those of two sizes that leave less of the last tile empty.
int64_t columns_of(int64_t depth) { return parts_of(depth, 104) * 104 < parts_of(depth, 128) * 128 ? 104 : 128; }

int64_t tiles_of(int64_t depth, int64_t width) {
  return parts_of(depth, columns_of(depth)) * parts_of(width, kTileRows);
}

template <int kColumns>
void launch(const ProductGradCall& call, int64_t parts, cudaStream_t stream) {
  const int64_t part_rows = parts_of(parts_of(call.num_rows, parts), kChunk) * kChunk;
  const auto blocks = static_cast<unsigned>(tiles_of(call.depth, call.width) * parts);
  allow_shared(product_grad_kernel<kColumns>, kSharedBytes);
  product_grad_kernel<kColumns><<<blocks, kThreads, kSharedBytes, stream>>>(call, part_rows);
  base::cuda_check(cudaGetLastError(), "launch a product of gradients and rows");
}

}  // namespace

int64_t num_product_parts(int64_t num_rows, int64_t depth, int64_t width) {
  const int64_t most = std::max<int64_t>(1, kBlocks / std::max<int64_t>(1, tiles_of(depth, width)));
  return std::clamp<int64_t>(parts_of(num_rows, 4 * kChunk), 1, most);
}

void run_on_gpu(const ProductGradCall& call, cudaStream_t stream) {
  if (call.width == 0 || call.depth == 0) return;
  const int64_t parts = num_product_parts(call.num_rows, call.depth, call.width);
  if (columns_of(call.depth) == 104) {
    launch<104>(call, parts, stream);
  } else {
    launch<128>(call, parts, stream);
  }
  const int64_t size = call.width * (call.depth + 1);
  const auto blocks = static_cast<unsigned>(parts_of(size, base::kBlockThreads));
  add_parts_kernel<<<blocks, base::kBlockThreads, 0, stream>>>(call, parts);
  base::cuda_check(cudaGetLastError(), "launch the sum of parts");
}

}  // namespace cohort::trainer
