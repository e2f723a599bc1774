#include "trainer/nn/native/max_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace cohort::trainer {
namespace {

constexpr int kRowsAtOnce = 64;

template <typename T>
void largest_of(const MaxCall& call) {
  using A = Sum<T>;
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
  {
    std::vector<A> largest(static_cast<std::size_t>(call.dim)), ties(largest.size());
#pragma omp for schedule(dynamic, kRowsAtOnce)
    for (int64_t row = 0; row < call.block.num_rows; ++row) {
      const EdgeRange range = range_of(call.block, row);
      std::fill(largest.begin(), largest.end(), range.begin < range.end ? A{-INFINITY} : A{0});
      std::fill(ties.begin(), ties.end(), A{0});
      for (int64_t e = range.begin; e < range.end; ++e) {
        const T* from = static_cast<const T*>(call.x) + call.block.index[e] * call.x_stride;
        for (std::size_t c = 0; c < largest.size(); ++c) {
          const A value = widen(from[c]);
          const bool is_larger = value > largest[c] || value != value;
          ties[c] = is_larger ? A{1} : ties[c] + static_cast<A>(value == largest[c]);
          largest[c] = is_larger ? value : largest[c];
        }
      }
      T* out = static_cast<T*>(call.out) + row * call.dim;
      A* counts = static_cast<A*>(call.ties) + row * call.dim;
      for (std::size_t c = 0; c < largest.size(); ++c) out[c] = narrow<T>(largest[c]);
      std::copy(ties.begin(), ties.end(), counts);
    }
  }
}

template <typename T>
void shares_of(const MaxGradCall& call) {
  using A = Sum<T>;
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
  {
    std::vector<A> sum(static_cast<std::size_t>(call.dim)), piece(sum.size());
#pragma omp for schedule(dynamic, kRowsAtOnce)
    for (int64_t row = 0; row < call.block.num_rows; ++row) {
      const EdgeRange range = range_of(call.block, row);
      const T* x = static_cast<const T*>(call.x) + row * call.x_stride;
      const auto add_edges = [&](EdgeRange edges, std::vector<A>& to) {
        std::fill(to.begin(), to.end(), A{0});
        for (int64_t e = edges.begin; e < edges.end; ++e) {
          const int64_t at = call.block.index[e] * call.dim;
          const T *largest = static_cast<const T*>(call.largest) + at, *share = static_cast<const T*>(call.shares) + at;
          for (std::size_t c = 0; c < to.size(); ++c)
            to[c] += widen(x[c]) == widen(largest[c]) ? widen(share[c]) : A{0};
        }
      };
      add_edges(range.in_pieces() ? EdgeRange{} : range, sum);
      for (int64_t p = range.first_piece(); range.in_pieces() && p < range.end_piece(); ++p) {
        add_edges(range.piece(p), piece);
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += piece[c];
      }
      T* out = static_cast<T*>(call.out) + row * call.dim;
      for (std::size_t c = 0; c < sum.size(); ++c) out[c] = narrow<T>(sum[c]);
    }
  }
}

}  // namespace

void run_on_host(const MaxCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) { largest_of<T>(call); });
}

void run_on_host(const MaxGradCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) { shares_of<T>(call); });
}

}  // namespace cohort::trainer
