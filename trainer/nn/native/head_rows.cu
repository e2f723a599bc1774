#include "trainer/nn/native/head_rows.h"
#include "trainer/nn/native/stream.cuh"

namespace cohort::trainer {
namespace {

constexpr int kHeads = 4;  // whose sums a lane keeps at once

// The weights of heads [first, first + kHeads) of an edge, or of a row's own; 0 for heads that there are not.
template <typename A>
struct HeadWeights {
  A value[kHeads] = {};

  HeadWeights() = default;
  __device__ HeadWeights(const void* weights, int64_t at, int64_t heads, int64_t first) {
    const A* from = static_cast<const A*>(weights) + at * heads + first;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (first + h < heads) value[h] = from[h];
    }
  }
};

template <int kVec, typename T>
__device__ void add_times(Sum<T> factor, const Pack<T, kVec>& pack, Sum<T> (&sum)[kVec]) {
#pragma unroll
  for (int v = 0; v < kVec; ++v) sum[v] = plus(sum[v], times(factor, widen(pack.value[v])));
}

// A launch has the heads from first_head on.
struct SpreadLaunch : SpreadCall {
  int64_t first_head = 0;
};

template <typename T, int kVec>
class RowSpread {
 public:
  using Call = SpreadLaunch;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  struct Loaded {
    Pack<T, kVec> x;
    HeadWeights<A> weights;
    bool counts;
  };

  using Part = Pack<T, kVec>;
  using Factors = HeadWeights<A>;
  static constexpr int kParts = 1;

  static bool streams(const Call&) { return true; }
  static __device__ int64_t source(const Call&, int64_t index) { return index; }
  static __device__ const Part* part(const Call& call, int64_t row, int64_t column, int) {
    return reinterpret_cast<const Part*>(static_cast<const T*>(call.x) + row * call.x_stride + column);
  }
  static __device__ Factors factors(const Call& call, int64_t number, int64_t) {
    return {call.weights, number, call.heads, call.first_head};
  }

  __device__ RowSpread(const Call& call, int64_t row, int64_t column) : call_(call), row_(row), column_(column) {}

  __device__ Loaded load(int64_t e, int64_t index) const {
    return {*part(call_, index, column_, 0), factors(call_, call_.block.number(e), index), counts(index)};
  }

  __device__ void add(const Loaded& loaded) {
    if (loaded.counts) add_row(loaded.x, loaded.weights);
  }
  __device__ void add_parts(const Part (&parts)[kParts], const Factors& weights, int64_t index) {
    if (counts(index)) add_row(parts[0], weights);
  }

  __device__ void save(int64_t piece) const {
    A* to = static_cast<A*>(call_.partial) + at_piece(piece);
    for_heads([&](int h) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) to[h * call_.dim + v] = sum_[h][v];
    });
  }

  __device__ void merge(int64_t piece) {
    const A* from = static_cast<const A*>(call_.partial) + at_piece(piece);
    for_heads([&](int h) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) sum_[h][v] = plus(sum_[h][v], from[h * call_.dim + v]);
    });
  }

  __device__ void finish(const EdgeRange&) {
    const int64_t own = call_.first_row + row_;
    if (own < call_.num_own) {
      add_row(*part(call_, own, column_, 0), {call_.own_weights, own, call_.heads, call_.first_head});
    }
    for_heads([&](int h) {
      const int64_t at = ((call_.first_head + h) * call_.block.num_rows + row_) * call_.dim + column_;
      store_sums<kVec>(call_.out_dtype, call_.out, at, sum_[h]);
    });
  }

 private:
  __device__ bool counts(int64_t index) const { return !(call_.block.skip_self && index == call_.first_row + row_); }
  __device__ void add_row(const Part& row, const Factors& weights) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) add_times<kVec>(weights.value[h], row, sum_[h]);
  }
  __device__ int64_t at_piece(int64_t piece) const {
    return (piece * call_.heads + call_.first_head) * call_.dim + column_;
  }
  template <typename F>
  __device__ void for_heads(F&& f) const {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (call_.first_head + h < call_.heads) f(h);
    }
  }

  const Call& call_;
  const int64_t row_, column_;
  A sum_[kHeads][kVec] = {};
};

template <typename T, int kVec>
class RowFold {
 public:
  using Call = FoldCall;
  static constexpr int kPack = kVec;
  using A = Sum<T>;
  struct Loaded {
    Pack<T, kVec> x[kHeads];
    HeadWeights<A> weights;
    int64_t index, number;  // of heads from kHeads on, which are rare, rows are loaded when they are added
    bool counts;
  };

