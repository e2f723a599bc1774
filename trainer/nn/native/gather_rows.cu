#include "trainer/nn/native/gather_rows.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {
namespace {

template <typename T, int kVec>
__global__ void gather_rows_kernel(const __grid_constant__ GatherRowsCall call) {
  const int64_t at = base::grid_first() * kVec, row = at / call.dim;
  if (row >= call.num_rows) return;
  const int64_t from = call.row_index[row];
  Sum<T> values[kVec] = {};
  if (from >= 0) {
    const T* x = static_cast<const T*>(call.x) + from * call.x_stride + at % call.dim;
    const Pack<T, kVec> pack = load_pack<kVec>(x);
#pragma unroll
    for (int v = 0; v < kVec; ++v) values[v] = widen(pack.value[v]);
  }
  store_sums<kVec>(call.out_dtype, call.out, at, values);
}

template <typename T, int kVec>
void launch(const GatherRowsCall& call, cudaStream_t stream) {
  const auto packs = static_cast<uint64_t>(call.num_rows * call.dim / kVec);
  const auto blocks = static_cast<unsigned>((packs + base::kBlockThreads - 1) / base::kBlockThreads);
  gather_rows_kernel<T, kVec><<<blocks, base::kBlockThreads, 0, stream>>>(call);
  base::cuda_check(cudaGetLastError(), "launch the gathering of rows");
}

}  // namespace

void run_on_gpu(const GatherRowsCall& call, cudaStream_t stream) {
  if (call.num_rows == 0 || call.dim == 0) return;
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kWide = 16 / sizeof(T);
    const bool fits = call.dim % kWide == 0 && packs_fit(call.x, call.x_stride, sizeof(T), kWide) &&
                      packs_fit(call.out, 0, bytes_of(call.out_dtype), kWide);
    if (fits) return launch<T, kWide>(call, stream);
    launch<T, 1>(call, stream);
  });
}

}  // namespace cohort::trainer
