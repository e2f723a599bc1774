#include "trainer/nn/native/activation_element.h"
#include "trainer/nn/native/stream.cuh"
#include "trainer/nn/native/sum_rows.h"

namespace cohort::trainer {
namespace {

// What becomes of the row that an edge brings: it is added; times factors, or left out where it is the row itself; or
// that after ReLU and dropout.
enum class Way { kPlain, kScaled, kDropIn };

constexpr int kSumHeads = 4;  // most whose factors a lane has for the warp

template <typename T, int kVec, Way kWay, bool kIndexed = false>
class RowSum {
 public:
  using Call = SumCall;
  static constexpr int kPack = kVec;
  // Measured: registers of a row against rows at once.
  static constexpr int kMinBlocks = kVec == 8 && sizeof(T) == 4             ? 4
                                    : kWay == Way::kPlain && sizeof(T) == 4 ? 6
                                    : kWay == Way::kDropIn                  ? (sizeof(T) == 4 ? 4 : 3)
                                                                            : 1;
  using A = Sum<T>;
  struct Scaled {
    Pack<T, kVec> x;
    A factor;
    bool counts;
    int64_t index;
  };
  using Loaded = std::conditional_t<kWay == Way::kPlain, Pack<T, kVec>, Scaled>;
  using Part = Pack<T, kVec>;
  struct Factors {
    A value[kSumHeads] = {};
  };
  static constexpr int kParts = 1;

  static bool streams(const Call& call) { return call.heads <= kSumHeads && !(kIndexed && call.block.skip_self); }
  static __device__ int64_t source(const Call& call, int64_t index) { return at(call.row_index, index); }
  static __device__ const Part* part(const Call& call, int64_t row, int64_t column, int) {
    return reinterpret_cast<const Part*>(static_cast<const T*>(call.x) + row * call.x_stride + column);
  }
  static __device__ Factors factors(const Call& call, int64_t number, int64_t index) {
    Factors factors;
    const A of_row = call.index_factor ? static_cast<const A*>(call.index_factor)[index] : A{1};
#pragma unroll
    for (int h = 0; h < kSumHeads; ++h) {
      factors.value[h] = of_row;
      if (call.edge_factor && h < call.heads) {
        factors.value[h] = times(static_cast<const A*>(call.edge_factor)[number * call.heads + h], of_row);
      }
    }
    return factors;
  }

  __device__ void add_parts(const Part (&parts)[kParts], const Factors& factors, int64_t index) {
    if (call_.block.skip_self && index == row_) return;
    A factor = factors.value[0];
#pragma unroll
    for (int h = 1; h < kSumHeads; ++h) factor = head_ == h ? factors.value[h] : factor;
    add_pack(parts[0], factor);
  }

  __device__ RowSum(const SumCall& call, int64_t row, int64_t column)
      : call_(call), row_(row), column_(column), head_(call.heads == 1 ? 0 : column / (call.dim / call.heads)) {
    if constexpr (kWay == Way::kDropIn) key_ = base::key_of(call.drop.key_at ? *call.drop.key_at : call.drop.key);
    if constexpr (kWay == Way::kScaled) {
      if (call.drop.use == DropUse::kBack) kept_ = kept();  // read beside the edges
    }
  }

  __device__ Loaded load(int64_t e, int64_t index) const {
    const Part x = *part(call_, at(call_.row_index, index), column_, 0);
    if constexpr (kWay == Way::kPlain) {
      return x;
    } else {
      const bool counts = !(call_.block.skip_self && index == row_);
      A factor = call_.index_factor ? static_cast<const A*>(call_.index_factor)[index] : A{1};
      if (call_.edge_factor) factor = times(head_factor(call_.edge_factor, call_.block.number(e)), factor);
      return {x, factor, counts, index};
    }
  }

