#include "trainer/native/nn_module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "trainer/native/activation_element.h"
#include "trainer/native/attention.h"
#include "trainer/native/copy_arrays.h"
#include "trainer/native/head_rows.h"
#include "trainer/native/product.h"
#include "trainer/native/sum_rows.h"
#include "trainer/native/transpose.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::trainer {
namespace {

using Address = std::uintptr_t;         // 0: none
using Stream = std::optional<Address>;  // none: the CPU

template <typename T = void>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

template <typename Call>
void run(const Stream& stream, const Call& call) {
  const nb::gil_scoped_release no_gil;
  if (!stream) return run_on_host(call);
#ifdef COHORT_WITH_CUDA
  run_on_gpu(call, at<CUstream_st>(*stream));
#else
  throw base::Error({"layer", "tensors on the CPU", "tensors on a GPU", "this build has no CUDA bodies"});
#endif
}

BlockRef block_of(Address offsets, int64_t num_offsets, Address index, Address edge, int64_t num_edges,
                  int64_t num_rows, bool skip_self) {
  return {at<int64_t>(offsets), num_offsets, at<int64_t>(index), at<int32_t>(edge), num_edges, num_rows, skip_self};
}

using Drop = std::tuple<int, double, uint64_t, Address, Address>;  // use, p, and the last three of RowDrop

RowDrop drop_of(const Drop& drop) {
  const auto& [use, p, key, key_at, kept] = drop;
  const float scale = 1.0f / static_cast<float>(1 - p);
  return {static_cast<DropUse>(use), drop_below(p), scale, key, at<const uint64_t>(key_at), at<uint8_t>(kept)};
}

void sum_rows(const Stream& stream, const BlockRef& block, int dtype, int out_dtype, int64_t dim, Address x,
              int64_t x_stride, int own_use, Address own, int64_t own_stride, int64_t num_own, int64_t heads,
              Address edge_factor, Address index_factor, Address own_factor, Address row_factor, bool mean, Address out,
              int64_t out_stride, Address inverse_count, Address partial, const Drop& drop, Address place,
              Address own_place) {
  run(stream, SumCall{block,
                      static_cast<Dtype>(dtype),
                      static_cast<Dtype>(out_dtype),
                      dim,
                      at(x),
                      x_stride,
                      static_cast<Own>(own_use),
                      at(own),
                      own_stride,
                      num_own,
                      heads,
                      at(edge_factor),
                      at(index_factor),
                      at(own_factor),
                      at(row_factor),
                      mean,
                      at(out),
                      out_stride,
                      at(inverse_count),
                      at(partial),
                      drop_of(drop),
                      at<const int64_t>(place),
                      at<const int64_t>(own_place)});
}

void transpose(const Stream& stream, const BlockRef& block, int64_t num_columns, Address offsets, Address index,
               Address edge, Address scratch, std::size_t scratch_bytes) {
  run(stream, TransposeCall{block, num_columns, at<int64_t>(offsets), at<int64_t>(index), at<int32_t>(edge),
                            at<std::byte>(scratch), scratch_bytes});
}

void spread_rows(const Stream& stream, const BlockRef& block, int dtype, int out_dtype, int64_t dim, int64_t heads,
                 Address x, int64_t x_stride, Address weights, Address own_weights, int64_t num_own, Address out,
                 Address partial) {
  run(stream, SpreadCall{block, static_cast<Dtype>(dtype), static_cast<Dtype>(out_dtype), dim, heads, at(x), x_stride,
                         at(weights), at(own_weights), num_own, at(out), at(partial)});
}

void fold_rows(const Stream& stream, const BlockRef& block, int dtype, int64_t dim, int64_t heads, Address x,
               int64_t x_rows, Address weights, Address own_weights, int64_t num_own, Address out, Address partial) {
  run(stream, FoldCall{block, static_cast<Dtype>(dtype), dim, heads, at(x), x_rows, at(weights), at(own_weights),
                       num_own, at(out), at(partial)});
}

using Rows = std::tuple<Address, int64_t, int64_t>;  // as in HeadRows

HeadRows rows_of(const Rows& rows) { return {at(std::get<0>(rows)), std::get<1>(rows), std::get<2>(rows)}; }

void dot_rows(const Stream& stream, const BlockRef& block, int dtype, int64_t dim, int64_t heads, const Rows& grad,
              const Rows& x, int64_t num_own, Address dots, Address own_dots) {
  run(stream, DotCall{block, static_cast<Dtype>(dtype), dim, heads, rows_of(grad), rows_of(x), num_own, at(dots),
                      at(own_dots)});
}

using Scores = std::tuple<Address, int64_t, Address, int64_t, double>;  // as in EdgeScores

EdgeScores scores_of(const Scores& scores) {
  const auto& [source, source_stride, target, target_stride, slope] = scores;
  return {at(source), source_stride, at(target), target_stride, slope};
}

void attention(const Stream& stream, const BlockRef& block, int dtype, int64_t heads, const Scores& scores,
               int64_t num_own, Address weights, Address own_weights, Address largest, Address sums, Address partial) {
  run(stream, AttentionCall{block, static_cast<Dtype>(dtype), heads, scores_of(scores), num_own, at(weights),
                            at(own_weights), at(largest), at(sums), at(partial)});
}

void attention_grad(const Stream& stream, const BlockRef& block, int dtype, int64_t heads, const Scores& scores,
                    int64_t num_own, Address weights, Address own_weights, Address grads, Address own_grads,
                    Address target_grads, int64_t target_grads_stride, Address sums, Address partial) {
  run(stream, AttentionGradCall{block, static_cast<Dtype>(dtype), heads, scores_of(scores), num_own, at(weights),
                                at(own_weights), at(grads), at(own_grads), at(target_grads), target_grads_stride,
                                at(sums), at(partial)});
}

void drop(const Stream& stream, int dtype, int activation, int64_t size, double p, uint64_t key, Address key_at,
          Address x, Address out) {
  run(stream, DropCall{static_cast<Dtype>(dtype), static_cast<Activation>(activation), size, p, key,
                       at<const uint64_t>(key_at), at(x), at(out)});
}

void drop_grad(const Stream& stream, int dtype, int activation, int64_t size, double p, Address y, Address grad,
               Address out) {
  run(stream,
      DropGradCall{static_cast<Dtype>(dtype), static_cast<Activation>(activation), size, p, at(y), at(grad), at(out)});
}

using Copy = std::tuple<Address, Address, int64_t, int64_t, int64_t>;  // as in ArrayCopy

void copy_arrays(const Stream& stream, const std::vector<Copy>& copies) {
  ArrayCopies calls;
  for (const auto& [from, to, count, room, fill] : copies) {
    if (count > room) {
      throw base::Error({"copy_arrays", "at most " + std::to_string(room) + " elements", std::to_string(count), ""});
    }
    calls.push_back({at<const int64_t>(from), at<int64_t>(to), count, room, fill});
  }
  run(stream, calls);
}

std::size_t scratch_bytes([[maybe_unused]] const Stream& stream, [[maybe_unused]] int64_t num_edges) {
#ifdef COHORT_WITH_CUDA
  if (stream) return transpose_scratch_bytes(num_edges);
#endif
  return 0;
}

void bind_heads(nb::module_& m) {
  m.def("spread_rows", &spread_rows, "stream"_a.none(), "block"_a, "dtype"_a, "out_dtype"_a, "dim"_a, "heads"_a, "x"_a,
        "x_stride"_a, "weights"_a, "own_weights"_a, "num_own"_a, "out"_a, "partial"_a,
        "Sums rows that heads share; see trainer/native/head_rows.h.");
  m.def("fold_rows", &fold_rows, "stream"_a.none(), "block"_a, "dtype"_a, "dim"_a, "heads"_a, "x"_a, "x_rows"_a,
        "weights"_a, "own_weights"_a, "num_own"_a, "out"_a, "partial"_a, "The gradient of shared rows.");
  m.def("dot_rows", &dot_rows, "stream"_a.none(), "block"_a, "dtype"_a, "dim"_a, "heads"_a, "grad"_a, "x"_a,
        "num_own"_a, "dots"_a, "own_dots"_a, "The gradient of the weights of rows.");
  m.def("attention", &attention, "stream"_a.none(), "block"_a, "dtype"_a, "heads"_a, "scores"_a, "num_own"_a,
        "weights"_a, "own_weights"_a, "largest"_a, "sums"_a, "partial"_a,
        "Softmaxes over the edges of rows; see trainer/native/attention.h.");
  m.def("attention_grad", &attention_grad, "stream"_a.none(), "block"_a, "dtype"_a, "heads"_a, "scores"_a, "num_own"_a,
        "weights"_a, "own_weights"_a, "grads"_a, "own_grads"_a, "target_grads"_a, "target_grads_stride"_a, "sums"_a,
        "partial"_a, "Their gradient.");
}

#ifdef COHORT_WITH_CUDA
void product(Address stream, int64_t num_rows, int64_t depth, int64_t width, Address rows, Address weight, Address bias,
             Address out) {
  const nb::gil_scoped_release no_gil;
  run_on_gpu(ProductCall{num_rows, depth, width, at<const float>(rows), at<const float>(weight), at<const float>(bias),
                         at<float>(out)},
             at<CUstream_st>(stream));
}

void product_grad(Address stream, int64_t num_rows, int64_t depth, int64_t width, Address grad, Address rows,
                  Address out, Address column_sums, Address partial) {
  const nb::gil_scoped_release no_gil;
  run_on_gpu(ProductGradCall{num_rows, depth, width, at<const float>(grad), at<const float>(rows), at<float>(out),
                             at<float>(column_sums), at<float>(partial)},
             at<CUstream_st>(stream));
}
#endif

void bind_products(nb::module_& m) {
#ifdef COHORT_WITH_CUDA
  m.def("has_products", &has_products, "Whether the current GPU has what product() and product_grad() need.");
  m.def("product", &product, "stream"_a, "num_rows"_a, "depth"_a, "width"_a, "rows"_a, "weight"_a, "bias"_a, "out"_a,
        "Many rows times a matrix, float32; see trainer/native/product.h.");
  m.def("product_grad", &product_grad, "stream"_a, "num_rows"_a, "depth"_a, "width"_a, "grad"_a, "rows"_a, "out"_a,
        "column_sums"_a, "partial"_a, "The gradient of the matrix, and that of a bias.");
  m.def("num_product_parts", &num_product_parts, "num_rows"_a, "depth"_a, "width"_a,
        "Parts in `partial` of product_grad().");
  m.attr("max_product_depth") = kMaxProductDepth;
#else
  m.def(
      "has_products", [] { return false; }, "Whether the current GPU has what product() needs: no.");
#endif
}

}  // namespace

