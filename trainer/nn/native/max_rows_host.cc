#include "trainer/nn/native/max_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/nn/native/host_rows.h"

namespace cohort::trainer {
namespace {

template <typename T, typename A>
void take_row(int64_t dim, const T* __restrict from, A* __restrict largest, A* __restrict ties) {
  // Loops of one choice each: the compiler makes branches of more. How many edges bring a NaN does not matter.
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) {
    const A count = ties[c];
    ties[c] = widen(from[c]) > largest[c] ? A{0} : count;
  }
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) ties[c] += widen(from[c]) >= largest[c] ? A{1} : A{0};
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) {
    const A value = widen(from[c]), larger = value > largest[c] ? value : largest[c];
    largest[c] = value == value ? larger : value;
  }
}

template <typename T, typename A>
void add_shares(int64_t dim, const T* __restrict x, const T* __restrict largest, const T* __restrict shares,
                A* __restrict to) {
#pragma omp simd
  for (int64_t c = 0; c < dim; ++c) {
    const A share = widen(shares[c]);
    to[c] += widen(x[c]) == widen(largest[c]) ? share : A{0};
  }
}

template <typename T>
void largest_of(const MaxCall& call) {
  using A = Sum<T>;
  const auto row_of = [&](int64_t row) { return static_cast<const T*>(call.x) + row * call.x_stride; };
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
  {
    std::vector<A> largest(static_cast<std::size_t>(call.dim)), ties(largest.size());
#pragma omp for schedule(dynamic, kRowsAtOnce)
    for (int64_t row = 0; row < call.block.num_rows; ++row) {
      const EdgeRange range = range_of(call.block, row);
      std::fill(largest.begin(), largest.end(), range.begin < range.end ? A{-INFINITY} : A{0});
      std::fill(ties.begin(), ties.end(), A{0});
      for (int64_t e = range.begin; e < range.end; ++e) {
        if (e + kEdgesAhead < call.block.num_edges) fetch_row(row_of(call.block.index[e + kEdgesAhead]), call.dim);
        take_row(call.dim, row_of(call.block.index[e]), largest.data(), ties.data());
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
          if (e + kEdgesAhead < call.block.num_edges) {
            const int64_t ahead = call.block.index[e + kEdgesAhead] * call.dim;
            fetch_row(static_cast<const T*>(call.largest) + ahead, call.dim);
            fetch_row(static_cast<const T*>(call.shares) + ahead, call.dim);
          }
          const int64_t at = call.block.index[e] * call.dim;
          const T *largest = static_cast<const T*>(call.largest) + at,
                  *shares = static_cast<const T*>(call.shares) + at;
          add_shares(call.dim, x, largest, shares, to.data());
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
