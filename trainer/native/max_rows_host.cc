#include "trainer/native/max_rows.h"

#include <algorithm>
#include <vector>

namespace cohort::trainer {
namespace {

constexpr int kRowsAtOnce = 64;

template <typename T>
void max_row(const MaxCall& call, int64_t row, std::vector<Sum<T>>& best, std::vector<int32_t>& ties) {
  const EdgeRange range = range_of(call.block, row);
  std::fill(ties.begin(), ties.end(), 0);
  for (int64_t e = range.begin; e < range.end; ++e) {
    const T* from = static_cast<const T*>(call.x) + call.block.index[e] * call.x_stride;
    for (std::size_t c = 0; c < best.size(); ++c) {
      const Sum<T> value = widen(from[c]);
      if (ties[c] == 0 || value > best[c] || value != value) {
        best[c] = value;
        ties[c] = 1;
      } else {
        ties[c] += value == best[c];
      }
    }
  }
  T* to = static_cast<T*>(call.out) + row * call.out_stride;
  for (std::size_t c = 0; c < best.size(); ++c) {
    if (ties[c] == 0) best[c] = 0;
    if (best[c] == 0) ++ties[c];
    to[c] = narrow<T>(best[c]);
  }
  if (call.ties) std::copy(ties.begin(), ties.end(), call.ties + row * call.dim);
}

template <typename T>
void max_row_grad(const MaxGradCall& call, int64_t row, std::vector<Sum<T>>& sum, std::vector<Sum<T>>& piece) {
  using A = Sum<T>;
  const EdgeRange range = range_of(call.block, row);
  const T* own = static_cast<const T*>(call.x) + row * call.x_stride;
  const auto add = [&](EdgeRange edges, std::vector<A>& to) {
    for (int64_t e = edges.begin; e < edges.end; ++e) {
      const int64_t at = call.block.index[e] * call.dim;
      const T *best = static_cast<const T*>(call.best) + at, *grad = static_cast<const T*>(call.grad) + at;
      for (std::size_t c = 0; c < to.size(); ++c) {
        if (widen(best[c]) == widen(own[c])) to[c] += widen(grad[c]) / static_cast<A>(call.ties[at + int64_t(c)]);
      }
    }
  };
  std::fill(sum.begin(), sum.end(), A{0});
  if (!range.in_pieces()) add(range, sum);
  for (int64_t p = range.first_piece(); range.in_pieces() && p < range.end_piece(); ++p) {
    std::fill(piece.begin(), piece.end(), A{0});
    add(range.piece(p), piece);
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += piece[c];
  }
  T* to = static_cast<T*>(call.out) + row * call.dim;
  for (std::size_t c = 0; c < sum.size(); ++c) to[c] = narrow<T>(sum[c]);
}

}  // namespace

void run_on_host(const MaxCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
    {
      std::vector<Sum<T>> best(static_cast<std::size_t>(call.dim));
      std::vector<int32_t> ties(best.size());
#pragma omp for schedule(dynamic, kRowsAtOnce)
      for (int64_t row = 0; row < call.block.num_rows; ++row) max_row<T>(call, row, best, ties);
    }
  });
}

void run_on_host(const MaxGradCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
    {
      std::vector<Sum<T>> sum(static_cast<std::size_t>(call.dim)), piece(sum.size());
#pragma omp for schedule(dynamic, kRowsAtOnce)
      for (int64_t row = 0; row < call.block.num_rows; ++row) max_row_grad<T>(call, row, sum, piece);
    }
  });
}

}  // namespace cohort::trainer
