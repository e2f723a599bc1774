#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/reduce.cuh"
#include "trainer/nn/native/totals.h"

namespace cohort::trainer {
namespace {

template <typename T, int kVec>
__global__ void totals_kernel(const __grid_constant__ TotalsCall call) {
  const int64_t first = base::grid_first() * kVec;
  if (first >= call.size) return;
  Sum<T> sum[kVec];
  const auto add = [&](const void* from, int64_t at, bool is_first) {
    const Pack<T, kVec> pack = load_pack<kVec>(static_cast<const T*>(from) + at);
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum[v] = is_first ? widen(pack.value[v]) : plus(sum[v], widen(pack.value[v]));
  };
#pragma unroll
  for (int p = 0; p < kMostParts; ++p) {
    if (p < call.num_parts) add(call.parts[static_cast<std::size_t>(p)], first, p == 0);
  }
  if (call.bias) add(call.bias, first % call.columns, false);
  store_sums<kVec>(call.dtype, call.out, first, sum);
}

template <typename T, int kVec>
void launch(const TotalsCall& call, cudaStream_t stream) {
  const auto packs = static_cast<uint64_t>(call.size / kVec);
  const auto blocks = static_cast<unsigned>((packs + base::kBlockThreads - 1) / base::kBlockThreads);
  totals_kernel<T, kVec><<<blocks, base::kBlockThreads, 0, stream>>>(call);
  base::cuda_check(cudaGetLastError(), "launch sums of arrays");
}

}  // namespace

void run_on_gpu(const TotalsCall& call, cudaStream_t stream) {
  if (call.size == 0) return;
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kWide = 16 / sizeof(T);
    bool fits = call.size % kWide == 0 && packs_fit(call.out, 0, sizeof(T), kWide);
    for (const void* part : call.parts) fits = fits && packs_fit(part, 0, sizeof(T), kWide);
    if (fits && packs_fit(call.bias, call.bias ? call.columns : 0, sizeof(T), kWide)) {
      return launch<T, kWide>(call, stream);
    }
    launch<T, 1>(call, stream);
  });
}

}  // namespace cohort::trainer
