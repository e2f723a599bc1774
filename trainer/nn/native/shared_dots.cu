// Products of gradients, which each head has for itself, with rows that all heads share.
#include <cuda_pipeline.h>

#include "trainer/nn/native/dots.cuh"

namespace cohort::trainer {
namespace {

using base::kBlockThreads;

extern __shared__ __align__(16) uint8_t shared_bytes[];

// A group's products for one row of gradients, of G, with rows of T: some heads and kPacks of a lane's packs of columns
// at a time, so a row of many columns is read once, and its products are added up once. Each thread keeps its part of
// the gradients in shared memory, since they are more than its registers.
template <typename T, typename G, int kVec, int kPacks>
class SharedDots {
 public:
  using A = Sum<T>;
  using Grad = Pack<G, kVec>;
  static constexpr int kPack = kVec;
  static constexpr int kMinBlocks = 2;
  static constexpr int kSharedBytes = kDotHeads * kPacks * static_cast<int>(kBlockThreads * sizeof(Grad));
  static constexpr int kAtOnce = kPacks > 2 ? 3 : 4;  // edges

  __device__ SharedDots(const DotCall& call, int64_t row, int lane, int lanes)
      : call_(call),
        row_(row),
        own_(call.first_row + row),
        lane_(lane),
        lanes_(lanes),
        mask_(lanes_of_group(lanes)),
        grads_(reinterpret_cast<Grad*>(shared_bytes) + threadIdx.x) {}

  __device__ void run(EdgeRange range, bool with_own) {
    for (head_ = 0; head_ < call_.heads; head_ += kDotHeads) {
      for (first_ = 0; first_ < call_.dim; first_ += lanes_ * kVec * kPacks) {
        take_grads();
        for (int64_t e = range.begin; e < range.end; e += lanes_) multiply(e, range.end);
        if (with_own) multiply_own();
      }
    }
  }

 private:
  struct Loaded {
    Pack<T, kVec> x[kPacks];
  };

  __device__ int64_t column_of(int p) const { return first_ + (p * lanes_ + lane_) * kVec; }

  // Where this thread keeps its pack of a head's gradients.
  __device__ Grad& grad_of(int h, int p) const { return grads_[(h * kPacks + p) * static_cast<int>(kBlockThreads)]; }

  __device__ void take_grads() const {
#pragma unroll
    for (int h = 0; h < kDotHeads; ++h) {
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int64_t at = row_ * call_.grad.row_stride + (head_ + h) * call_.grad.head_stride + column_of(p);
        const G* from = static_cast<const G*>(call_.grad.data) + at;
        if (head_ + h >= call_.heads || column_of(p) >= call_.dim) {
          grad_of(h, p) = {};
        } else if constexpr (sizeof(Grad) >= 4) {
          __pipeline_memcpy_async(&grad_of(h, p), from, sizeof(Grad));
        } else {
          grad_of(h, p) = load_pack<kVec>(from);
        }
      }
    }
    __pipeline_commit();
  }

  __device__ Loaded load(int64_t index) const {
    const T* row = static_cast<const T*>(call_.x.data) + index * call_.x.row_stride;
    Loaded loaded;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      loaded.x[p] = column_of(p) < call_.dim ? load_pack<kVec>(row + column_of(p)) : Pack<T, kVec>{};
    }
    return loaded;
  }

  // Edges [begin, begin + lanes), as far as there are: a lane asks for the index of one.
  __device__ void multiply(int64_t begin, int64_t end) const {
    const int count = static_cast<int>(min(static_cast<int64_t>(lanes_), end - begin));
    const int64_t mine = call_.block.index[begin + min(lane_, count - 1)];
    for (int e = 0; e < count; e += kAtOnce) {
      Loaded loaded[kAtOnce];
      bool counts[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {  // the last edge again in place of those behind it
        const int64_t index = __shfl_sync(mask_, mine, min(e + k, count - 1), lanes_);
        counts[k] = !(call_.block.skip_self && index == own_);
        loaded[k] = load(index);
      }
      A value[kAtOnce][kDotHeads] = {};
      add_products(loaded, value);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        const A sum = sum_over_lanes(value[k], lane_, lanes_, mask_);
        if (e + k < count) put(call_.dots, begin + e + k, sum, counts[k]);
      }
    }
  }

  __device__ void multiply_own() const {
    const Loaded loaded[1] = {load(own_)};
    A value[1][kDotHeads] = {};
    add_products(loaded, value);
    put(call_.own_dots, own_, sum_over_lanes(value[0], lane_, lanes_, mask_), true);
  }

  // Adds this lane's part of each head's products with some rows.
  template <int kRows>
  __device__ void add_products(const Loaded (&loaded)[kRows], A (&value)[kRows][kDotHeads]) const {
    __pipeline_wait_prior(0);  // the rows were on their way meanwhile
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int h = 0; h < kDotHeads; ++h) {
        const Grad grad = grad_of(h, p);
#pragma unroll
        for (int v = 0; v < kVec; ++v) {
          const A factor = widen(grad.value[v]);
#pragma unroll
          for (int k = 0; k < kRows; ++k) value[k][h] += factor * static_cast<A>(widen(loaded[k].x[p].value[v]));
        }
      }
    }
  }

  __device__ void put(void* dots, int64_t at, A value, bool counts) const {
    if (lane_ >= kDotHeads || head_ + lane_ >= call_.heads) return;
    A& to = static_cast<A*>(dots)[at * call_.heads + head_ + lane_];
    const A before = first_ == 0 ? A{0} : to;
    to = counts ? before + value : A{0};
  }

  const DotCall& call_;
  const int64_t row_, own_;  // of the block, of x
  const int lane_, lanes_;
  const unsigned mask_;
  int64_t head_ = 0, first_ = 0;
  Grad* const grads_;
};

}  // namespace

void run_shared_on_gpu(const DotCall& call, cudaStream_t stream) {
  with_dot_types(call, [&]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) {
    constexpr int kWide = 16 / sizeof(T), kHalf = kWide / 2;
    if (can_pack<T, G>(call, kWide)) {
      if (call.dim <= kWarp * kWide) return launch_dots<SharedDots<T, G, kWide, 1>>(call, stream);
      if (call.dim <= kWarp * kWide * 2) return launch_dots<SharedDots<T, G, kWide, 2>>(call, stream);
      return launch_dots<SharedDots<T, G, kWide, 4>>(call, stream);
    }
    if constexpr (kHalf > 1) {
      if (can_pack<T, G>(call, kHalf)) return launch_dots<SharedDots<T, G, kHalf, 1>>(call, stream);
    }
    launch_dots<SharedDots<T, G, 1, 1>>(call, stream);
  });
}

}  // namespace cohort::trainer
