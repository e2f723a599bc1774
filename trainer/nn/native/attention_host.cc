#include "trainer/nn/native/attention.h"

#include <cmath>

#include "trainer/nn/native/host_rows.h"

namespace cohort::trainer {
namespace {

// One head of one row: goes over its edges in their order, its own last.
template <typename A, typename Call>
class RowHead {
 public:
  RowHead(const Call& call, int64_t row, int64_t head)
      : call_(call), row_(row), head_(head), target_(call.scores.target ? target_score() : A{0}) {}

  // f(at, own, x): where the edge's elements stand, whether it is the row's own, and what leaky_relu is taken of.
  template <typename F>
  void for_each(F&& f) const {
    const EdgeRange range = range_of(call_.block, row_);
    for (int64_t e = range.begin; e < range.end; ++e) {
      const int64_t index = call_.block.index[e];
      const int64_t at = e * call_.dim + head_;
      if (!(call_.block.skip_self && index == row_)) f(at, false, ends_score(index) + of(call_.scores.edge, at));
    }
    const int64_t at = row_ * call_.dim + head_;
    if (row_ < call_.num_own) f(at, true, ends_score(row_) + of(call_.scores.own_edge, at));
  }

  A leaky(A x) const { return x > 0 ? x : x * static_cast<A>(call_.scores.slope); }
  A slope(A x) const { return x > 0 ? A{1} : static_cast<A>(call_.scores.slope); }

 private:
  static A of(const void* scores, int64_t at) { return scores ? static_cast<const A*>(scores)[at] : A{0}; }
  A ends_score(int64_t index) const {
    return static_cast<const A*>(call_.scores.source)[index * call_.scores.source_stride + head_] + target_;
  }
  A target_score() const {
    return static_cast<const A*>(call_.scores.target)[row_ * call_.scores.target_stride + head_];
  }

  const Call& call_;
  const int64_t row_, head_;
  const A target_;
};

template <typename A>
void weigh(const AttentionCall& call, int64_t row, int64_t head) {
  const RowHead<A, AttentionCall> edges(call, row, head);
  A *weights = static_cast<A*>(call.weights), *own_weights = static_cast<A*>(call.own_weights);
  A largest = -INFINITY, sum = 0;
  edges.for_each([&](int64_t, bool, A x) { largest = edges.leaky(x) > largest ? edges.leaky(x) : largest; });
  edges.for_each([&](int64_t at, bool own, A x) {
    const A power = std::exp(edges.leaky(x) - largest);
    (own ? own_weights : weights)[at] = power;
    sum += power;
  });
  edges.for_each([&](int64_t at, bool own, A) { (own ? own_weights : weights)[at] /= sum; });
}

template <typename A>
void grade(const AttentionGradCall& call, int64_t row, int64_t head) {
  const RowHead<A, AttentionGradCall> edges(call, row, head);
  const A *weights = static_cast<const A*>(call.weights), *own_weights = static_cast<const A*>(call.own_weights);
  A *grads = static_cast<A*>(call.grads), *own_grads = static_cast<A*>(call.own_grads);
  A dot = 0, sum = 0;
  edges.for_each(
      [&](int64_t at, bool own, A) { dot += own ? own_weights[at] * own_grads[at] : weights[at] * grads[at]; });
  edges.for_each([&](int64_t at, bool own, A x) {
    A& grad = (own ? own_grads : grads)[at];
    grad = (own ? own_weights : weights)[at] * (grad - dot) * edges.slope(x);
    sum += grad;
  });
  static_cast<A*>(call.target_grads)[row * call.target_grads_stride + head] = sum;
}

// Edges that do not count have weights, and gradients, of 0.
template <typename A>
void clear_skipped(const BlockRef& block, int64_t row, int64_t dim, A* values) {
  const EdgeRange range = range_of(block, row);
  for (int64_t e = range.begin; block.skip_self && e < range.end; ++e) {
    if (block.index[e] != row) continue;
    for (int64_t head = 0; head < dim; ++head) values[e * dim + head] = 0;
  }
}

template <typename Call, typename F>
void for_rows(const Call& call, F&& f) {
#pragma omp parallel for schedule(dynamic, kRowsAtOnce) if (call.block.num_rows > kRowsAtOnce)
  for (int64_t row = 0; row < call.block.num_rows; ++row) f(row);
}

}  // namespace

void run_on_host(const AttentionCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    for_rows(call, [&](int64_t row) {
      for (int64_t head = 0; head < call.dim; ++head) weigh<Sum<T>>(call, row, head);
      clear_skipped(call.block, row, call.dim, static_cast<Sum<T>*>(call.weights));
    });
  });
}

void run_on_host(const AttentionGradCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    for_rows(call, [&](int64_t row) {
      for (int64_t head = 0; head < call.dim; ++head) grade<Sum<T>>(call, row, head);
      clear_skipped(call.block, row, call.dim, static_cast<Sum<T>*>(call.grads));
    });
  });
}

}  // namespace cohort::trainer
