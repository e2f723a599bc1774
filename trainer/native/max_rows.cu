#include "trainer/native/max_rows.h"
#include "trainer/native/reduce.cuh"

namespace cohort::trainer {
namespace {

template <typename T, int kVec>
class RowMax {
 public:
  using Call = MaxCall;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  using Loaded = Pack<T, kVec>;

  __device__ RowMax(const MaxCall& call, int64_t row, int64_t column) : call_(call), row_(row), column_(column) {}

  __device__ Loaded load(int64_t, int64_t index) const {
    return load_pack<kVec>(static_cast<const T*>(call_.x) + index * call_.x_stride + column_);
  }

  __device__ void add(const Loaded& loaded) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) take(v, widen(loaded.value[v]), 1);
  }

  __device__ void save(int64_t piece) const {
    const int64_t at = piece * call_.dim + column_;
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      static_cast<A*>(call_.partial)[at + v] = best_[v];
      call_.partial_ties[at + v] = ties_[v];
    }
  }

  __device__ void merge(int64_t piece) {
    const int64_t at = piece * call_.dim + column_;
#pragma unroll
    for (int v = 0; v < kVec; ++v) take(v, static_cast<const A*>(call_.partial)[at + v], call_.partial_ties[at + v]);
  }

  __device__ void finish(const EdgeRange&) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (ties_[v] == 0) best_[v] = 0;
      if (best_[v] == 0) ++ties_[v];
      if (call_.ties) call_.ties[row_ * call_.dim + column_ + v] = ties_[v];
    }
    store_sums<kVec>(call_.dtype, call_.out, row_ * call_.out_stride + column_, best_);
  }

 private:
  __device__ void take(int v, A value, int32_t count) {
    if (ties_[v] == 0 || value > best_[v] || value != value) {
      best_[v] = value;
      ties_[v] = count;
    } else if (value == best_[v]) {
      ties_[v] += count;
    }
  }

  const MaxCall& call_;
  const int64_t row_, column_;
  A best_[kVec] = {};
  int32_t ties_[kVec] = {};
};

template <typename T, int kVec>
class RowMaxGrad {
 public:
  using Call = MaxGradCall;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  struct Loaded {
    Pack<T, kVec> best, grad;
    int32_t ties[kVec];
  };

  __device__ RowMaxGrad(const MaxGradCall& call, int64_t row, int64_t column)
      : call_(call),
        row_(row),
        column_(column),
        own_(load_pack<kVec>(static_cast<const T*>(call.x) + row * call.x_stride + column)) {}

  __device__ Loaded load(int64_t, int64_t index) const {
    const int64_t at = index * call_.dim + column_;
    Loaded loaded{load_pack<kVec>(static_cast<const T*>(call_.best) + at),
                  load_pack<kVec>(static_cast<const T*>(call_.grad) + at),
                  {}};
#pragma unroll
    for (int v = 0; v < kVec; ++v) loaded.ties[v] = call_.ties[at + v];
    return loaded;
  }

  __device__ void add(const Loaded& loaded) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      if (widen(loaded.best.value[v]) != widen(own_.value[v])) continue;
      sum_[v] = plus(sum_[v], widen(loaded.grad.value[v]) / static_cast<A>(loaded.ties[v]));
    }
  }

  __device__ void save(int64_t piece) const {
#pragma unroll
    for (int v = 0; v < kVec; ++v) static_cast<A*>(call_.partial)[piece * call_.dim + column_ + v] = sum_[v];
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
  const Pack<T, kVec> own_;
  A sum_[kVec] = {};
};

}  // namespace

void run_on_gpu(const MaxCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kBytes = sizeof(T), kWide = 16 / kBytes;
    if (call.dim % kWide == 0 && packs_fit(call.x, call.x_stride, kBytes, kWide) &&
        packs_fit(call.out, call.out_stride, kBytes, kWide)) {
      return launch_reduction<RowMax<T, kWide>>(call, stream);
    }
    launch_reduction<RowMax<T, 1>>(call, stream);
  });
}

void run_on_gpu(const MaxGradCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kBytes = sizeof(T), kWide = 16 / kBytes;
    const bool packed = call.dim % kWide == 0 && packs_fit(call.x, call.x_stride, kBytes, kWide) &&
                        packs_fit(call.best, call.dim, kBytes, kWide) &&
                        packs_fit(call.grad, call.dim, kBytes, kWide) && packs_fit(call.out, call.dim, kBytes, kWide);
    if (packed) return launch_reduction<RowMaxGrad<T, kWide>>(call, stream);
    launch_reduction<RowMaxGrad<T, 1>>(call, stream);
  });
}

}  // namespace cohort::trainer
