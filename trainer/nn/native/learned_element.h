// An optimizer's step on one element of a learned row, the same on host and device: bit for bit, without fused
// multiply-adds.
#pragma once

#include <cmath>

#include "trainer/nn/native/learned_rows.h"

namespace cohort::trainer {

#ifdef __CUDA_ARCH__
#define COHORT_ROUNDED(device, host) device
#else
#define COHORT_ROUNDED(device, host) host
#endif
COHORT_HOST_DEVICE inline float row_sum(float a, float b) { return COHORT_ROUNDED(__fadd_rn(a, b), a + b); }
COHORT_HOST_DEVICE inline float row_product(float a, float b) { return COHORT_ROUNDED(__fmul_rn(a, b), a * b); }
COHORT_HOST_DEVICE inline float row_share(float a, float b) { return COHORT_ROUNDED(__fdiv_rn(a, b), a / b); }
COHORT_HOST_DEVICE inline float row_root(float a) { return COHORT_ROUNDED(__fsqrt_rn(a), std::sqrt(a)); }
#undef COHORT_ROUNDED

// Changes w and the states first and second, which kAdagrad leaves alone.
template <RowRule kRule>
COHORT_HOST_DEVICE void update_element(const UpdateRowsCall& call, float grad, float& w, float& first, float& second) {
  if (call.weight_decay != 0) grad = row_sum(grad, row_product(call.weight_decay, w));
  const float square = row_product(grad, grad);
  float direction = grad, scale = 0;
  if constexpr (kRule == RowRule::kAdagrad) {
    first = row_sum(first, square);
    scale = row_root(first);
  } else {
    first = row_sum(first, row_product(call.share1, row_sum(grad, -first)));
    second = row_sum(second, row_product(call.share2, row_sum(square, -second)));
    direction = first;
    scale = row_root(second);
  }
  w = row_sum(w, -row_product(call.rate, row_share(direction, row_sum(scale, call.eps))));
}

// Row `id` as it is now.
COHORT_HOST_DEVICE inline const float* current_row(const TakeRowsCall& call, int64_t id) {
  if (call.changed.count > 0 && !call.table.is_hot(id)) {
    if (const float* const changed = call.changed.find(id, call.dim)) return changed;
  }
  return call.table.row(id, call.dim);
}

// Where the new row of ids[i] goes.
COHORT_HOST_DEVICE inline float* new_row(const UpdateRowsCall& call, int64_t i) {
  if (call.changed == nullptr || call.table.is_hot(call.ids[i])) return call.table.row(call.ids[i], call.dim);
  return call.changed + (call.row_index ? call.row_index[i] : i) * call.dim;
}

// Whether ids[i], one of [0, num_rows), begins the part of equal ids that it belongs to.
COHORT_HOST_DEVICE inline bool begins_row(const int64_t* ids, int64_t i, int64_t num_rows) {
  return ids[i] >= 0 && ids[i] < num_rows && (i == 0 || ids[i - 1] != ids[i]);
}

COHORT_HOST_DEVICE inline int64_t end_of_row(const UpdateRowsCall& call, int64_t i) {
  int64_t end = i + 1;
  while (end < call.count && call.ids[end] == call.ids[i]) ++end;
  return end;
}

// Whether the i-th of the changed rows must be put into the table.
COHORT_HOST_DEVICE inline bool is_put(const PutRowsCall& call, int64_t i) {
  return begins_row(call.changed.ids, i, call.num_rows) && !call.table.is_hot(call.changed.ids[i]);
}

}  // namespace cohort::trainer
