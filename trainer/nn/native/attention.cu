#include <cmath>

#include "trainer/nn/native/attention.h"
#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {
namespace {

// What the reductions here share: a column is a head, a lane has one of a row.
template <typename A, typename CallType>
class HeadReduction {
 public:
  using Call = CallType;
  static constexpr int kPack = 1;
  struct Loaded {
    A x;
    int64_t at;
    bool counts;
  };

  __device__ HeadReduction(const Call& call, int64_t row, int64_t head) : call_(call), row_(row), head_(head) {
    const EdgeScores& scores = call.scores;
    target_ = scores.target ? static_cast<const A*>(scores.target)[row * scores.target_stride + head] : A{0};
  }

  __device__ Loaded load(int64_t e, int64_t index) const {
    const int64_t at = e * call_.dim + head_;
    return {argument(index, call_.scores.edge, at), at, !(call_.block.skip_self && index == row_)};
  }

 protected:
  // What leaky_relu is taken of; `of_edges` at `at`, where there is any, is what edges themselves score.
  __device__ A argument(int64_t index, const void* of_edges, int64_t at) const {
    const A ends = static_cast<const A*>(call_.scores.source)[index * call_.scores.source_stride + head_] + target_;
    return of_edges ? ends + static_cast<const A*>(of_edges)[at] : ends;
  }
  __device__ A own_argument() const { return argument(row_, call_.scores.own_edge, at_row()); }
  __device__ A slope(A x) const { return x > 0 ? A{1} : static_cast<A>(call_.scores.slope); }
  __device__ A leaky(A x) const { return x * slope(x); }
  __device__ bool has_own() const { return row_ < call_.num_own; }
  __device__ int64_t at_row() const { return row_ * call_.dim + head_; }
  __device__ int64_t at_piece(int64_t piece) const { return piece * call_.dim + head_; }

  const Call& call_;
  const int64_t row_, head_;
  A target_;
};

// The largest score of a row, and the sum of exp(score - largest).
template <typename A>
class RowTotal : public HeadReduction<A, AttentionCall> {
 public:
  using Base = HeadReduction<A, AttentionCall>;
  using Base::Base, Base::call_;

  __device__ void add(const typename Base::Loaded& loaded) {
    if (loaded.counts) take(this->leaky(loaded.x), A{1});
  }
  __device__ void save(int64_t piece) const {
    A* partial = static_cast<A*>(call_.partial);
    partial[this->at_piece(piece)] = largest_;
    partial[this->at_piece(piece + max_pieces(call_.block.num_edges))] = sum_;
  }
  __device__ void merge(int64_t piece) {
    const A* partial = static_cast<const A*>(call_.partial);
    const A sum = partial[this->at_piece(piece + max_pieces(call_.block.num_edges))];
    if (sum != 0) take(partial[this->at_piece(piece)], sum);
  }
  __device__ void finish(const EdgeRange&) {
    if (this->has_own()) take(this->leaky(this->own_argument()), A{1});
    static_cast<A*>(call_.largest)[this->at_row()] = largest_;
    static_cast<A*>(call_.sums)[this->at_row()] = sum_;
  }

 private:
  __device__ void take(A largest, A sum) {
    if (largest <= largest_) {
      sum_ += sum * std::exp(largest - largest_);
    } else {
      sum_ = sum_ * std::exp(largest_ - largest) + sum;
      largest_ = largest;
    }
  }

  A largest_ = -INFINITY, sum_ = 0;
};

// Writes the weights of a row's edges.
template <typename A>
class RowWeights : public HeadReduction<A, AttentionCall> {
 public:
  using Base = HeadReduction<A, AttentionCall>;
  using Base::call_;

  __device__ RowWeights(const AttentionCall& call, int64_t row, int64_t head) : Base(call, row, head) {
    largest_ = static_cast<const A*>(call.largest)[this->at_row()];
    sum_ = static_cast<const A*>(call.sums)[this->at_row()];
  }
  __device__ void add(const typename Base::Loaded& loaded) {
    static_cast<A*>(call_.weights)[loaded.at] = loaded.counts ? weight(loaded.x) : A{0};
  }
  __device__ void save(int64_t) const {}
  __device__ void merge(int64_t) {}
  __device__ void finish(const EdgeRange&) {
    if (this->has_own()) static_cast<A*>(call_.own_weights)[this->at_row()] = weight(this->own_argument());
  }

