#include "trainer/nn/native/attention.h"

#include <algorithm>
#include <cmath>

#include "trainer/nn/native/host_rows.h"

namespace cohort::trainer {
namespace {

// All heads of one row.
template <typename A, typename Call>
class RowHeads {
 public:
  RowHeads(const Call& call, int64_t row)
      : call_(call),
        row_(row),
        slope_(static_cast<A>(call.scores.slope)),
        target_(call.scores.target ? static_cast<const A*>(call.scores.target) + row * call.scores.target_stride
                                   : nullptr) {}

  // Goes over the row's edges in their order, its own last: f(at, own, index), where the edge's elements of the first
  // head stand, std::true_type if it is the row's own, and which source it comes from.
  template <typename F>
  void for_each(F&& f) const {
    const EdgeRange range = range_of(call_.block, row_);
    for (int64_t e = range.begin; e < range.end; ++e) {
      const int64_t index = call_.block.index[e];
      if (!(call_.block.skip_self && index == row_)) f(e * call_.dim, std::false_type{}, index);
    }
    if (row_ < call_.num_own) f(row_ * call_.dim, std::true_type{}, row_);
  }

  // f(head, x) for each head of an edge; leaky_relu is taken of x.
  template <typename F>
  void for_heads(int64_t at, bool own, int64_t index, F&& f) const {
    const A* source = source_of(index);
    const void* of_edges = own ? call_.scores.own_edge : call_.scores.edge;
    const A* edge = of_edges ? static_cast<const A*>(of_edges) + at : nullptr;
    for (int64_t head = 0; head < call_.dim; ++head) {
      const A x = source[head] + (target_ ? target_[head] : A{0}) + (edge ? edge[head] : A{0});
      f(head, x);
    }
  }

  // Asks for the scores of a source that comes soon.
  void fetch(int64_t edge) const {
    if (edge < call_.block.num_edges) __builtin_prefetch(source_of(call_.block.index[edge]));
  }

  A leaky(A x) const {
    const A low = x * slope_;
    return x > 0 ? x : low;
  }
  A slope(A x) const { return x > 0 ? A{1} : slope_; }

 private:
  const A* source_of(int64_t index) const {
    return static_cast<const A*>(call_.scores.source) + index * call_.scores.source_stride;
  }

  const Call& call_;
  const int64_t row_;
  const A slope_;
  const A* const target_;  // [heads]; null: zeros
};

template <typename A>
void weigh(const AttentionCall& call, int64_t row) {
  const RowHeads<A, AttentionCall> edges(call, row);
  A *weights = static_cast<A*>(call.weights), *own_weights = static_cast<A*>(call.own_weights);
  A *largest = static_cast<A*>(call.largest) + row * call.dim, *sums = static_cast<A*>(call.sums) + row * call.dim;
  std::fill(largest, largest + call.dim, -INFINITY);
  std::fill(sums, sums + call.dim, A{0});
  edges.for_each([&](int64_t at, auto own, int64_t index) {
    A* to = (own ? own_weights : weights) + at;
    if (!own) edges.fetch(at / call.dim + kEdgesAhead);
    edges.for_heads(at, own, index, [&](int64_t head, A x) {
      to[head] = edges.leaky(x);
      largest[head] = to[head] > largest[head] ? to[head] : largest[head];
    });
  });
  edges.for_each([&](int64_t at, auto own, int64_t) {
    A* to = (own ? own_weights : weights) + at;
    for (int64_t head = 0; head < call.dim; ++head) {
      to[head] = std::exp(to[head] - largest[head]);
      sums[head] += to[head];
    }
  });
  edges.for_each([&](int64_t at, auto own, int64_t) {
    A* to = (own ? own_weights : weights) + at;
    for (int64_t head = 0; head < call.dim; ++head) to[head] /= sums[head];
  });
}

template <typename A>
void grade(const AttentionGradCall& call, int64_t row) {
  const RowHeads<A, AttentionGradCall> edges(call, row);
  const A *weights = static_cast<const A*>(call.weights), *own_weights = static_cast<const A*>(call.own_weights);
  A *grads = static_cast<A*>(call.grads), *own_grads = static_cast<A*>(call.own_grads);
  A* dots = static_cast<A*>(call.sums) + row * call.dim;
  A* target_grads = static_cast<A*>(call.target_grads) + row * call.target_grads_stride;
  std::fill(dots, dots + call.dim, A{0});
  std::fill(target_grads, target_grads + call.dim, A{0});
  edges.for_each([&](int64_t at, auto own, int64_t) {
    const A *weight = (own ? own_weights : weights) + at, *grad = (own ? own_grads : grads) + at;
    for (int64_t head = 0; head < call.dim; ++head) dots[head] += weight[head] * grad[head];
  });
  edges.for_each([&](int64_t at, auto own, int64_t index) {
    const A* weight = (own ? own_weights : weights) + at;
    A* grad = (own ? own_grads : grads) + at;
    if (!own) edges.fetch(at / call.dim + kEdgesAhead);
    edges.for_heads(at, own, index, [&](int64_t head, A x) {
      grad[head] = weight[head] * (grad[head] - dots[head]) * edges.slope(x);
      target_grads[head] += grad[head];
    });
  });
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
      weigh<Sum<T>>(call, row);
      clear_skipped(call.block, row, call.dim, static_cast<Sum<T>*>(call.weights));
    });
  });
}

void run_on_host(const AttentionGradCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    for_rows(call, [&](int64_t row) {
      grade<Sum<T>>(call, row);
      clear_skipped(call.block, row, call.dim, static_cast<Sum<T>*>(call.grads));
    });
  });
}

}  // namespace cohort::trainer