void bind_layers(nb::module_& m) {
  bind_heads(m);
  bind_products(m);
  nb::class_<BlockRef>(m, "BlockRef", "Edges grouped by row: addresses, see trainer/native/block.h.")
      .def("__init__", [](BlockRef* self, Address offsets, int64_t num_offsets, Address index, Address edge,
                          int64_t num_edges, int64_t num_rows, bool skip_self) {
        new (self) BlockRef(block_of(offsets, num_offsets, index, edge, num_edges, num_rows, skip_self));
      });
  m.def("sum_rows", &sum_rows, "stream"_a.none(), "block"_a, "dtype"_a, "out_dtype"_a, "dim"_a, "x"_a, "x_stride"_a,
        "own_use"_a, "own"_a, "own_stride"_a, "num_own"_a, "heads"_a, "edge_factor"_a, "index_factor"_a, "own_factor"_a,
        "row_factor"_a, "mean"_a, "out"_a, "out_stride"_a, "inverse_count"_a, "partial"_a, "drop"_a, "place"_a,
        "own_place"_a,
        "Gathers and sums rows; see trainer/native/sum_rows.h. `stream`: torch's, None on the CPU; arrays: addresses.");
  m.def("transpose", &transpose, "stream"_a.none(), "block"_a, "num_columns"_a, "offsets"_a, "index"_a, "edge"_a,
        "scratch"_a, "scratch_bytes"_a, "Exchanges rows and columns; see trainer/native/transpose.h.");
  m.def("drop", &drop, "stream"_a.none(), "dtype"_a, "activation"_a, "size"_a, "p"_a, "key"_a, "key_at"_a, "x"_a,
        "out"_a, "Activation and dropout; see trainer/native/activation.h.");
  m.def("drop_grad", &drop_grad, "stream"_a.none(), "dtype"_a, "activation"_a, "size"_a, "p"_a, "y"_a, "grad"_a,
        "out"_a, "Their gradient.");
  m.def("copy_arrays", &copy_arrays, "stream"_a.none(), "copies"_a,
        "Several arrays at once, (from, to, count, room, fill); see trainer/native/copy_arrays.h.");
  m.def("transpose_scratch_bytes", &scratch_bytes, "stream"_a.none(), "num_edges"_a,
        "How much scratch memory a transposition needs.");
  m.def("max_pieces", &max_pieces, "num_edges"_a, "How many pieces of long rows a reduction may have.");
}

}  // namespace cohort::trainer