  __device__ void add(const Loaded& loaded) {
    if constexpr (kWay == Way::kPlain) {
#pragma unroll
      for (int v = 0; v < kVec; ++v) sum_[v] = plus(sum_[v], widen(loaded.value[v]));
    } else {
      if (loaded.counts) add_pack(taken_in(loaded.index, loaded.x), loaded.factor);
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

  __device__ void finish(const EdgeRange& range) {
    const bool has_own = row_ < call_.num_own;
    Pack<T, kVec> own{};
    if (has_own) {
      const int64_t own_row = at(call_.own_row_index, row_);
      if (!kIndexed || own_row >= 0)
        own = load_pack<kVec>(static_cast<const T*>(call_.own) + own_row * call_.own_stride + column_);
      own = taken_in(row_, own);
    }
    if (call_.own_use == Own::kAdd && has_own) {
      add_pack(own, call_.own_factor ? head_factor(call_.own_factor, row_) : A{1});
    }
    const A count = static_cast<A>(range.end > range.begin ? range.end - range.begin : 1);
    const A factor = call_.row_factor ? static_cast<const A*>(call_.row_factor)[row_] : A{1};
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum_[v] = times(call_.mean ? sum_[v] / count : sum_[v], factor);
    if (call_.drop.use == DropUse::kBack) drop_back();
    const int64_t at = row_ * call_.out_stride + column_;
    store_sums<kVec>(call_.out_dtype, call_.out, at, sum_);
    if (call_.own_use == Own::kBeside) store_beside(at + call_.dim, own);
    if (call_.inverse_count && column_ == 0) static_cast<A*>(call_.inverse_count)[row_] = A{1} / count;
  }

 private:
  __device__ static int64_t at(const int64_t* row_index, int64_t row) {
    if constexpr (kIndexed) return row_index ? row_index[row] : row;
    return row;
  }

  // What the row of x counts as.
  __device__ Pack<T, kVec> taken_in(int64_t row, Pack<T, kVec> pack) const {
    if constexpr (kWay == Way::kDropIn) {
      const int64_t first = (row * call_.dim + column_) / kElementsADraw;
#pragma unroll
      for (int g = 0; g < kVec / kElementsADraw; ++g) {
        call_.drop.kept[first + g] = static_cast<uint8_t>(drop_group(
            Activation::kRelu, key_, first + g, call_.drop.below, call_.drop.scale, pack.value + g * kElementsADraw));
      }
    }
    return pack;
  }

  // Bit v: element v of the pack of x has come through.
  __device__ unsigned kept() const {
    const int64_t at = row_ * call_.dim + column_;
    const uint8_t* from = call_.drop.kept + at / kElementsADraw;
    if constexpr (kVec % kElementsADraw != 0) return static_cast<unsigned>(*from >> (at % kElementsADraw));
    unsigned bits = 0;
#pragma unroll
    for (int g = 0; g < kVec / kElementsADraw; ++g) bits |= (from[g] & 0xFu) << (g * kElementsADraw);
    return bits;
  }

  __device__ void drop_back() {
    if constexpr (kWay != Way::kScaled) kept_ = kept();
#pragma unroll
    for (int v = 0; v < kVec; ++v) {
      const A sum = times(static_cast<A>(widen(narrow<T>(sum_[v]))), static_cast<A>(call_.drop.scale));
      sum_[v] = kept_ >> v & 1 ? sum : A{0};
    }
  }

  __device__ A head_factor(const void* factors, int64_t at) const {
    return static_cast<const A*>(factors)[at * call_.heads + head_];
  }

  __device__ void add_pack(const Pack<T, kVec>& pack, A factor) {
#pragma unroll
    for (int v = 0; v < kVec; ++v) sum_[v] = plus(sum_[v], times(factor, widen(pack.value[v])));
  }

  __device__ void store_beside(int64_t at, const Pack<T, kVec>& own) const {
    A wide[kVec];
#pragma unroll
    for (int v = 0; v < kVec; ++v) wide[v] = widen(own.value[v]);
    store_sums<kVec>(call_.out_dtype, call_.out, at, wide);
  }

  const SumCall& call_;
  const int64_t row_, column_, head_;
  A sum_[kVec] = {};
  base::PhiloxKey key_{};
  unsigned kept_ = 0;
};

// True when all arrays of the call can be read and written in packs of `vec`.
bool can_pack(const SumCall& call, int vec) {
  const int in_bytes = bytes_of(call.dtype), out_bytes = bytes_of(call.out_dtype);
  return call.dim / call.heads % vec == 0 && packs_fit(call.x, call.x_stride, in_bytes, vec) &&
         packs_fit(call.own, call.own_stride, in_bytes, vec) && packs_fit(call.out, call.out_stride, out_bytes, vec);
}

// Of rows by index.
void sum_indexed(const SumCall& call, bool is_plain, cudaStream_t stream) {
  constexpr int kWide = 4;
  base::require(call.dtype == Dtype::kFloat32 && call.drop.use != DropUse::kIn, "float32 rows in place, without drop");
  if (!can_pack(call, kWide)) return launch_reduction<RowSum<float, 1, Way::kScaled, true>>(call, stream);
  if (is_plain) return launch_reduction<RowSum<float, kWide, Way::kPlain, true>>(call, stream);
  launch_streamed<RowSum<float, kWide, Way::kScaled, true>>(call, stream);
}

}  // namespace

void run_on_gpu(const SumCall& call, cudaStream_t stream) {
  const bool is_plain = !call.block.skip_self && !call.edge_factor && !call.index_factor;
  if (call.row_index || call.own_row_index) return sum_indexed(call, is_plain, stream);
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    if constexpr (sizeof(T) < 8) {
      constexpr int kWide = 16 / sizeof(T), kHalf = kWide / 2;
      const bool fits = can_pack(call, kWide);
      if (call.drop.use == DropUse::kIn) {
        base::require(fits, "rows of whole packs, for dropout on the way in");
        return launch_reduction<RowSum<T, kWide, Way::kDropIn>>(call, stream);
      }
      if (fits && is_plain) return launch_reduction<RowSum<T, kWide, Way::kPlain>>(call, stream);
      if constexpr (sizeof(T) == 4) {
        // Rows of few edges take the time of what a group of lanes does once: it does so for twice the columns.
        const bool few_edges = call.block.num_edges < 2 * call.block.num_rows;
        if (few_edges && can_pack(call, 2 * kWide) && !streams_well<RowSum<T, kWide, Way::kScaled>>(call)) {
          return launch_reduction<RowSum<T, 2 * kWide, Way::kScaled>>(call, stream);
        }
      }
      if (fits) return launch_streamed<RowSum<T, kWide, Way::kScaled>>(call, stream);
      if (can_pack(call, kHalf)) return launch_reduction<RowSum<T, kHalf, Way::kScaled>>(call, stream);
    }
    base::require(call.drop.use != DropUse::kIn, "no float64 for dropout on the way in");
    launch_reduction<RowSum<T, 1, Way::kScaled>>(call, stream);
  });
}

}  // namespace cohort::trainer
