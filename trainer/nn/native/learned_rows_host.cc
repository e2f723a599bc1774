#include <algorithm>
#include <atomic>
#include <vector>

#include "trainer/nn/native/learned_element.h"

namespace cohort::trainer {
namespace {

template <RowRule kRule>
void update_rows(const UpdateRowsCall& call) {
  constexpr bool kHasSecond = kRule == RowRule::kAdam;
#pragma omp parallel
  {
    std::vector<float> sum(static_cast<std::size_t>(call.dim));
#pragma omp for schedule(dynamic, 64)
    for (int64_t i = 0; i < call.count; ++i) {
      if (!begins_row(call.ids, i, call.num_rows)) continue;
      const int64_t id = call.ids[i], end = end_of_row(call, i);
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t k = i; k < end; ++k) {
        const float* grad = call.grads + (call.row_index ? call.row_index[k] : k) * call.dim;
        for (int64_t c = 0; c < call.dim; ++c) sum[static_cast<std::size_t>(c)] += grad[c];
      }
      const float* const before = call.before ? call.before + (call.row_index ? call.row_index[i] : i) * call.dim
                                              : call.table.row(id, call.dim);
      float* const row = new_row(call, i);
      float* const first = call.first.row(id, call.dim);
      float* const second = kHasSecond ? call.second.row(id, call.dim) : nullptr;
      for (int64_t c = 0; c < call.dim; ++c) {
        float w = before[c], none = 0;
        update_element<kRule>(call, sum[static_cast<std::size_t>(c)], w, first[c], kHasSecond ? second[c] : none);
        row[c] = w;
      }
    }
  }
}

}  // namespace

void run_on_host(const TakeRowsCall& call) {
  std::atomic<int64_t> bad{0};
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < call.count; ++i) {
    const int64_t id = call.ids[i];
    float* const to = call.out + (call.row_index ? call.row_index[i] : i) * call.dim;
    if (id >= 0 && id < call.num_rows) {
      std::copy_n(current_row(call, id), call.dim, to);
    } else {
      std::fill_n(to, call.dim, 0.0f);
      bad = id;
    }
  }
  if (bad != 0) *call.bad = bad;
}

void run_on_host(const UpdateRowsCall& call) {
  if (call.rule == RowRule::kAdagrad) return update_rows<RowRule::kAdagrad>(call);
  update_rows<RowRule::kAdam>(call);
}

void run_on_host(const PutRowsCall& call) {
  const ChangedRows& changed = call.changed;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < changed.count; ++i) {
    if (!is_put(call, i)) continue;
    std::copy_n(changed.rows + (changed.row_index ? changed.row_index[i] : i) * call.dim, call.dim,
                call.table.rows + changed.ids[i] * call.dim);
  }
}

}  // namespace cohort::trainer
