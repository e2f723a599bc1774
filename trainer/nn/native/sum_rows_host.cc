#include <algorithm>
#include <atomic>
#include <vector>

#include "trainer/nn/native/activation_element.h"
#include "trainer/nn/native/sum_rows.h"

namespace cohort::trainer {
namespace {

constexpr int kRowsAtOnce = 64;
constexpr int64_t kEdgesAhead = 6;  // whose rows come from memory while those before are added
constexpr int64_t kLineBytes = 64;

template <typename T>
class RowSummer {
 public:
  explicit RowSummer(const SumCall& call)
      : call_(call),
        sum_(static_cast<std::size_t>(call.dim)),
        piece_(static_cast<std::size_t>(call.dim)),
        taken_(static_cast<std::size_t>(call.dim)),
        zeros_(call.own_row_index || call.row_index ? static_cast<std::size_t>(call.dim) : 0) {}

  void sum(int64_t row) {
    const EdgeRange range = range_of(call_.block, row);
    std::fill(sum_.begin(), sum_.end(), A{0});
    if (range.in_pieces()) {
      for (int64_t p = range.first_piece(); p < range.end_piece(); ++p) {
        std::fill(piece_.begin(), piece_.end(), A{0});
        add_edges(row, range.piece(p), piece_.data());
        for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] += piece_[c];
      }
    } else {
      add_edges(row, range, sum_.data());
    }
    finish(row, range);
  }

 private:
  using A = Sum<T>;

  static const A* factors(const void* array, int64_t at) { return static_cast<const A*>(array) + at; }

  const T* row_at(const void* rows, int64_t stride, const int64_t* row_index, int64_t row) const {
    const int64_t at = row_index ? row_index[row] : row;
    return at < 0 ? zeros_.data() : static_cast<const T*>(rows) + at * stride;
  }

  void fetch(int64_t edge) const {
    if (edge >= call_.block.num_edges) return;
    const void* row = row_at(call_.x, call_.x_stride, call_.row_index, call_.block.index[edge]);
    const int64_t row_bytes = call_.dim * static_cast<int64_t>(sizeof(T));
    for (int64_t at = 0; at < row_bytes; at += kLineBytes) __builtin_prefetch(static_cast<const char*>(row) + at);
  }

  // to[c] += factor * edge factor of c's head * from[c]
  void add_row(const T* from, A factor, const A* of_heads, A* to) const {
    const int64_t head_dim = call_.dim / call_.heads;
    for (int64_t head = 0; head < call_.heads; ++head) {
      const A by = of_heads ? of_heads[head] * factor : factor;
      for (int64_t c = head * head_dim; c < (head + 1) * head_dim; ++c) to[c] += by * widen(from[c]);
    }
  }

  void add_edges(int64_t row, EdgeRange range, A* to) {
    for (int64_t e = range.begin; e < range.end; ++e) {
      fetch(e + kEdgesAhead);
      const int64_t index = call_.block.index[e];
      if (call_.block.skip_self && index == row) continue;
      const A factor = call_.index_factor ? *factors(call_.index_factor, index) : A{1};
      const A* of_heads = call_.edge_factor ? factors(call_.edge_factor, call_.block.number(e) * call_.heads) : nullptr;
      add_row(taken_in(index, row_at(call_.x, call_.x_stride, call_.row_index, index)), factor, of_heads, to);
    }
  }

  void finish(int64_t row, EdgeRange range) {
    const int64_t count = range.end > range.begin ? range.end - range.begin : 1;
    const bool has_own = row < call_.num_own;
    const T* own = has_own ? taken_in(row, row_at(call_.own, call_.own_stride, call_.own_row_index, row)) : nullptr;
    if (call_.own_use == Own::kAdd && has_own) {
      add_row(own, A{1}, call_.own_factor ? factors(call_.own_factor, row * call_.heads) : nullptr, sum_.data());
    }
    const A factor = call_.row_factor ? *factors(call_.row_factor, row) : A{1};
    for (A& sum : sum_) sum = (call_.mean ? sum / static_cast<A>(count) : sum) * factor;
    if (call_.drop.use == DropUse::kBack) drop_back(row);
    if (call_.inverse_count) static_cast<A*>(call_.inverse_count)[row] = A{1} / static_cast<A>(count);
    with_type(call_.out_dtype, [&]<typename Out>(std::type_identity<Out>) { store<Out>(row, own); });
  }

  // What the row of x counts as: itself, or a copy after ReLU and dropout. Threads that meet at a row write the same.
  const T* taken_in(int64_t row, const T* from) {
    if (call_.drop.use != DropUse::kIn) return from;
    const RowDrop& drop = call_.drop;
    const base::PhiloxKey key = base::key_of(drop.key_at ? *drop.key_at : drop.key);
    std::copy(from, from + call_.dim, taken_.begin());
    for (int64_t c = 0; c < call_.dim; c += kElementsADraw) {
      const int64_t group = (row * call_.dim + c) / kElementsADraw;
      const unsigned kept =
          drop_group(Activation::kRelu, key, group, drop.below, static_cast<A>(drop.scale), taken_.data() + c);
      std::atomic_ref(drop.kept[group]).store(static_cast<uint8_t>(kept), std::memory_order_relaxed);
    }
    return taken_.data();
  }

  void drop_back(int64_t row) {
    for (std::size_t c = 0; c < sum_.size(); ++c) {
      const std::size_t at = static_cast<std::size_t>(row) * sum_.size() + c;
      const bool kept = call_.drop.kept[at / kElementsADraw] >> (at % kElementsADraw) & 1;
      sum_[c] = kept ? widen(narrow<T>(sum_[c])) * static_cast<A>(call_.drop.scale) : A{0};
    }
  }

  template <typename Out>
  void store(int64_t row, const T* own) const {
    Out* to = static_cast<Out*>(call_.out) + row * call_.out_stride;
    for (std::size_t c = 0; c < sum_.size(); ++c) to[c] = narrow<Out>(static_cast<Sum<Out>>(sum_[c]));
    if (call_.own_use != Own::kBeside) return;
    for (int64_t c = 0; c < call_.dim; ++c) {
      to[call_.dim + c] = narrow<Out>(own ? static_cast<Sum<Out>>(widen(own[c])) : Sum<Out>{0});
    }
  }

  const SumCall& call_;
  std::vector<A> sum_, piece_;    // [dim]
  std::vector<T> taken_, zeros_;  // [dim]
};

}  // namespace

void run_on_host(const SumCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
    {
      RowSummer<T> summer(call);
#pragma omp for schedule(dynamic, kRowsAtOnce)
      for (int64_t row = 0; row < call.block.num_rows; ++row) summer.sum(row);
    }
  });
}

}  // namespace cohort::trainer
