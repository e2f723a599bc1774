#include "trainer/nn/native/joined_rows.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {
namespace {

// With kEdge, edges have rows of their own.
template <typename T, int kVec, bool kEdge>
class RowJoined {
 public:
  using Call = JoinedCall;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  using Rows = Pack<T, kVec>;
  struct Nothing {};
  struct Loaded {
    Rows x;
    [[no_unique_address]] std::conditional_t<kEdge, Rows, Nothing> edge;
    A factor;
    int64_t number;
    bool counts;
  };

  __device__ RowJoined(const JoinedCall& call, int64_t row, int64_t column)
      : call_(call), row_(row), column_(column), head_(call.heads == 1 ? 0 : column / (call.dim / call.heads)) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      other_[v] = A{1};
      scale_[v] = call.scale ? static_cast<const A*>(call.scale)[column + v] : A{1};
    }
    if (call.own) widen_into(own_, rows_at(call.own, call.own_stride, row));
    if (call.other) widen_into(other_, rows_at(call.other, call.other_stride, row));
  }

  __device__ Loaded load(int64_t e, int64_t index) const {
    const bool counts = !(call_.block.skip_self && index == row_);
    return load_of(index, call_.block.number(e), call_.edge, call_.factor, counts);
  }

  __device__ void add(const Loaded& loaded) { add_to(loaded, call_.edge_grads); }

  __device__ void save(int64_t piece) const {
    A* to = static_cast<A*>(call_.partial) + piece * call_.dim + column_;
    A* bent = to + max_pieces(call_.block.num_edges) * call_.dim;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      to[v] = slopes_[v];
      bent[v] = bent_[v];
    }
  }
  __device__ void merge(int64_t piece) {
    const A* from = static_cast<const A*>(call_.partial) + piece * call_.dim + column_;
    const A* bent = from + max_pieces(call_.block.num_edges) * call_.dim;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      slopes_[v] += from[v];
      bent_[v] += bent[v];
    }
  }
  __device__ void finish(const EdgeRange&) {
    if (row_ < call_.num_own) {
      add_to(load_of(row_, row_, call_.own_edge, call_.own_factor, true), call_.own_edge_grads);
    }
    const int64_t at = row_ * call_.dim + column_;
    if (call_.bent) store_sums<kVec>(call_.dtype, call_.bent, at, bent_);
    if (!call_.slopes) return;
#pragma unroll
    for (int v = 0; v < kVec; ++v) slopes_[v] *= scale_[v];
    store_sums<kVec>(call_.dtype, call_.slopes, at, slopes_);
  }

 private:
  __device__ Rows rows_at(const void* rows, int64_t stride, int64_t row) const {
    return load_pack<kVec>(static_cast<const T*>(rows) + row * stride + column_);
  }
  __device__ static void widen_into(A (&to)[kVec], const Rows& pack) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) to[v] = widen(pack.value[v]);
  }

  __device__ Loaded load_of(int64_t index, int64_t number, const void* edge, const void* factors, bool counts) const {
    Loaded loaded{};
    loaded.x = rows_at(call_.x, call_.x_stride, index);
    if constexpr (kEdge) loaded.edge = edge ? rows_at(edge, call_.dim, number) : Rows{};
    loaded.factor = factors ? static_cast<const A*>(factors)[number * call_.heads + head_] : A{1};
    loaded.number = number;
    loaded.counts = counts;
    return loaded;
  }

  __device__ void add_to(const Loaded& loaded, void* grads) {
    A grad[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      A z = own_[v] + widen(loaded.x.value[v]);
      if constexpr (kEdge) z += widen(loaded.edge.value[v]);
      const A by = !loaded.counts ? A{0} : loaded.factor * (z > 0 ? A{1} : static_cast<A>(call_.slope));
      bent_[v] += loaded.counts ? by * z : A{0};
      slopes_[v] += by;
      grad[v] = loaded.counts ? scale_[v] * by * other_[v] : A{0};
    }
    if (grads) store_sums<kVec>(call_.dtype, grads, loaded.number * call_.dim + column_, grad);
  }

  const JoinedCall& call_;
  const int64_t row_, column_, head_;
  A own_[kVec] = {}, slopes_[kVec] = {}, bent_[kVec] = {};
  A other_[kVec], scale_[kVec];
};

// True when all arrays of the call can be read and written in packs of `vec`.
bool can_pack(const JoinedCall& call, int vec) {
  const int bytes = bytes_of(call.dtype);
  const auto fits = [&](const void* rows, int64_t stride) { return packs_fit(rows, stride, bytes, vec); };
  return call.dim / call.heads % vec == 0 && fits(call.own, call.own_stride) && fits(call.x, call.x_stride) &&
         fits(call.edge, call.dim) && fits(call.own_edge, call.dim) && fits(call.other, call.other_stride) &&
         fits(call.slopes, call.dim) && fits(call.bent, call.dim) && fits(call.edge_grads, call.dim) &&
         fits(call.own_edge_grads, call.dim);
}

template <bool kEdge>
void launch(const JoinedCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) < 8) {
      constexpr int kWide = 16 / sizeof(T);
      if (can_pack(call, kWide)) return launch_reduction<RowJoined<T, kWide, kEdge>>(call, stream);
    }
    launch_reduction<RowJoined<T, 1, kEdge>>(call, stream);
  });
}

}  // namespace

void run_on_gpu(const JoinedCall& call, cudaStream_t stream) {
  return call.edge ? launch<true>(call, stream) : launch<false>(call, stream);
}

}  // namespace cohort::trainer
