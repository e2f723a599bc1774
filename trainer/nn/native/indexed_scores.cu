#include "trainer/nn/native/indexed_scores.h"

#include <cuda_pipeline_primitives.h>
#include <mma.h>

#include "base/cuda_check.h"

namespace cohort::trainer {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWarp = 32;
constexpr int kTile = 8;    // vectors of a product of tensor cores
constexpr int kDepth = 16;  // what one of them sums
constexpr int kPack = 8;    // elements that are copied at once, sixteen bytes
constexpr int kPad = 8;     // elements behind a row in shared memory, so that rows begin in different banks

int64_t parts_of(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Sixteen bytes on their way into shared memory; zeros where there are none.
template <typename T>
__device__ void copy_pack(T* to, const T* from, bool exists) {
  constexpr int kBytes = kPack * sizeof(T);
  static_assert(kBytes == 16);
  __pipeline_memcpy_async(to, from, kBytes, exists ? 0 : kBytes);
}

// A block makes the products of kScoreRows rows, kChunk columns at a time, of which the next are on their way.
template <typename T, int kTiles>
struct Products {
  static constexpr int kThreads = kScoreRows, kWarpRows = 32, kChunk = 64, kStages = 2;
  static constexpr int kStride = kChunk + kPad, kPacks = kChunk / kPack, kTurns = kScoreRows * kPacks / kThreads;
  static constexpr int kRowElements = kScoreRows * kStride, kStage = kRowElements + kTiles * kTile * kStride;
  static constexpr int kSharedBytes = kStages * kStage * static_cast<int>(sizeof(T));
  static_assert(kThreads / kWarp * kWarpRows == kScoreRows && kThreads % kPacks == 0);
  using Sums = wmma::fragment<wmma::accumulator, kWarpRows, kTile, kDepth, float>;

  const IndexedScoresCall& call;
  T* shared;
  const T* rows[kTurns];  // those that this thread copies; null: zeros
  Sums sums[kTiles];

  __device__ Products(const IndexedScoresCall& of, T* memory) : call(of), shared(memory) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t i = static_cast<int64_t>(blockIdx.x) * kScoreRows + (turn * kThreads + threadIdx.x) / kPacks;
      const int64_t row = i < call.count ? call.row_index[i] : -1;
      rows[turn] = row < 0 ? nullptr : static_cast<const T*>(call.rows) + row * call.dim;
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t) wmma::fill_fragment(sums[t], 0.0f);
  }

  __device__ T* stage(int64_t chunk) const { return shared + chunk % kStages * kStage; }

  __device__ void copy(int64_t chunk) const {
    const int pack = static_cast<int>(threadIdx.x) % kPacks;
    const int64_t column = chunk * kChunk + pack * kPack;
    if (column < call.dim) {
      const auto* vectors = static_cast<const T*>(call.vectors);
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        T* to = stage(chunk) + (turn * kThreads + threadIdx.x) / kPacks * kStride + pack * kPack;
        copy_pack(to, rows[turn] ? rows[turn] + column : vectors, rows[turn] != nullptr);
      }
      for (int v = static_cast<int>(threadIdx.x) / kPacks; v < call.width; v += kThreads / kPacks) {
        T* to = stage(chunk) + kRowElements + v * kStride + pack * kPack;
        copy_pack(to, vectors + v * call.dim + column, true);
      }
    }
    __pipeline_commit();
  }

  __device__ void multiply(int64_t chunk) {
    const T* left = stage(chunk) + threadIdx.x / kWarp * kWarpRows * kStride;
    const T* right = stage(chunk) + kRowElements;
#pragma unroll
    for (int depth = 0; depth < kChunk; depth += kDepth) {
      if (chunk * kChunk + depth >= call.dim) return;
      wmma::fragment<wmma::matrix_a, kWarpRows, kTile, kDepth, T, wmma::row_major> of_rows;
      wmma::load_matrix_sync(of_rows, left + depth, kStride);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t * kTile >= call.width) continue;
        wmma::fragment<wmma::matrix_b, kWarpRows, kTile, kDepth, T, wmma::col_major> of_vectors;
        wmma::load_matrix_sync(of_vectors, right + t * kTile * kStride + depth, kStride);
        wmma::mma_sync(sums[t], of_rows, of_vectors, sums[t]);
      }
    }
  }

  __device__ void store() const {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kScoreRows + threadIdx.x / kWarp * kWarpRows;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t * kTile >= call.width) continue;
      float* to = call.out + row * call.width + t * kTile;
      wmma::store_matrix_sync(to, sums[t], static_cast<unsigned>(call.width), wmma::mem_row_major);
    }
  }
};