  using Part = Pack<T, kVec>;
  using Factors = HeadWeights<A>;
  static constexpr int kParts = kHeads;

  static bool streams(const Call& call) { return call.heads <= kHeads; }
  static __device__ int64_t source(const Call&, int64_t index) { return index; }
  static __device__ const Part* part(const Call& call, int64_t row, int64_t column, int head) {
    if (head >= call.heads) return nullptr;
    return reinterpret_cast<const Part*>(static_cast<const T*>(call.x) + (head * call.x_rows + row) * call.dim +
                                         column);
  }
  static __device__ Factors factors(const Call& call, int64_t number, int64_t) {
    return {call.weights, number, call.heads, 0};
  }

  __device__ RowFold(const Call& call, int64_t row, int64_t column) : call_(call), row_(row), column_(column) {}

  __device__ Loaded load(int64_t e, int64_t index) const {
    return load_heads(call_.weights, index, call_.block.number(e), 0, counts(index));
  }

  __device__ void add(const Loaded& loaded) {
    if (loaded.counts) add_edge(loaded, call_.weights);
  }
  __device__ void add_parts(const Part (&parts)[kParts], const Factors& weights, int64_t index) {
    if (counts(index)) add_heads(parts, weights, 0);
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
    if (row_ < call_.num_own) add_edge(load_heads(call_.own_weights, row_, row_, 0, true), call_.own_weights);
    store_sums<kVec>(call_.dtype, call_.out, row_ * call_.dim + column_, sum_);
  }

 private:
  __device__ Loaded load_heads(const void* weights, int64_t index, int64_t number, int64_t first, bool counts) const {
    Loaded loaded{{}, {weights, number, call_.heads, first}, index, number, counts};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (const Part* from = part(call_, index, column_, static_cast<int>(first) + h)) loaded.x[h] = *from;
    }
    return loaded;
  }

  __device__ void add_edge(const Loaded& loaded, const void* weights) {
    add_heads(loaded.x, loaded.weights, 0);
    for (int64_t first = kHeads; first < call_.heads; first += kHeads) {
      const Loaded next = load_heads(weights, loaded.index, loaded.number, first, true);
      add_heads(next.x, next.weights, first);
    }
  }

  __device__ void add_heads(const Part (&rows)[kHeads], const Factors& weights, int64_t first) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (first + h < call_.heads) add_times<kVec>(weights.value[h], rows[h], sum_);
    }
  }

  __device__ bool counts(int64_t index) const { return !(call_.block.skip_self && index == row_); }

  const Call& call_;
  const int64_t row_, column_;
  A sum_[kVec] = {};
};

// True when all rows of the call can be read and written in packs of `vec`.
bool can_pack(const SpreadCall& call, int vec) {
  return call.dim % vec == 0 && packs_fit(call.x, call.x_stride, bytes_of(call.dtype), vec) &&
         packs_fit(call.out, call.dim, bytes_of(call.out_dtype), vec);
}

bool can_pack(const FoldCall& call, int vec) {
  const int bytes = bytes_of(call.dtype);
  return call.dim % vec == 0 && packs_fit(call.x, call.dim, bytes, vec) && packs_fit(call.out, call.dim, bytes, vec);
}

template <typename Reduction>
void launch_spread(const SpreadCall& call, cudaStream_t stream) {
  for (int64_t head = 0; head < call.heads; head += kHeads) launch_streamed<Reduction>({call, head}, stream);
}

}  // namespace

void run_on_gpu(const SpreadCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) < 8) {
      constexpr int kWide = 16 / sizeof(T), kHalf = kWide / 2;
      if (can_pack(call, kWide)) return launch_spread<RowSpread<T, kWide>>(call, stream);
      if (can_pack(call, kHalf)) return launch_spread<RowSpread<T, kHalf>>(call, stream);
    }
    launch_spread<RowSpread<T, 1>>(call, stream);
  });
}

void run_on_gpu(const FoldCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) < 8) {
      constexpr int kWide = 16 / sizeof(T), kHalf = kWide / 2;
      if (can_pack(call, kWide)) return launch_streamed<RowFold<T, kWide>>(call, stream);
      if (can_pack(call, kHalf)) return launch_streamed<RowFold<T, kHalf>>(call, stream);
    }
    launch_streamed<RowFold<T, 1>>(call, stream);
  });
}

}  // namespace cohort::trainer
