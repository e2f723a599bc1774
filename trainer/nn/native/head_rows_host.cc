#include "trainer/nn/native/head_rows.h"

#include <algorithm>
#include <vector>

#include "trainer/nn/native/host_rows.h"

namespace cohort::trainer {
namespace {

// to[c] += factor * from[c]
template <typename A, typename T>
void add_row(A factor, const T* from, int64_t dim, A* to) {
  for (int64_t c = 0; c < dim; ++c) to[c] += factor * widen(from[c]);
}

// Adds up each row in pieces, as the CUDA body does: add(weights, at, index, to) adds what an edge brings, and at last
// the row itself, which is row first_row + row where it is compared; write(row, sums) gets `width` sums; fetch(index)
// asks for what add() will read.
template <typename A, typename Call, typename Fetch, typename Add, typename Write>
void sum_rows(const Call& call, int64_t width, int64_t first_row, Fetch fetch, Add add, Write write) {
  const BlockRef& block = call.block;
#pragma omp parallel if (block.num_rows > kRowsAtOnce)
  {
    std::vector<A> sum(static_cast<std::size_t>(width)), piece(sum.size());
#pragma omp for schedule(dynamic, kRowsAtOnce)
    for (int64_t row = 0; row < block.num_rows; ++row) {
      const EdgeRange range = range_of(block, row);
      const auto add_range = [&](EdgeRange edges, std::vector<A>& to) {
        std::fill(to.begin(), to.end(), A{0});
        for (int64_t e = edges.begin; e < edges.end; ++e) {
          const int64_t index = block.index[e];
          if (e + kEdgesAhead < block.num_edges) fetch(block.index[e + kEdgesAhead]);
          if (!(block.skip_self && index == first_row + row)) add(call.weights, block.number(e), index, to.data());
        }
      };
      add_range(range.in_pieces() ? EdgeRange{} : range, sum);
      for (int64_t p = range.first_piece(); range.in_pieces() && p < range.end_piece(); ++p) {
        add_range(range.piece(p), piece);
        for (std::size_t c = 0; c < sum.size(); ++c) sum[c] += piece[c];
      }
      const int64_t own = first_row + row;
      if (own < call.num_own) add(call.own_weights, own, own, sum.data());
      write(row, sum.data());
    }
  }
}

template <typename T>
void spread(const SpreadCall& call) {
  using A = Sum<T>;
  const auto add = [&](const void* weights, int64_t at, int64_t index, A* to) {
    for (int64_t h = 0; h < call.heads; ++h) {
      const T* from = static_cast<const T*>(call.x) + index * call.x_stride;
      add_row(static_cast<const A*>(weights)[at * call.heads + h], from, call.dim, to + h * call.dim);
    }
  };
  const auto fetch = [&](int64_t index) { fetch_row(static_cast<const T*>(call.x) + index * call.x_stride, call.dim); };
  sum_rows<A>(call, call.heads * call.dim, call.first_row, fetch, add, [&](int64_t row, const A* sums) {
    with_type(call.out_dtype, [&]<typename Out>(std::type_identity<Out>) {
      for (int64_t h = 0; h < call.heads; ++h) {
        const A* from = sums + h * call.dim;
        Out* to = static_cast<Out*>(call.out) + (h * call.block.num_rows + row) * call.dim;
        for (int64_t c = 0; c < call.dim; ++c) to[c] = narrow<Out>(static_cast<Sum<Out>>(from[c]));
      }
    });
  });
}

template <typename T>
void fold(const FoldCall& call) {
  using A = Sum<T>;
  const auto add = [&](const void* weights, int64_t at, int64_t index, A* to) {
    for (int64_t h = 0; h < call.heads; ++h) {
      const T* from = static_cast<const T*>(call.x) + (h * call.x_rows + index) * call.dim;
      add_row(static_cast<const A*>(weights)[at * call.heads + h], from, call.dim, to);
    }
  };
  const auto fetch = [&](int64_t index) {
    for (int64_t h = 0; h < call.heads; ++h) {
      fetch_row(static_cast<const T*>(call.x) + (h * call.x_rows + index) * call.dim, call.dim);
    }
  };
  sum_rows<A>(call, call.dim, 0, fetch, add, [&](int64_t row, const A* sums) {
    T* to = static_cast<T*>(call.out) + row * call.dim;
    for (int64_t c = 0; c < call.dim; ++c) to[c] = narrow<T>(sums[c]);
  });
}

template <typename T>
const T* row_of(const HeadRows& rows, int64_t row, int64_t head) {
  return static_cast<const T*>(rows.data) + row * rows.row_stride + head * rows.head_stride;
}

// The product of two rows. Many sums at a time: an addition takes several cycles.
template <typename A, typename G, typename T>
A dot(const G* grad, const T* x, int64_t dim) {
  constexpr int kSums = 16;
  A sums[kSums] = {};
  int64_t c = 0;
  for (; c + kSums <= dim; c += kSums) {
    for (int k = 0; k < kSums; ++k) sums[k] += widen(grad[c + k]) * widen(x[c + k]);
  }
  A sum = 0;
  for (; c < dim; ++c) sum += widen(grad[c]) * widen(x[c]);
  for (const A part : sums) sum += part;
  return sum;
}

// The sum of att * leaky_relu(target + x + edge), or without the last where it is null.
template <typename T, typename G, typename A>
A bent_dot(int64_t dim, const A* att, A slope, const G* target, const T* x, const T* edge) {
  A sum = 0;
  if (edge) {
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < dim; ++c) {
      const A z = widen(target[c]) + widen(x[c]) + widen(edge[c]);
      const A low = z * slope;
      sum += att[c] * (z > 0 ? z : low);
    }
  } else {
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < dim; ++c) {
      const A z = widen(target[c]) + widen(x[c]);
      const A low = z * slope;
      sum += att[c] * (z > 0 ? z : low);
    }
  }
  return sum;
}