// A block sums over a part of the rows for kColumns columns, kChunk rows at a time; each warp has 32 of the columns.
template <typename T, int kTiles>
struct Gradients {
  static constexpr int kThreads = 256, kWarpColumns = 32, kColumns = kGradColumns, kChunk = 32, kStages = 3;
  static constexpr int kStride = kColumns + kPad, kWarps = kThreads / kWarp, kTurns = kChunk / kWarps;
  static constexpr int kRowElements = kChunk * kStride, kGradTile = kChunk * kTile;
  static constexpr int kStage = kRowElements + kTiles * kGradTile;
  static constexpr int kSharedBytes = kStages * kStage * static_cast<int>(sizeof(T));
  static_assert(kWarp * kPack == kColumns && kWarps * kWarpColumns == kColumns && kChunk * kTiles <= kThreads);
  using Sums = wmma::fragment<wmma::accumulator, kTile, kWarpColumns, kDepth, float>;

  const IndexedScoresGradCall& call;
  T* shared;
  const int64_t first_column, begin, end;  // rows that are summed
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  int64_t next[kTurns];  // indices of the rows that this warp copies next
  Sums sums[kTiles];

  __device__ Gradients(const IndexedScoresGradCall& of, T* memory, int64_t column, int64_t first, int64_t last)
      : call(of), shared(memory), first_column(column), begin(first), end(last) {
    look_up(0);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) wmma::fill_fragment(sums[t], 0.0f);
  }

  __device__ T* stage(int64_t chunk) const { return shared + chunk % kStages * kStage; }
  __device__ int64_t num_chunks() const { return end > begin ? (end - begin + kChunk - 1) / kChunk : 0; }

  __device__ void look_up(int64_t chunk) {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int64_t i = begin + chunk * kChunk + turn * kWarps + warp;
      next[turn] = i < end ? call.row_index[i] : -1;
    }
  }

  // Copies a chunk, whose rows are `next`.
  __device__ void copy(int64_t chunk) {
    if (chunk < num_chunks()) {
      const auto* rows = static_cast<const T*>(call.rows);
      const auto* grads = static_cast<const T*>(call.grad);
      const int pack = static_cast<int>(threadIdx.x) % kWarp * kPack;
      const int64_t column = first_column + pack;
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const bool exists = next[turn] >= 0 && column < call.dim;
        T* to = stage(chunk) + (turn * kWarps + warp) * kStride + pack;
        copy_pack(to, exists ? rows + next[turn] * call.dim + column : rows, exists);
      }
      const int in_chunk = static_cast<int>(threadIdx.x) / kTiles, t = static_cast<int>(threadIdx.x) % kTiles;
      const int64_t i = begin + chunk * kChunk + in_chunk;
      if (in_chunk < kChunk) {
        const bool exists = i < end && t * kTile < call.width;
        T* to = stage(chunk) + kRowElements + t * kGradTile + in_chunk * kTile;
        copy_pack(to, exists ? grads + i * call.width + t * kTile : grads, exists);
      }
      look_up(chunk + 1);
    }
    __pipeline_commit();
  }

  __device__ void multiply(int64_t chunk) {
    if (first_column + warp * kWarpColumns >= call.dim) return;
    const T* right = stage(chunk) + warp * kWarpColumns;
    const T* left = stage(chunk) + kRowElements;
#pragma unroll
    for (int depth = 0; depth < kChunk; depth += kDepth) {
      wmma::fragment<wmma::matrix_b, kTile, kWarpColumns, kDepth, T, wmma::row_major> of_rows;
      wmma::load_matrix_sync(of_rows, right + depth * kStride, kStride);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        if (t * kTile >= call.width) continue;
        wmma::fragment<wmma::matrix_a, kTile, kWarpColumns, kDepth, T, wmma::col_major> of_grads;
        wmma::load_matrix_sync(of_grads, left + t * kGradTile + depth * kTile, kTile);
        wmma::mma_sync(sums[t], of_grads, of_rows, sums[t]);
      }
    }
  }

  __device__ void store(int64_t part) const {
    const int64_t column = first_column + warp * kWarpColumns;
    if (column >= call.dim) return;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t * kTile >= call.width) continue;
      float* to = call.partial + (part * call.width + t * kTile) * call.dim + column;
      wmma::store_matrix_sync(to, sums[t], static_cast<unsigned>(call.dim), wmma::mem_row_major);
    }
  }
};

