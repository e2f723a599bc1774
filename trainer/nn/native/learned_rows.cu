#include "base/cuda_check.h"
#include "base/launch.h"
#include "trainer/nn/native/learned_element.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {
namespace {

using base::cuda_check;
using base::grid_first;
using base::grid_step;
using base::kBlockThreads;

constexpr int kMaxBlocks = 1 << 16;
constexpr int kBlocksBeside = 132;  // of kernels that leave the SMs to others; the link is busy then, too
constexpr int kWide = 4;  // elements that a thread reads and writes at once; neighbours then share lines of the link

template <int kVec>
__device__ void store_pack(float* to, const Pack<float, kVec>& pack) {
  *reinterpret_cast<Pack<float, kVec>*>(to) = pack;
}

// A thread takes packs of rows.
template <int kVec>
__global__ void take_rows_kernel(const __grid_constant__ TakeRowsCall call) {
  const int64_t packs = call.dim / kVec;
  for (int64_t at = grid_first(); at < call.count * packs; at += grid_step()) {
    const int64_t i = at / packs, column = at % packs * kVec, id = call.ids[i];
    Pack<float, kVec> pack{};
    if (id >= 0 && id < call.num_rows) {
      pack = load_pack<kVec>(current_row(call, id) + column);
    } else {
      *call.bad = id;
    }
    store_pack(call.out + (call.row_index ? call.row_index[i] : i) * call.dim + column, pack);
  }
}

// A thread takes packs of rows, and adds up the gradients of each.
template <int kVec, RowRule kRule>
__global__ void update_rows_kernel(const __grid_constant__ UpdateRowsCall call) {
  constexpr bool kHasSecond = kRule == RowRule::kAdam;
  const int64_t packs = call.dim / kVec;
  for (int64_t at = grid_first(); at < call.count * packs; at += grid_step()) {
    const int64_t i = at / packs, column = at % packs * kVec;
    if (!begins_row(call.ids, i, call.num_rows)) continue;
    const int64_t id = call.ids[i], end = end_of_row(call, i), index = call.row_index ? call.row_index[i] : i;
    float* const to = new_row(call, i) + column;
    float* const to_first = call.first.row(id, call.dim) + column;
    float* const to_second = kHasSecond ? call.second.row(id, call.dim) + column : nullptr;
    // What comes over the link, asked for before the gradients are added up.
    Pack<float, kVec> row =
        load_pack<kVec>((call.before ? call.before + index * call.dim : call.table.row(id, call.dim)) + column);
    Pack<float, kVec> first = load_pack<kVec>(to_first), second{};
    if constexpr (kHasSecond) second = load_pack<kVec>(to_second);
    Pack<float, kVec> sum{};
#pragma unroll 4
    for (int64_t k = i; k < end; ++k) {
      const auto grad = load_pack<kVec>(call.grads + (call.row_index ? call.row_index[k] : k) * call.dim + column);
#pragma unroll
      for (int v = 0; v < kVec; ++v) sum.value[v] = row_sum(sum.value[v], grad.value[v]);
    }
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      update_element<kRule>(call, sum.value[v], row.value[v], first.value[v], second.value[v]);
    }
    store_pack(to, row);
    store_pack(to_first, first);
    if constexpr (kHasSecond) store_pack(to_second, second);
  }
}

template <int kVec>
__global__ void put_rows_kernel(const __grid_constant__ PutRowsCall call) {
  const ChangedRows& changed = call.changed;
  const int64_t packs = call.dim / kVec;
  for (int64_t at = grid_first(); at < changed.count * packs; at += grid_step()) {
    const int64_t i = at / packs, column = at % packs * kVec;
    if (!is_put(call, i)) continue;
    const float* const from = changed.rows + (changed.row_index ? changed.row_index[i] : i) * call.dim;
    store_pack(call.table.rows + changed.ids[i] * call.dim + column, load_pack<kVec>(from + column));
  }
}

bool has_packs(const void* array) { return reinterpret_cast<uintptr_t>(array) % (kWide * sizeof(float)) == 0; }

bool has_packs(const LearnedRows& table) { return has_packs(table.rows) && has_packs(table.hot); }

template <RowRule kRule>
void update_rows(const UpdateRowsCall& call, cudaStream_t stream) {
  const bool wide = call.dim % kWide == 0 && has_packs(call.grads) && has_packs(call.before) &&
                    has_packs(call.changed) && has_packs(call.table) && has_packs(call.first) && has_packs(call.second);
  const int64_t work = call.count * call.dim;
  const auto kernel = wide ? update_rows_kernel<kWide, kRule> : update_rows_kernel<1, kRule>;
  kernel<<<base::grid_for(wide ? work / kWide : work, kMaxBlocks), kBlockThreads, 0, stream>>>(call);
  cuda_check(cudaGetLastError(), "launch the update of learned rows");
}

}  // namespace

void run_on_gpu(const TakeRowsCall& call, cudaStream_t stream) {
  const int64_t work = call.count * call.dim;
  if (work == 0) return;
  const bool wide =
      call.dim % kWide == 0 && has_packs(call.out) && has_packs(call.changed.rows) && has_packs(call.table);
  const auto kernel = wide ? take_rows_kernel<kWide> : take_rows_kernel<1>;
  kernel<<<base::grid_for(wide ? work / kWide : work, kMaxBlocks), kBlockThreads, 0, stream>>>(call);
  cuda_check(cudaGetLastError(), "launch the reading of learned rows");
}

void run_on_gpu(const UpdateRowsCall& call, cudaStream_t stream) {
  if (call.count * call.dim == 0) return;
  if (call.rule == RowRule::kAdagrad) return update_rows<RowRule::kAdagrad>(call, stream);
  update_rows<RowRule::kAdam>(call, stream);
}

void run_on_gpu(const PutRowsCall& call, cudaStream_t stream) {
  const int64_t work = call.changed.count * call.dim;
  if (work == 0) return;
  const bool wide = call.dim % kWide == 0 && has_packs(call.changed.rows) && has_packs(call.table);
  const auto kernel = wide ? put_rows_kernel<kWide> : put_rows_kernel<1>;
  kernel<<<base::grid_for(wide ? work / kWide : work, kBlocksBeside), kBlockThreads, 0, stream>>>(call);
  cuda_check(cudaGetLastError(), "launch the writing of learned rows");
}

}  // namespace cohort::trainer
