// Tables of rows that are learned: rows by id, and an optimizer's step on the rows that a batch has read.
//
// A table may lie in host memory that the GPU reads and writes in place. Its hot rows may lie in GPU memory.
#pragma once

#include <bit>
#include <cstdint>

#include "base/gpu_stream.h"
#include "base/host_device.h"
#include "base/search.h"

namespace cohort::trainer {

// float32 [num_rows, dim]. The row of an id is in `hot`, if the id is marked there, otherwise in `rows`.
struct LearnedRows {
  float* rows = nullptr;
  float* hot = nullptr;                 // float32 [hot rows, dim], by ascending id; null: there are none
  const uint32_t* hot_bits = nullptr;   // uint32 [ceil(num_rows / 32)]: bit id % 32 of word id / 32 marks a hot row
  const int32_t* hot_before = nullptr;  // int32 [ceil(num_rows / 32)]: the number of hot rows before those of the word

  COHORT_HOST_DEVICE bool is_hot(int64_t id) const { return hot != nullptr && (hot_bits[id / 32] >> (id % 32) & 1); }

  COHORT_HOST_DEVICE float* row(int64_t id, int64_t dim) const {
    if (!is_hot(id)) return rows + id * dim;
    const uint32_t below = hot_bits[id / 32] & ((uint32_t{1} << (id % 32)) - 1);
#ifdef __CUDA_ARCH__
    return hot + (hot_before[id / 32] + __popc(below)) * dim;
#else
    return hot + (hot_before[id / 32] + std::popcount(below)) * dim;
#endif
  }
};

// Rows that a step has changed and that are not in the table yet, except for hot rows, which are.
struct ChangedRows {
  int64_t count = 0;
  const int64_t* ids = nullptr;        // int64 [count], ascending
  const int64_t* row_index = nullptr;  // int64 [count]: which of `rows` each id has, the first if it repeats; null: i
  const float* rows = nullptr;         // float32 [count, dim]

  // Row `id`, or null.
  COHORT_HOST_DEVICE const float* find(int64_t id, int64_t dim) const {
    const int64_t first = base::first_not_before(0, count, [&](int64_t i) { return ids[i] < id; });
    if (first == count || ids[first] != id) return nullptr;
    return rows + (row_index ? row_index[first] : first) * dim;
  }
};

// out[row_index[i]] = row ids[i]. Of an id out of range, the row is zeros, and *bad becomes the id.
struct TakeRowsCall {
  LearnedRows table;
  int64_t num_rows = 0;
  int64_t dim = 0;
  int64_t count = 0;
  const int64_t* ids = nullptr;        // int64 [count]; ascending ids read host memory in the order of its addresses
  const int64_t* row_index = nullptr;  // int64 [count]; null: i
  float* out = nullptr;                // float32 [count, dim]
  int64_t* bad = nullptr;              // int64 [1], where the host reads it too
  ChangedRows changed;
};

void run_on_host(const TakeRowsCall& call);
void run_on_gpu(const TakeRowsCall& call, base::GpuStream stream);

// kAdagrad (Duchi et al., JMLR 2011):       s += g g;  w -= rate g / (sqrt(s) + eps)
// kAdam (Kingma and Ba, ICLR 2015):         m += share1 (g - m);  v += share2 (g g - v);  w -= rate m / (sqrt(v) + eps)
// where g is the sum of an id's gradients plus weight_decay w, and `rate` has the corrections of m and v.
enum class RowRule : int { kAdagrad = 0, kAdam };

// A step on row w of each different id. The gradients of an id are added in the order in which they stand.
struct UpdateRowsCall {
  RowRule rule = RowRule::kAdagrad;
  LearnedRows table;
  LearnedRows first;   // s or m
  LearnedRows second;  // v
  int64_t num_rows = 0;
  int64_t dim = 0;
  int64_t count = 0;
  const int64_t* ids = nullptr;        // int64 [count], ascending; ids out of range are left out
  const int64_t* row_index = nullptr;  // int64 [count]: which gradient an id has, ascending for equal ids; null: i
  const float* grads = nullptr;        // float32 [count, dim]
  const float* before = nullptr;  // float32 [count, dim], the rows, in the order of `grads`; null: those of `table`
  float* changed = nullptr;       // [count, dim], may be `grads`: new rows that are not hot, as ChangedRows; null: they
                                  // go to `table`
  float rate = 0;
  float eps = 0;
  float weight_decay = 0;
  float share1 = 0;
  float share2 = 0;
};

void run_on_host(const UpdateRowsCall& call);
void run_on_gpu(const UpdateRowsCall& call, base::GpuStream stream);

// Changed rows go to the table.
struct PutRowsCall {
  LearnedRows table;
  int64_t num_rows = 0;
  int64_t dim = 0;
  ChangedRows changed;  // ids out of range are left out
};

void run_on_host(const PutRowsCall& call);
void run_on_gpu(const PutRowsCall& call, base::GpuStream stream);

}  // namespace cohort::trainer
