#include "trainer/nn/native/max_rows.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {
namespace {

template <typename T, int kVec>
class RowMax {
 public:
  using Call = MaxCall;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  using Loaded = Pack<T, kVec>;

  __device__ RowMax(const MaxCall& call, int64_t row, int64_t column) : call_(call), row_(row), column_(column) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) largest_[v] = -INFINITY;
  }

  __device__ Loaded load(int64_t, int64_t index) const {
    return load_pack<kVec>(static_cast<const T*>(call_.x) + index * call_.x_stride + column_);
  }
  __device__ void add(const Loaded& loaded) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) take(v, widen(loaded.value[v]), A{1});
  }
  __device__ void save(int64_t piece) const {
    A* to = static_cast<A*>(call_.partial) + piece * call_.dim + column_;
    A* ties = to + max_pieces(call_.block.num_edges) * call_.dim;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      to[v] = largest_[v];
      ties[v] = ties_[v];
    }
  }
  __device__ void merge(int64_t piece) {
    const A* from = static_cast<const A*>(call_.partial) + piece * call_.dim + column_;
    const A* ties = from + max_pieces(call_.block.num_edges) * call_.dim;
#pragma unroll
    for (int v = 0; v < kVec; ++v) take(v, from[v], ties[v]);
  }
  __device__ void finish(const EdgeRange& range) {
    const int64_t at = row_ * call_.dim + column_;
    A* ties = static_cast<A*>(call_.ties) + at;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (range.begin >= range.end) largest_[v] = 0;
      ties[v] = ties_[v];
    }
    store_sums<kVec>(call_.dtype, call_.out, at, largest_);
  }

 private:
  __device__ void take(int v, A value, A ties) {
    const bool is_larger = value > largest_[v] || value != value;
    ties_[v] = is_larger ? ties : ties_[v] + (value == largest_[v] ? ties : A{0});
    largest_[v] = is_larger ? value : largest_[v];
  }

  const MaxCall& call_;
  const int64_t row_, column_;
  A largest_[kVec], ties_[kVec] = {};
};

template <typename T, int kVec>
class RowShares {
 public:
  using Call = MaxGradCall;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  struct Loaded {
    Pack<T, kVec> largest, share;
  };

  __device__ RowShares(const MaxGradCall& call, int64_t row, int64_t column) : call_(call), row_(row), column_(column) {
    x_ = load_pack<kVec>(static_cast<const T*>(call.x) + row * call.x_stride + column);
  }

  __device__ Loaded load(int64_t, int64_t index) const {
    const int64_t at = index * call_.dim + column_;
    return {load_pack<kVec>(static_cast<const T*>(call_.largest) + at),
            load_pack<kVec>(static_cast<const T*>(call_.shares) + at)};
  }
  __device__ void add(const Loaded& loaded) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (widen(x_.value[v]) == widen(loaded.largest.value[v])) sum_[v] = plus(sum_[v], widen(loaded.share.value[v]));
    }
  }
  __device__ void save(int64_t piece) const {
    A* to = static_cast<A*>(call_.partial) + piece * call_.dim + column_;
#pragma unroll
    for (int v = 0; v < kVec; ++v) to[v] = sum_[v];
  }
  __device__ void merge(int64_t piece) {
    const A* from = static_cast<const A*>(call_.partial) + piece * call_.dim + column_;
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum_[v] = plus(sum_[v], from[v]);
  }
  __device__ void finish(const EdgeRange&) {
    store_sums<kVec>(call_.dtype, call_.out, row_ * call_.dim + column_, sum_);
  }

 private:
  const MaxGradCall& call_;
  const int64_t row_, column_;
  Pack<T, kVec> x_;
  A sum_[kVec] = {};
};

template <template <typename, int> typename Reduction, typename Call>
void launch(const Call& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kWide = 16 / sizeof(T);
    const bool fits = call.dim % kWide == 0 && packs_fit(call.x, call.x_stride, sizeof(T), kWide);
    if (fits) return launch_reduction<Reduction<T, kWide>>(call, stream);
    launch_reduction<Reduction<T, 1>>(call, stream);
  });
}

}  // namespace

void run_on_gpu(const MaxCall& call, cudaStream_t stream) { launch<RowMax>(call, stream); }

void run_on_gpu(const MaxGradCall& call, cudaStream_t stream) { launch<RowShares>(call, stream); }

}  // namespace cohort::trainer