// Multiplies chunk after chunk, with kStages - 1 of them on their way.
template <typename Work>
__device__ void run(Work& work, int64_t num_chunks) {
  for (int chunk = 0; chunk < Work::kStages - 1; ++chunk) work.copy(chunk);
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    work.copy(chunk + Work::kStages - 1);
    __pipeline_wait_prior(Work::kStages - 1);
    __syncthreads();
    work.multiply(chunk);
    __syncthreads();  // before the next copy writes there
  }
}

template <typename T, int kTiles>
__global__ void __launch_bounds__(Products<T, kTiles>::kThreads)
    products_kernel(const __grid_constant__ IndexedScoresCall call) {
  extern __shared__ __align__(128) uint8_t shared[];
  using Work = Products<T, kTiles>;
  Work work(call, reinterpret_cast<T*>(shared));
  run(work, (call.dim + Work::kChunk - 1) / Work::kChunk);
  work.store();
}

template <typename T, int kTiles>
__global__ void __launch_bounds__(Gradients<T, kTiles>::kThreads, 2)
    gradients_kernel(const __grid_constant__ IndexedScoresGradCall call, const int64_t slices,
                     const int64_t part_rows) {
  extern __shared__ __align__(128) uint8_t shared[];
  using Work = Gradients<T, kTiles>;
  const int64_t part = blockIdx.x / slices, begin = part * part_rows;
  Work work(call, reinterpret_cast<T*>(shared), blockIdx.x % slices * Work::kColumns, begin,
            min(begin + part_rows, call.count));
  run(work, work.num_chunks());
  work.store(part);
}

// Calls f(std::type_identity<T>{}, std::integral_constant<int, tiles>{}) for what tensor cores call the dtype, and for
// enough tiles of vectors.
template <typename Call, typename F>
void with_kernel(const Call& call, F&& f) {
  base::require(call.dtype == Dtype::kFloat16 || call.dtype == Dtype::kBfloat16, "rows of 16 bits");
  base::require(call.width > 0 && call.width % kTile == 0 && call.width <= kMostScores, "8 to 64 vectors, by eights");
  base::require(call.dim > 0 && call.dim % kScoreColumns == 0, "rows of a multiple of 32 columns");
  const auto with_tiles = [&]<typename T>(std::type_identity<T> type) {
    if (call.width <= kTile) return f(type, std::integral_constant<int, 1>{});
    if (call.width <= 2 * kTile) return f(type, std::integral_constant<int, 2>{});
    if (call.width <= 4 * kTile) return f(type, std::integral_constant<int, 4>{});
    f(type, std::integral_constant<int, 8>{});
  };
  if (call.dtype == Dtype::kFloat16) return with_tiles(std::type_identity<__half>{});
  with_tiles(std::type_identity<__nv_bfloat16>{});
}

template <typename Kernel>
void allow_shared(Kernel* kernel, int bytes) {
  base::cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "shared memory for scores of rows");
}

}  // namespace

void run_on_gpu(const IndexedScoresCall& call, cudaStream_t stream) {
  if (call.count == 0) return;
  with_kernel(call, [&]<typename T, int kTiles>(std::type_identity<T>, std::integral_constant<int, kTiles>) {
    using Work = Products<T, kTiles>;
    allow_shared(products_kernel<T, kTiles>, Work::kSharedBytes);
    const auto blocks = static_cast<unsigned>(parts_of(call.count, kScoreRows));
    products_kernel<T, kTiles><<<blocks, Work::kThreads, Work::kSharedBytes, stream>>>(call);
    base::cuda_check(cudaGetLastError(), "launch scores of rows");
  });
}

void run_on_gpu(const IndexedScoresGradCall& call, cudaStream_t stream) {
  base::require(call.parts > 0 && call.parts <= kMostScoreParts, "1 to 264 parts of rows");
  with_kernel(call, [&]<typename T, int kTiles>(std::type_identity<T>, std::integral_constant<int, kTiles>) {
    using Work = Gradients<T, kTiles>;
    allow_shared(gradients_kernel<T, kTiles>, Work::kSharedBytes);
    const int64_t slices = parts_of(call.dim, Work::kColumns);
    const int64_t part_rows = parts_of(parts_of(call.count, call.parts), Work::kChunk) * Work::kChunk;
    const auto blocks = static_cast<unsigned>(slices * call.parts);
    gradients_kernel<T, kTiles><<<blocks, Work::kThreads, Work::kSharedBytes, stream>>>(call, slices, part_rows);
    base::cuda_check(cudaGetLastError(), "launch the gradient of scores of rows");
  });
}

}  // namespace cohort::trainer