 private:
  __device__ A weight(A x) const { return std::exp(this->leaky(x) - largest_) / sum_; }

  A largest_, sum_;
};

// The sum over a row's edges of weight * gradient.
template <typename A>
class RowDot : public HeadReduction<A, AttentionGradCall> {
 public:
  using Base = HeadReduction<A, AttentionGradCall>;
  using Base::call_;
  struct Loaded {
    A weight, grad;
  };

  __device__ RowDot(const AttentionGradCall& call, int64_t row, int64_t head) : Base(call, row, head) {}
  __device__ Loaded load(int64_t e, int64_t index) const {
    const int64_t at = e * call_.dim + this->head_;
    if (call_.block.skip_self && index == this->row_) return {A{0}, A{0}};
    return {static_cast<const A*>(call_.weights)[at], static_cast<const A*>(call_.grads)[at]};
  }
  __device__ void add(const Loaded& loaded) { sum_ += loaded.weight * loaded.grad; }
  __device__ void save(int64_t piece) const { static_cast<A*>(call_.partial)[this->at_piece(piece)] = sum_; }
  __device__ void merge(int64_t piece) { sum_ += static_cast<const A*>(call_.partial)[this->at_piece(piece)]; }
  __device__ void finish(const EdgeRange&) {
    const int64_t at = this->at_row();
    if (this->has_own())
      add({static_cast<const A*>(call_.own_weights)[at], static_cast<const A*>(call_.own_grads)[at]});
    static_cast<A*>(call_.sums)[at] = sum_;
  }

 private:
  A sum_ = 0;
};

// Writes the gradients of what leaky_relu is taken of, and their sum.
template <typename A>
class RowGrads : public HeadReduction<A, AttentionGradCall> {
 public:
  using Base = HeadReduction<A, AttentionGradCall>;
  using Base::call_;

  __device__ RowGrads(const AttentionGradCall& call, int64_t row, int64_t head) : Base(call, row, head) {
    dot_ = static_cast<const A*>(call.sums)[this->at_row()];
  }
  __device__ void add(const typename Base::Loaded& loaded) {
    A& grad = static_cast<A*>(call_.grads)[loaded.at];
    const A weight = loaded.counts ? static_cast<const A*>(call_.weights)[loaded.at] : A{0};
    grad = loaded.counts ? weight * (grad - dot_) * this->slope(loaded.x) : A{0};
    sum_ += grad;
  }
  __device__ void save(int64_t piece) const { static_cast<A*>(call_.partial)[this->at_piece(piece)] = sum_; }
  __device__ void merge(int64_t piece) { sum_ += static_cast<const A*>(call_.partial)[this->at_piece(piece)]; }
  __device__ void finish(const EdgeRange&) {
    if (this->has_own()) {
      const int64_t at = this->at_row();
      A& grad = static_cast<A*>(call_.own_grads)[at];
      grad = static_cast<const A*>(call_.own_weights)[at] * (grad - dot_) * this->slope(this->own_argument());
      sum_ += grad;
    }
    static_cast<A*>(call_.target_grads)[this->row_ * call_.target_grads_stride + this->head_] = sum_;
  }

 private:
  A dot_, sum_ = 0;
};

}  // namespace

void run_on_gpu(const AttentionCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    launch_reduction<RowTotal<Sum<T>>>(call, stream);
    launch_reduction<RowWeights<Sum<T>>>(call, stream);
  });
}

void run_on_gpu(const AttentionGradCall& call, cudaStream_t stream) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    launch_reduction<RowDot<Sum<T>>>(call, stream);
    launch_reduction<RowGrads<Sum<T>>>(call, stream);
  });
}

}  // namespace cohort::trainer
