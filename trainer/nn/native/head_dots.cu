#include "trainer/nn/native/head_rows.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {
namespace {

using base::cuda_check;
using base::grid_first;
using base::kBlockThreads;

constexpr int kMostBent = 4;  // columns of a lane with a Bend, which keeps more in registers
constexpr int kHeads = 4;     // whose products a group of lanes forms at once; a group has at least as many lanes

// The sums over a group of lanes of kHeads values each; lane l gets that of value l % kHeads. The order is fixed.
template <typename A>
__device__ A sum_over_lanes(const A (&value)[kHeads], int lane, int lanes, unsigned mask) {
  static_assert(kHeads == 4);
  const bool odd = lane & 1, upper = lane & 2;
  const A low = (odd ? value[1] : value[0]) + __shfl_xor_sync(mask, odd ? value[0] : value[1], 1);
  const A high = (odd ? value[3] : value[2]) + __shfl_xor_sync(mask, odd ? value[2] : value[3], 1);
  A sum = (upper ? high : low) + __shfl_xor_sync(mask, upper ? low : high, 2);
  for (int distance = kHeads; distance < lanes; distance *= 2) sum += __shfl_xor_sync(mask, sum, distance);
  return sum;
}

// What a product is: as it is; or of a Bend, without or with rows of edges.
enum class Way { kPlain, kBent, kBentByEdge };

// A group's products for one row of gradients: some heads and a lane's pack of columns at a time. With kShared, all
// heads have the same rows of x, of T; gradients are of G.
template <typename T, typename G, int kVec, bool kShared, Way kWay = Way::kPlain>
class RowDots {
 public:
  using A = Sum<T>;
  static constexpr bool kBent = kWay != Way::kPlain, kByEdge = kWay == Way::kBentByEdge;
  static constexpr int kAtOnce = kByEdge ? kUnroll / 2 : kUnroll;  // edges

  __device__ RowDots(const DotCall& call, int64_t row, int lane, int lanes)
      : call_(call), row_(row), own_(call.first_row + row), lane_(lane), lanes_(lanes) {
    const unsigned all = lanes == kWarp ? ~0u : (1u << lanes) - 1;
    mask_ = all << (threadIdx.x % kWarp / lanes * lanes);
  }

  __device__ void run(EdgeRange range, bool with_own) {
    for (head_ = 0; head_ < call_.heads; head_ += kHeads) {
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
    Pack<T, kVec> x[kShared ? 1 : kHeads];
    Pack<T, kVec> edge[kByEdge ? kHeads : 1];
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
    for (int h = 0; h < kHeads; ++h) {
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
    for (int h = 0; h < (kShared ? 1 : kHeads); ++h) loaded.x[h] = pack_of<T>(call_.x, index, h);
    if constexpr (kByEdge) {
      const HeadRows rows{edge, call_.heads * call_.dim, call_.dim};
#pragma unroll
      for (int h = 0; h < kHeads; ++h) loaded.edge[h] = edge ? pack_of<T>(rows, number, h) : Pack<T, kVec>{};
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
    A value[kHeads] = {};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) {
        const A x = widen(loaded.x[kShared ? 0 : h].value[v]);
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
    if (lane_ >= kHeads || head_ + lane_ >= call_.heads) return;
    A& to = static_cast<A*>(dots)[at * call_.heads + head_ + lane_];
    const A before = first_ == 0 ? A{0} : to;
    to = counts ? before + value : A{0};
  }

  const DotCall& call_;
  const int64_t row_, own_;  // of the block, of x
  const int lane_, lanes_;
  unsigned mask_;
  int64_t head_ = 0, first_ = 0, column_ = 0;
  A grad_[kHeads][kVec];
  A att_[kBent ? kHeads : 1][kVec];
};

// Which lanes form the products of a row, or of a piece of one; see reduce.cuh.
struct Groups {
  int lanes = kHeads;
  int64_t num_pieces, num_units;

  Groups(const DotCall& call, int vec) : num_pieces(max_pieces(call.block.num_edges)) {
    while (lanes < kWarp && lanes * vec < call.dim) lanes *= 2;
    num_units = num_pieces + call.block.num_rows;
  }
  unsigned blocks() const { return static_cast<unsigned>((num_units * lanes + kBlockThreads - 1) / kBlockThreads); }
};

template <typename T, typename G, int kVec, bool kShared, Way kWay>
__global__ void __launch_bounds__(kBlockThreads) dot_kernel(const __grid_constant__ DotCall call, const Groups groups) {
  const int64_t unit = grid_first() / groups.lanes;
  if (unit >= groups.num_units) return;
  const bool is_piece = unit < groups.num_pieces;
  const int64_t row = is_piece ? call.block.row_at(unit * kPieceEdges) : unit - groups.num_pieces;
  if (row < 0) return;
  const EdgeRange range = range_of(call.block, row);
  if (is_piece != range.in_pieces() || (is_piece && unit >= range.end_piece())) return;
  const bool first = !is_piece || unit == range.first_piece();
  RowDots<T, G, kVec, kShared, kWay> dots(call, row, static_cast<int>(threadIdx.x) % groups.lanes, groups.lanes);
  dots.run(is_piece ? range.piece(unit) : range, first && call.first_row + row < call.num_own);
}

template <typename T, typename G, int kVec>
void launch(const DotCall& call, cudaStream_t stream) {
  const Groups groups(call, kVec);
  if (call.block.num_rows == 0) return;
  auto kernel =
      call.x.head_stride == 0 ? dot_kernel<T, G, kVec, true, Way::kPlain> : dot_kernel<T, G, kVec, false, Way::kPlain>;
  if (call.bend.att) {
    if constexpr (std::is_same_v<T, G> && kVec <= kMostBent) {
      kernel =
          call.bend.edge ? dot_kernel<T, T, kVec, false, Way::kBentByEdge> : dot_kernel<T, T, kVec, false, Way::kBent>;
    } else {
      base::require(false, "with a bend, rows of one dtype, and few columns a lane");
    }
  }
  kernel<<<groups.blocks(), kBlockThreads, 0, stream>>>(call, groups);
  cuda_check(cudaGetLastError(), "launch products of rows");
}

bool can_pack(const HeadRows& rows, int element_bytes, int vec) {
  return packs_fit(rows.data, rows.row_stride, element_bytes, vec) && rows.head_stride % vec == 0;
}

}  // namespace

void run_on_gpu(const DotCall& call, cudaStream_t stream) {
  with_dot_types(call, [&]<typename T, typename G>(std::type_identity<T>, std::type_identity<G>) {
    constexpr int kWide = 16 / sizeof(T), kHalf = kWide / 2;
    const auto fits = [&](int vec) {
      const bool edges_fit = packs_fit(call.bend.edge, call.dim, sizeof(T), vec) &&
                             packs_fit(call.bend.own_edge, call.dim, sizeof(T), vec);
      return call.dim % vec == 0 && can_pack(call.grad, sizeof(G), vec) && can_pack(call.x, sizeof(T), vec) &&
             edges_fit;
    };
    if (fits(kWide) && !(call.bend.att && kWide > kMostBent)) return launch<T, G, kWide>(call, stream);
    if constexpr (kHalf > 1) {
      if (fits(kHalf)) return launch<T, G, kHalf>(call, stream);
    }
    launch<T, G, 1>(call, stream);
  });
}

}  // namespace cohort::trainer
