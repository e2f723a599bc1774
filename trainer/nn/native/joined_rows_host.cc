#include "trainer/nn/native/joined_rows.h"

#include <algorithm>
#include <vector>

#include "trainer/nn/native/host_rows.h"

namespace cohort::trainer {
namespace {

template <typename T>
class JoinedRow {
 public:
  using A = Sum<T>;

  explicit JoinedRow(const JoinedCall& call)
      : call_(call),
        zeros_(static_cast<std::size_t>(call.dim)),
        ones_(zeros_.size(), narrow<T>(Sum<T>{1})),
        own_(zeros_.size()),
        slopes_(zeros_.size()),
        bent_(zeros_.size()),
        piece_slopes_(zeros_.size()),
        piece_bent_(zeros_.size()),
        scale_(zeros_.size(), A{1}) {
    if (call.scale) std::copy_n(static_cast<const A*>(call.scale), scale_.size(), scale_.begin());
  }

  void sum(int64_t row) {
    const EdgeRange range = range_of(call_.block, row);
    const T* own = row_of(call_.own, call_.own_stride, row, zeros_);
    for (std::size_t c = 0; c < own_.size(); ++c) own_[c] = widen(own[c]);
    clear(slopes_, bent_);
    if (range.in_pieces()) {
      for (int64_t p = range.first_piece(); p < range.end_piece(); ++p) {
        clear(piece_slopes_, piece_bent_);
        add_edges(row, range.piece(p), piece_slopes_, piece_bent_);
        for (std::size_t c = 0; c < own_.size(); ++c) {
          slopes_[c] += piece_slopes_[c];
          bent_[c] += piece_bent_[c];
        }
      }
    } else {
      add_edges(row, range, slopes_, bent_);
    }
    if (row < call_.num_own) {
      add(row, row, row, call_.own_edge, call_.own_factor, call_.own_edge_grads, slopes_, bent_);
    }
    for (std::size_t c = 0; c < own_.size(); ++c) slopes_[c] *= scale_[c];
    store(slopes_, call_.slopes, row);
    store(bent_, call_.bent, row);
  }

 private:
  static void clear(std::vector<A>& a, std::vector<A>& b) {
    std::fill(a.begin(), a.end(), A{0});
    std::fill(b.begin(), b.end(), A{0});
  }

  static const T* row_of(const void* rows, int64_t stride, int64_t row, const std::vector<T>& instead) {
    return rows ? static_cast<const T*>(rows) + row * stride : instead.data();
  }

  // Rows that an edge brings come from memory while those before are added.
  void fetch(int64_t e) const {
    if (e >= call_.block.num_edges) return;
    const int64_t index = call_.block.index[e];
    if (call_.x) fetch_row(static_cast<const T*>(call_.x) + index * call_.x_stride, call_.dim);
    if (call_.edge && call_.block.edge) {
      fetch_row(static_cast<const T*>(call_.edge) + call_.block.edge[e] * call_.dim, call_.dim);
    }
  }

  void add_edges(int64_t row, EdgeRange range, std::vector<A>& slopes, std::vector<A>& bent) {
    for (int64_t e = range.begin; e < range.end; ++e) {
      fetch(e + kEdgesAhead);
      const int64_t index = call_.block.index[e], number = call_.block.number(e);
      if (call_.block.skip_self && index == row) {
        if (call_.edge_grads) std::fill_n(static_cast<T*>(call_.edge_grads) + number * call_.dim, call_.dim, T{});
      } else {
        add(row, index, number, call_.edge, call_.factor, call_.edge_grads, slopes, bent);
      }
    }
  }

  // Adds what one edge brings; `number`: where its row, its factors and the gradient of its row stand.
  void add(int64_t row, int64_t index, int64_t number, const void* edge_rows, const void* factors, void* grads,
           std::vector<A>& slopes, std::vector<A>& bent) {
    const int64_t head_dim = call_.dim / call_.heads;
    const T* x = row_of(call_.x, call_.x_stride, index, zeros_);
    const T* edge = row_of(edge_rows, call_.dim, number, zeros_);
    const T* other = row_of(call_.other, call_.other_stride, row, ones_);
    T* grad = grads ? static_cast<T*>(grads) + number * call_.dim : nullptr;
    for (int64_t head = 0; head < call_.heads; ++head) {
      const A factor = factors ? static_cast<const A*>(factors)[number * call_.heads + head] : A{1};
      const A low = factor * static_cast<A>(call_.slope);
      const int64_t c = head * head_dim;
      if (call_.slopes) add_slopes(head_dim, factor, low, own_.data() + c, x + c, edge + c, slopes.data() + c);
      if (call_.bent) add_bent(head_dim, factor, low, own_.data() + c, x + c, edge + c, bent.data() + c);
      if (grad)
        put_grads(head_dim, factor, low, own_.data() + c, x + c, edge + c, other + c, scale_.data() + c, grad + c);
    }
  }

  // `low` is the factor where leaky_relu's argument is not positive.
  void add_slopes(int64_t count, A factor, A low, const A* __restrict own, const T* __restrict x,
                  const T* __restrict edge, A* __restrict to) const {
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) to[c] += own[c] + widen(x[c]) + widen(edge[c]) > 0 ? factor : low;
  }

  void add_bent(int64_t count, A factor, A low, const A* __restrict own, const T* __restrict x,
                const T* __restrict edge, A* __restrict to) const {
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) {
      const A z = own[c] + widen(x[c]) + widen(edge[c]), by = z > 0 ? factor : low;
      to[c] += by * z;
    }
  }

  void put_grads(int64_t count, A factor, A low, const A* __restrict own, const T* __restrict x,
                 const T* __restrict edge, const T* __restrict other, const A* __restrict scale,
                 T* __restrict to) const {
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) {
      const A z = own[c] + widen(x[c]) + widen(edge[c]), by = z > 0 ? factor : low;
      to[c] = narrow<T>(scale[c] * by * widen(other[c]));
    }
  }

  void store(const std::vector<A>& sums, void* out, int64_t row) const {
    if (!out) return;
    T* to = static_cast<T*>(out) + row * call_.dim;
    for (std::size_t c = 0; c < sums.size(); ++c) to[c] = narrow<T>(sums[c]);
  }

  const JoinedCall& call_;
  const std::vector<T> zeros_, ones_;
  std::vector<A> own_, slopes_, bent_, piece_slopes_, piece_bent_, scale_;  // [dim]
};

}  // namespace

void run_on_host(const JoinedCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
    {
      JoinedRow<T> joined(call);
#pragma omp for schedule(dynamic, kRowsAtOnce)
      for (int64_t row = 0; row < call.block.num_rows; ++row) joined.sum(row);
    }
  });
}

}  // namespace cohort::trainer
