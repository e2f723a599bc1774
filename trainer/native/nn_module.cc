#include "trainer/native/nn_module.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/check.h"
#ifdef COHORT_WITH_CUDA
#include "base/host_table.h"
#endif
#include "trainer/native/activation_element.h"
#include "trainer/native/attention.h"
#include "trainer/native/copy_arrays.h"
#include "trainer/native/head_rows.h"
#include "trainer/native/learned_rows.h"
#include "trainer/native/placed_scores.h"
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
  if (!stream) {
    if constexpr (requires { run_on_host(call); }) return run_on_host(call);
    throw base::Error({"layer", "tensors on a GPU", "tensors on the CPU", ""});
  }
#ifdef COHORT_WITH_CUDA
  run_on_gpu(call, at<CUstream_st>(*stream));
#else
  throw base::Error({"layer", "tensors on the CPU", "tensors on a GPU", "this build has no CUDA bodies"});
#endif
}

// What Python gives for a field: an address for a pointer, a number for an enum.
template <typename T>
using Given = std::conditional_t<std::is_pointer_v<T>, Address, std::conditional_t<std::is_enum_v<T>, int, T>>;

template <typename T>
T taken(const Given<T>& given) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(given);
  } else {
    return static_cast<T>(given);
  }
}

template <typename Struct, typename T>
struct Field {
  const char* name;
  T Struct::*member;
};

