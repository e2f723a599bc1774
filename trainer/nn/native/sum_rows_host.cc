#include <algorithm>
#include <memory>
#include <vector>

#include "trainer/nn/native/activation_host.h"
#include "trainer/nn/native/host_rows.h"
#include "trainer/nn/native/sum_rows.h"

namespace cohort::trainer {
namespace {

template <typename T>
class RowSummer {
 public:
  explicit RowSummer(const SumCall& call)
      : call_(call),
        sum_(static_cast<std::size_t>(call.dim)),
        piece_(static_cast<std::size_t>(call.dim)),
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
    fetch_row(row_at(call_.x, call_.x_stride, call_.row_index, call_.block.index[edge]), call_.dim);
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
      add_row(row_at(call_.x, call_.x_stride, call_.row_index, index), factor, of_heads, to);
    }
  }

  void finish(int64_t row, EdgeRange range) {
    const int64_t count = range.end > range.begin ? range.end - range.begin : 1;
    const bool has_own = row < call_.num_own;
    const T* own = has_own ? row_at(call_.own, call_.own_stride, call_.own_row_index, row) : nullptr;
    if (call_.own_use == Own::kAdd && has_own) {
      add_row(own, A{1}, call_.own_factor ? factors(call_.own_factor, row * call_.heads) : nullptr, sum_.data());
    }
    const A factor = call_.row_factor ? *factors(call_.row_factor, row) : A{1};
    for (A& sum : sum_) sum = (call_.mean ? sum / static_cast<A>(count) : sum) * factor;
    if (call_.drop.use == DropUse::kBack) drop_back(row);
    if (call_.inverse_count) static_cast<A*>(call_.inverse_count)[row] = A{1} / static_cast<A>(count);
    with_type(call_.out_dtype, [&]<typename Out>(std::type_identity<Out>) { store<Out>(row, own); });
  }

  void drop_back(int64_t row) {
    const uint8_t* kept = call_.drop.kept + row * (call_.dim / kElementsADraw);
    const A scale = static_cast<A>(call_.drop.scale);
    for (int64_t group = 0; group < call_.dim / kElementsADraw; ++group) {
      A* sums = sum_.data() + group * kElementsADraw;
      for (int k = 0; k < kElementsADraw; ++k) {
        sums[k] = (kept[group] & (1 << k)) != 0 ? widen(narrow<T>(sums[k])) * scale : A{0};
      }
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
  std::vector<A> sum_, piece_;  // [dim]
  std::vector<T> zeros_;        // [dim]
};

template <typename T>
void sum_all(const SumCall& call) {
#pragma omp parallel if (call.block.num_rows > kRowsAtOnce)
  {
    RowSummer<T> summer(call);
#pragma omp for schedule(dynamic, kRowsAtOnce)
    for (int64_t row = 0; row < call.block.num_rows; ++row) summer.sum(row);
  }
}

// How many rows of x the call reads at most: those that edges name, and own ones.
int64_t rows_read(const SumCall& call) {
  int64_t rows = call.own_use == Own::kNone ? 0 : std::min(call.num_own, call.block.num_rows);
  const int64_t end = call.block.first(call.block.num_rows);
#pragma omp parallel for schedule(static) reduction(max : rows)
  for (int64_t e = 0; e < end; ++e) rows = std::max(rows, call.block.index[e] + 1);
  return rows;
}

// Each row of x goes through ReLU and dropout once, however many edges bring it.
template <typename T>
void sum_dropped(const SumCall& call) {
  const int64_t size = rows_read(call) * call.dim;
  const RowDrop& drop = call.drop;
  const auto taken = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(size));
  drop_elements(Activation::kRelu, base::key_of(drop.key_at ? *drop.key_at : drop.key), drop.below,
                static_cast<Sum<T>>(drop.scale), static_cast<const T*>(call.x), size, taken.get(), drop.kept);
  SumCall of_taken = call;
  of_taken.drop.use = DropUse::kNone;
  of_taken.x = taken.get();
  if (call.own_use != Own::kNone) of_taken.own = taken.get(), of_taken.own_stride = call.dim;
  sum_all<T>(of_taken);
}

}  // namespace

void run_on_host(const SumCall& call) {
  with_type(call.dtype, [&]<typename T>(std::type_identity<T>) {
    call.drop.use == DropUse::kIn ? sum_dropped<T>(call) : sum_all<T>(call);
  });
}

}  // namespace cohort::trainer
