#include "trainer/nn/native/dots.cuh"

namespace cohort::trainer {
namespace {

constexpr int kMostBent = 4;  // columns of a lane with a Bend, which keeps more in registers

// What a product is: as it is; or of a Bend, without or with rows of edges.
enum class DotWay { kPlain, kBent, kBentByEdge };

// A group's products for one row of gradients, of G, with rows of T that each head has for itself: some heads and a
// lane's pack of columns at a time.
template <typename T, typename G, int kVec, DotWay kWay>
class RowDots {
 public:
  using A = Sum<T>;
  static constexpr int kPack = kVec, kMinBlocks = 1, kSharedBytes = 0;
  static constexpr bool kBent = kWay != DotWay::kPlain, kByEdge = kWay == DotWay::kBentByEdge;
  static constexpr int kAtOnce = kByEdge ? kUnroll / 2 : kUnroll;  // edges

  __device__ RowDots(const DotCall& call, int64_t row, int lane, int lanes)
      : call_(call), row_(row), own_(call.first_row + row), lane_(lane), lanes_(lanes), mask_(lanes_of_group(lanes)) {}

  __device__ void run(EdgeRange range, bool with_own) {
    for (head_ = 0; head_ < call_.heads; head_ += kDotHeads) {
      for (first_ = 0; first_ < call_.dim; first_ += lanes_ * kVec) {
        column_ = first_ + lane_ * kVec;
        take_grads();
        for (int64_t e = range.begin; e < range.end; e += kAtOnce) multiply(e, range.end);
        if (with_own) put(call_.own_dots, own_, dot(load(own_, call_.bend.own_edge, own_)), true);
      }
    }
  }

 private:
  struct Loaded {
    Pack<T, kVec> x[kDotHeads];
    Pack<T, kVec> edge[kByEdge ? kDotHeads : 1];
  };

  __device__ bool has(int h) const { return head_ + h < call_.heads && column_ < call_.dim; }

  template <typename E>
  __device__ Pack<E, kVec> pack_of(const HeadRows& rows, int64_t row, int h) const {
    if (!has(h)) return {};
    const int64_t at = row * rows.row_stride + (head_ + h) * rows.head_stride + column_;
    return load_pack<kVec>(static_cast<const E*>(rows.data) + at);
  }

  // Widened once for all edges.
  __device__ void take_grads() {
#pragma unroll
    for (int h = 0; h < kDotHeads; ++h) {
      const Pack<G, kVec> pack = pack_of<G>(call_.grad, row_, h);
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        grad_[h][v] = widen(pack.value[v]);
        if constexpr (kBent) att_[h][v] = has(h) ? static_cast<const A*>(call_.bend.att)[column_of(h) + v] : A{0};
      }
    }
  }

  // The column of a head among those of all heads.
  __device__ int64_t column_of(int h) const { return (head_ + h) * call_.dim + column_; }

  // Row `index` of x, and row `number` of those of edges.
  __device__ Loaded load(int64_t index, const void* edge, int64_t number) const {
    Loaded loaded;
#pragma unroll
    for (int h = 0; h < kDotHeads; ++h) loaded.x[h] = pack_of<T>(call_.x, index, h);
    if constexpr (kByEdge) {
      const HeadRows rows{edge, call_.heads * call_.dim, call_.dim};
#pragma unroll
      for (int h = 0; h < kDotHeads; ++h) loaded.edge[h] = edge ? pack_of<T>(rows, number, h) : Pack<T, kVec>{};
    }
    return loaded;
  }

  // Edges [e, e + kAtOnce), as far as there are.
  __device__ void multiply(int64_t e, int64_t end) const {
    Loaded loaded[kAtOnce];
    bool counts[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (e + k >= end) continue;
      const int64_t index = call_.block.index[e + k];
      counts[k] = !(call_.block.skip_self && index == own_);
      loaded[k] = load(index, call_.bend.edge, e + k);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (e + k < end) put(call_.dots, e + k, dot(loaded[k]), counts[k]);
    }
  }

  // This lane's head's product over the group's columns.
  __device__ A dot(const Loaded& loaded) const {
    A value[kDotHeads] = {};
#pragma unroll
    for (int h = 0; h < kDotHeads; ++h) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const A x = widen(loaded.x[h].value[v]);
        if constexpr (kBent) {
          A z = grad_[h][v] + x;
          if constexpr (kByEdge) z += widen(loaded.edge[h].value[v]);
          value[h] += att_[h][v] * (z > 0 ? z : z * static_cast<A>(call_.bend.slope));
        } else {
          value[h] += grad_[h][v] * x;
        }
      }
    }
    return sum_over_lanes(value, lane_, lanes_, mask_);
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
  int64_t head_ = 0, first_ = 0, column_ = 0;
  A grad_[kDotHeads][kVec];
  A att_[kBent ? kDotHeads : 1][kVec];
};

template <typename T, typename G, int kVec>
void launch(const DotCall& call, cudaStream_t stream) {
  if (!call.bend.att) return launch_dots<RowDots<T, G, kVec, DotWay::kPlain>>(call, stream);
  if constexpr (std::is_same_v<T, G> && kVec <= kMostBent) {
    if (call.bend.edge) return launch_dots<RowDots<T, T, kVec, DotWay::kBentByEdge>>(call, stream);
    launch_dots<RowDots<T, T, kVec, DotWay::kBent>>(call, stream);
  } else {
    base::require(false, "with a bend, rows of one dtype, and few columns a lane");
  }
}

}  // namespace

void run_on_gpu(const DotCall& call, cudaStream_t stream) {
  if (call.x.head_stride == 0 && !call.bend.att) return run_shared_on_gpu(call, stream);
  with_dot_types(call, [&]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) {
    constexpr int kWide = 16 / sizeof(T), kHalf = kWide / 2;
    const bool few = call.bend.att && kWide > kMostBent;
    if (!few && can_pack<T, G>(call, kWide)) return launch<T, G, kWide>(call, stream);
    if constexpr (kHalf > 1) {
      if (can_pack<T, G>(call, kHalf)) return launch<T, G, kHalf>(call, stream);
    }
    launch<T, G, 1>(call, stream);
  });
}

}  // namespace cohort::trainer