#define FIELD(Struct, name) \
  Field { #name, &Struct::name }

// The class `name` with a constructor of keywords.
template <typename Struct, typename... T>
void bind_struct(nb::module_& m, const char* name, const char* doc, Field<Struct, T>... fields) {
  const auto init = [fields...](Struct* self, const Given<T>&... given) {
    new (self) Struct{};
    ((self->*fields.member = taken<T>(given)), ...);
  };
  nb::class_<Struct>(m, name, doc).def("__init__", init, nb::kw_only(), nb::arg(fields.name)...);
}

// The function `name` of a stream (torch's; None: the CPU) and, by keyword, the fields of a call.
template <typename Call, typename... T>
void bind_call(nb::module_& m, const char* name, const char* doc, Field<Call, T>... fields) {
  const auto body = [fields...](const Stream& stream, const Given<T>&... given) {
    Call call;
    ((call.*fields.member = taken<T>(given)), ...);
    run(stream, call);
  };
  m.def(name, body, "stream"_a.none(), nb::kw_only(), nb::arg(fields.name)..., doc);
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
  bind_struct(m, "HeadRows", "Rows of heads; see trainer/native/head_rows.h.", FIELD(HeadRows, data),
              FIELD(HeadRows, row_stride), FIELD(HeadRows, head_stride));
  bind_struct(m, "EdgeScores", "Scores of edges; see trainer/native/attention.h.", FIELD(EdgeScores, source),
              FIELD(EdgeScores, source_stride), FIELD(EdgeScores, target), FIELD(EdgeScores, target_stride),
              FIELD(EdgeScores, slope), FIELD(EdgeScores, edge), FIELD(EdgeScores, own_edge));
  bind_call(m, "spread_rows", "Sums rows that heads share; see trainer/native/head_rows.h.", FIELD(SpreadCall, block),
            FIELD(SpreadCall, dtype), FIELD(SpreadCall, out_dtype), FIELD(SpreadCall, dim), FIELD(SpreadCall, heads),
            FIELD(SpreadCall, x), FIELD(SpreadCall, x_stride), FIELD(SpreadCall, weights),
            FIELD(SpreadCall, own_weights), FIELD(SpreadCall, num_own), FIELD(SpreadCall, first_row),
            FIELD(SpreadCall, out), FIELD(SpreadCall, partial));
  bind_call(m, "fold_rows", "The gradient of shared rows.", FIELD(FoldCall, block), FIELD(FoldCall, dtype),
            FIELD(FoldCall, dim), FIELD(FoldCall, heads), FIELD(FoldCall, x), FIELD(FoldCall, x_rows),
            FIELD(FoldCall, weights), FIELD(FoldCall, own_weights), FIELD(FoldCall, num_own), FIELD(FoldCall, out),
            FIELD(FoldCall, partial));
  bind_call(m, "dot_rows", "The gradient of the weights of rows.", FIELD(DotCall, block), FIELD(DotCall, dtype),
            FIELD(DotCall, grad_dtype), FIELD(DotCall, dim), FIELD(DotCall, heads), FIELD(DotCall, grad),
            FIELD(DotCall, x), FIELD(DotCall, num_own), FIELD(DotCall, first_row), FIELD(DotCall, dots),
            FIELD(DotCall, own_dots));
  bind_call(m, "attention", "Softmaxes over the edges of rows; see trainer/native/attention.h.",
            FIELD(AttentionCall, block), FIELD(AttentionCall, dtype), FIELD(AttentionCall, dim),
            FIELD(AttentionCall, scores), FIELD(AttentionCall, num_own), FIELD(AttentionCall, weights),
            FIELD(AttentionCall, own_weights), FIELD(AttentionCall, largest), FIELD(AttentionCall, sums),
            FIELD(AttentionCall, partial));
  bind_call(m, "attention_grad", "Their gradient.", FIELD(AttentionGradCall, block), FIELD(AttentionGradCall, dtype),
            FIELD(AttentionGradCall, dim), FIELD(AttentionGradCall, scores), FIELD(AttentionGradCall, num_own),
            FIELD(AttentionGradCall, weights), FIELD(AttentionGradCall, own_weights), FIELD(AttentionGradCall, grads),
            FIELD(AttentionGradCall, own_grads), FIELD(AttentionGradCall, target_grads),
            FIELD(AttentionGradCall, target_grads_stride), FIELD(AttentionGradCall, sums),
            FIELD(AttentionGradCall, partial));
}

void bind_placed_scores(nb::module_& m) {
  bind_call(m, "placed_scores", "Rows of 16 bits times a few vectors; see trainer/native/placed_scores.h.",
            FIELD(PlacedScoresCall, dtype), FIELD(PlacedScoresCall, count), FIELD(PlacedScoresCall, dim),
            FIELD(PlacedScoresCall, width), FIELD(PlacedScoresCall, rows), FIELD(PlacedScoresCall, place),
            FIELD(PlacedScoresCall, vectors), FIELD(PlacedScoresCall, out));
  bind_call(m, "placed_scores_grad", "The gradient of the vectors.", FIELD(PlacedScoresGradCall, dtype),
            FIELD(PlacedScoresGradCall, count), FIELD(PlacedScoresGradCall, dim), FIELD(PlacedScoresGradCall, width),
            FIELD(PlacedScoresGradCall, parts), FIELD(PlacedScoresGradCall, rows), FIELD(PlacedScoresGradCall, place),
            FIELD(PlacedScoresGradCall, grad), FIELD(PlacedScoresGradCall, partial));
  m.attr("most_scores") = kMostScores;
  m.attr("score_rows") = kScoreRows;
  m.attr("score_columns") = kScoreColumns;
  m.def("num_score_parts", &num_score_parts, "count"_a, "dim"_a, "Parts in `partial` of placed_scores_grad().");
}

void bind_products(nb::module_& m) {
#ifdef COHORT_WITH_CUDA
  m.def("has_products", &has_products, "Whether the current GPU has what product() and product_grad() need.");
  bind_call(m, "product", "Many rows times a matrix, float32; see trainer/native/product.h.",
            FIELD(ProductCall, num_rows), FIELD(ProductCall, depth), FIELD(ProductCall, width),
            FIELD(ProductCall, rows), FIELD(ProductCall, weight), FIELD(ProductCall, bias), FIELD(ProductCall, out));
  bind_call(m, "product_grad", "The gradient of the matrix, and that of a bias.", FIELD(ProductGradCall, num_rows),
            FIELD(ProductGradCall, depth), FIELD(ProductGradCall, width), FIELD(ProductGradCall, grad),
            FIELD(ProductGradCall, rows), FIELD(ProductGradCall, out), FIELD(ProductGradCall, column_sums),
            FIELD(ProductGradCall, partial));
  m.def("num_product_parts", &num_product_parts, "num_rows"_a, "depth"_a, "width"_a,
        "Parts in `partial` of product_grad().");
  m.attr("max_product_depth") = kMaxProductDepth;
#else
  m.def(
      "has_products", [] { return false; }, "Whether the current GPU has what product() needs: no.");
#endif
}

void bind_rows(nb::module_& m) {
  bind_struct(m, "BlockRef", "Edges grouped by row: addresses, see trainer/native/block.h.", FIELD(BlockRef, offsets),
              FIELD(BlockRef, num_offsets), FIELD(BlockRef, index), FIELD(BlockRef, edge), FIELD(BlockRef, num_edges),
              FIELD(BlockRef, num_rows), FIELD(BlockRef, skip_self));
  nb::class_<RowDrop>(m, "RowDrop", "ReLU and dropout; see trainer/native/sum_rows.h.")
      .def(
          "__init__",
          [](RowDrop* self, int use, double p, uint64_t key, Address key_at, Address kept) {
            new (self) RowDrop{.use = static_cast<DropUse>(use),
                               .below = drop_below(p),
                               .scale = 1.0f / static_cast<float>(1 - p),
                               .key = key,
                               .key_at = at<const uint64_t>(key_at),
                               .kept = at<uint8_t>(kept)};
          },
          nb::kw_only(), "use"_a, "p"_a, "key"_a, "key_at"_a, "kept"_a);
  bind_call(
      m, "sum_rows",
      "Gathers and sums rows; see trainer/native/sum_rows.h. `stream`: torch's, None on the CPU; arrays: addresses.",
      FIELD(SumCall, block), FIELD(SumCall, dtype), FIELD(SumCall, out_dtype), FIELD(SumCall, dim), FIELD(SumCall, x),
      FIELD(SumCall, x_stride), FIELD(SumCall, own_use), FIELD(SumCall, own), FIELD(SumCall, own_stride),
      FIELD(SumCall, num_own), FIELD(SumCall, heads), FIELD(SumCall, edge_factor), FIELD(SumCall, index_factor),
      FIELD(SumCall, own_factor), FIELD(SumCall, row_factor), FIELD(SumCall, mean), FIELD(SumCall, out),
      FIELD(SumCall, out_stride), FIELD(SumCall, inverse_count), FIELD(SumCall, partial), FIELD(SumCall, drop),
      FIELD(SumCall, place), FIELD(SumCall, own_place));
  bind_call(m, "transpose", "Exchanges rows and columns; see trainer/native/transpose.h.", FIELD(TransposeCall, block),
            FIELD(TransposeCall, num_columns), FIELD(TransposeCall, offsets), FIELD(TransposeCall, index),
            FIELD(TransposeCall, edge), FIELD(TransposeCall, scratch), FIELD(TransposeCall, scratch_bytes));
  bind_call(m, "drop", "Activation and dropout; see trainer/native/activation.h.", FIELD(DropCall, dtype),
            FIELD(DropCall, activation), FIELD(DropCall, size), FIELD(DropCall, p), FIELD(DropCall, key),
            FIELD(DropCall, key_at), FIELD(DropCall, x), FIELD(DropCall, out));
  bind_call(m, "drop_grad", "Their gradient.", FIELD(DropGradCall, dtype), FIELD(DropGradCall, activation),
            FIELD(DropGradCall, size), FIELD(DropGradCall, p), FIELD(DropGradCall, y), FIELD(DropGradCall, grad),
            FIELD(DropGradCall, out));
}

void bind_learned(nb::module_& m) {
  bind_struct(m, "LearnedRows", "A table of learned rows; see trainer/native/learned_rows.h.", FIELD(LearnedRows, rows),
              FIELD(LearnedRows, hot), FIELD(LearnedRows, hot_bits), FIELD(LearnedRows, hot_before));
  bind_struct(m, "ChangedRows", "Rows on their way to a table.", FIELD(ChangedRows, count), FIELD(ChangedRows, ids),
              FIELD(ChangedRows, place), FIELD(ChangedRows, rows));
  bind_call(m, "take_rows", "Rows of a table by id.", FIELD(TakeRowsCall, table), FIELD(TakeRowsCall, changed),
            FIELD(TakeRowsCall, num_rows), FIELD(TakeRowsCall, dim), FIELD(TakeRowsCall, count),
            FIELD(TakeRowsCall, ids), FIELD(TakeRowsCall, place), FIELD(TakeRowsCall, out), FIELD(TakeRowsCall, bad));
  bind_call(m, "update_rows", "A step of an optimizer on rows of a table.", FIELD(UpdateRowsCall, rule),
            FIELD(UpdateRowsCall, table), FIELD(UpdateRowsCall, first), FIELD(UpdateRowsCall, second),
            FIELD(UpdateRowsCall, num_rows), FIELD(UpdateRowsCall, dim), FIELD(UpdateRowsCall, count),
            FIELD(UpdateRowsCall, ids), FIELD(UpdateRowsCall, place), FIELD(UpdateRowsCall, grads),
            FIELD(UpdateRowsCall, before), FIELD(UpdateRowsCall, changed), FIELD(UpdateRowsCall, rate),
            FIELD(UpdateRowsCall, eps), FIELD(UpdateRowsCall, weight_decay), FIELD(UpdateRowsCall, share1),
            FIELD(UpdateRowsCall, share2));
  bind_call(m, "put_rows", "Changed rows go to a table.", FIELD(PutRowsCall, table), FIELD(PutRowsCall, num_rows),
            FIELD(PutRowsCall, dim), FIELD(PutRowsCall, changed));
#ifdef COHORT_WITH_CUDA
  nb::class_<base::HostTable>(m, "HostTable", "Host memory that GPUs read and write in place; see base/host_table.h.")
      .def(nb::init<std::size_t>(), "bytes"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("open_to_gpu", &base::HostTable::open_to_gpu, "After the first writing, before the current GPU reads it.")
      .def(
          "array",
          [](nb::handle self) {
            const auto& table = nb::cast<base::HostTable&>(self);
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(table.data(), {table.bytes()}, self);
          },
          "uint8 [bytes], the memory itself.");
#endif
}

void bind_enums(nb::module_& m) {
  const auto number = [&](const char* name, auto value) { m.attr(name) = static_cast<int>(value); };
  number("FLOAT32", Dtype::kFloat32);
  number("BFLOAT16", Dtype::kBfloat16);
  number("FLOAT16", Dtype::kFloat16);
  number("FLOAT64", Dtype::kFloat64);
  number("NO_OWN", Own::kNone);
  number("ADD_OWN", Own::kAdd);
  number("OWN_BESIDE", Own::kBeside);
  number("NO_DROP", DropUse::kNone);
  number("DROP_IN", DropUse::kIn);
  number("DROP_BACK", DropUse::kBack);
  number("RELU", Activation::kRelu);
  number("ELU", Activation::kElu);
  number("ADAGRAD", RowRule::kAdagrad);
  number("ADAM", RowRule::kAdam);
}

#undef FIELD

}  // namespace

void bind_layers(nb::module_& m) {
  bind_enums(m);
  bind_rows(m);
  bind_heads(m);
  bind_placed_scores(m);
  bind_products(m);
  bind_learned(m);
  m.def("copy_arrays", &copy_arrays, "stream"_a.none(), "copies"_a,
        "Several arrays at once, (from, to, count, room, fill); see trainer/native/copy_arrays.h.");
  m.def("transpose_scratch_bytes", &scratch_bytes, "stream"_a.none(), "num_edges"_a,
        "How much scratch memory a transposition needs.");
  m.def("max_pieces", &max_pieces, "num_edges"_a, "How many pieces of long rows a reduction may have.");
}

}  // namespace cohort::trainer