// to[h] = <grad[row][h], x[index][h]>; `edge`: with Bend, the row of the edge, or null.
template <typename T, typename G>
void dot_heads(const DotCall& call, int64_t row, int64_t index, const void* edge, Sum<T>* to) {
  using A = Sum<T>;
  const A* att = static_cast<const A*>(call.bend.att);
  const A slope = static_cast<A>(call.bend.slope);
  for (int64_t h = 0; h < call.heads; ++h) {
    const G* grad = row_of<G>(call.grad, row, h);
    const T* x = row_of<T>(call.x, index, h);
    if (att) {
      const T* of_edge = edge ? static_cast<const T*>(edge) + h * call.dim : nullptr;
      to[h] = bent_dot(call.dim, att + h * call.dim, slope, grad, x, of_edge);
      continue;
    }
    to[h] = dot<A>(grad, x, call.dim);
  }
}

template <typename T>
void fetch_rows(const DotCall& call, int64_t index) {
  const int64_t apart = call.x.head_stride == 0 ? 1 : call.heads;
  for (int64_t h = 0; h < apart; ++h) fetch_row(row_of<T>(call.x, index, h), call.dim);
}

template <typename T>
const void* edge_row(const DotCall& call, const void* rows, int64_t number) {
  return rows ? static_cast<const T*>(rows) + number * call.heads * call.dim : nullptr;
}

template <typename T, typename G>
void dot_all(const DotCall& call) {
  auto *dots = static_cast<Sum<T>*>(call.dots), *own_dots = static_cast<Sum<T>*>(call.own_dots);
#pragma omp parallel for schedule(dynamic, kRowsAtOnce) if (call.block.num_rows > kRowsAtOnce)
  for (int64_t row = 0; row < call.block.num_rows; ++row) {
    const EdgeRange range = range_of(call.block, row);
    const int64_t own = call.first_row + row;
    for (int64_t e = range.begin; e < range.end; ++e) {
      Sum<T>* to = dots + e * call.heads;
      if (e + kEdgesAhead < call.block.num_edges) fetch_rows<T>(call, call.block.index[e + kEdgesAhead]);
      if (call.block.skip_self && call.block.index[e] == own) {
        std::fill(to, to + call.heads, Sum<T>{0});
      } else {
        dot_heads<T, G>(call, row, call.block.index[e], edge_row<T>(call, call.bend.edge, e), to);
      }
    }
    if (own < call.num_own) {
      dot_heads<T, G>(call, row, own, edge_row<T>(call, call.bend.own_edge, own), own_dots + own * call.heads);
    }
  }
}

}  // namespace

void run_on_host(const SpreadCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) { spread<T>(call); });
}

void run_on_host(const FoldCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) { fold<T>(call); });
}

void run_on_host(const DotCall& call) {
  with_dot_types(call,
                 [&]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) { dot_all<T, G>(call); });
}

}  // namespace cohort::trainer
