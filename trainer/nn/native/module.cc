// cohort.nn._native: the kernels of the layers, which take addresses of torch's memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/nanobind_errors.h"
#ifdef COHORT_WITH_CUDA
#include "base/host_table.h"
#endif
#include "trainer/nn/native/activation_element.h"
#include "trainer/nn/native/attention.h"
#include "trainer/nn/native/copy_arrays.h"
#include "trainer/nn/native/gather_rows.h"
#include "trainer/nn/native/head_rows.h"
#include "trainer/nn/native/indexed_scores.h"
#include "trainer/nn/native/joined_rows.h"
#include "trainer/nn/native/learned_rows.h"
#include "trainer/nn/native/max_rows.h"
#include "trainer/nn/native/product.h"
#include "trainer/nn/native/sum_rows.h"
#include "trainer/nn/native/totals.h"
#include "trainer/nn/native/transpose.h"

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

// FIELDS(Struct, a, b, ...): the Field of each; EXPAND() looks for macros in what macros gave, as often as there may be
// fields.
#define EXPAND(...) EXPAND_9(EXPAND_9(EXPAND_9(EXPAND_9(__VA_ARGS__))))
#define EXPAND_9(...) EXPAND_3(EXPAND_3(EXPAND_3(__VA_ARGS__)))
#define EXPAND_3(...) EXPAND_1(EXPAND_1(EXPAND_1(__VA_ARGS__)))
#define EXPAND_1(...) __VA_ARGS__
#define NOTHING
#define NEXT_FIELDS() FIELD_AND_NEXT
#define FIELD_AND_NEXT(Struct, name, ...) \
  Field{#name, &Struct::name} __VA_OPT__(, NEXT_FIELDS NOTHING()(Struct, __VA_ARGS__))
#define FIELDS(...) EXPAND(FIELD_AND_NEXT(__VA_ARGS__))

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

void totals(const Stream& stream, int dtype, int64_t size, int64_t columns, const std::vector<Address>& parts,
            Address bias, Address out) {
  TotalsCall call{.dtype = static_cast<Dtype>(dtype), .size = size, .columns = columns};
  if (parts.empty() || parts.size() > kMostParts) {
    throw base::Error({"totals", "1 to " + std::to_string(kMostParts) + " arrays", std::to_string(parts.size()), ""});
  }
  for (const Address part : parts) call.parts[static_cast<std::size_t>(call.num_parts++)] = at(part);
  call.bias = at(bias), call.out = at(out);
  run(stream, call);
}

std::size_t scratch_bytes([[maybe_unused]] const Stream& stream, [[maybe_unused]] int64_t num_edges) {
#ifdef COHORT_WITH_CUDA
  if (stream) return transpose_scratch_bytes(num_edges);
#endif
  return 0;
}

void bind_heads(nb::module_& m) {
  bind_struct(m, "HeadRows", "Rows of heads; see trainer/nn/native/head_rows.h.",
              FIELDS(HeadRows, data, row_stride, head_stride));
  bind_struct(m, "Bend", "What products of rows become; see trainer/nn/native/head_rows.h.",
              FIELDS(Bend, att, edge, own_edge, slope));
  bind_struct(m, "EdgeScores", "Scores of edges; see trainer/nn/native/attention.h.",
              FIELDS(EdgeScores, source, source_stride, target, target_stride, slope, edge, own_edge));
  bind_call(m, "spread_rows", "Sums rows that heads share; see trainer/nn/native/head_rows.h.",
            FIELDS(SpreadCall, block, dtype, out_dtype, dim, heads, x, x_stride, weights, own_weights, num_own,
                   first_row, out, partial));
  bind_call(m, "fold_rows", "The gradient of shared rows.",
            FIELDS(FoldCall, block, dtype, dim, heads, x, x_rows, weights, own_weights, num_own, out, partial));
  bind_call(m, "dot_rows", "The gradient of the weights of rows.",
            FIELDS(DotCall, block, dtype, grad_dtype, dim, heads, grad, x, num_own, first_row, dots, own_dots, bend));
  bind_call(m, "attention", "Softmaxes over the edges of rows; see trainer/nn/native/attention.h.",
            FIELDS(AttentionCall, block, dtype, dim, scores, num_own, weights, own_weights, largest, sums, partial));
  bind_call(m, "attention_grad", "Their gradient.",
            FIELDS(AttentionGradCall, block, dtype, dim, scores, num_own, weights, own_weights, grads, own_grads,
                   target_grads, target_grads_stride, sums, partial));
}

void bind_joined(nb::module_& m) {
  bind_call(m, "joined_rows", "Sums of leaky_relu over edges, or its slopes; see trainer/nn/native/joined_rows.h.",
            FIELDS(JoinedCall, block, dtype, dim, heads, own, own_stride, x, x_stride, edge, own_edge, slope, num_own,
                   factor, own_factor, scale, other, other_stride, slopes, bent, edge_grads, own_edge_grads, partial));
  bind_call(m, "max_rows", "The largest rows of edges; see trainer/nn/native/max_rows.h.",
            FIELDS(MaxCall, block, dtype, dim, x, x_stride, out, ties, partial));
  bind_call(m, "max_rows_grad", "Their gradient.",
            FIELDS(MaxGradCall, block, dtype, dim, x, x_stride, largest, shares, out, partial));
}

void bind_indexed_scores(nb::module_& m) {
  bind_call(m, "indexed_scores", "Rows of 16 bits times a few vectors; see trainer/nn/native/indexed_scores.h.",
            FIELDS(IndexedScoresCall, dtype, count, dim, width, rows, row_index, vectors, out));
  bind_call(m, "indexed_scores_grad", "The gradient of the vectors.",
            FIELDS(IndexedScoresGradCall, dtype, count, dim, width, parts, rows, row_index, grad, partial));
  m.attr("most_scores") = kMostScores;
  m.attr("score_rows") = kScoreRows;
  m.attr("score_columns") = kScoreColumns;
  m.def("num_score_parts", &num_score_parts, "count"_a, "dim"_a, "Parts in `partial` of indexed_scores_grad().");
}

void bind_products(nb::module_& m) {
#ifdef COHORT_WITH_CUDA
  m.def("has_products", &has_products, "Whether the current GPU has what product() and product_grad() need.");
  bind_call(m, "product", "Many rows times a matrix, float32; see trainer/nn/native/product.h.",
            FIELDS(ProductCall, num_rows, depth, width, rows, weight, bias, out));
  bind_call(m, "product_grad", "The gradient of the matrix, and that of a bias.",
            FIELDS(ProductGradCall, num_rows, depth, width, grad, rows, out, column_sums, partial));
  m.def("num_product_parts", &num_product_parts, "num_rows"_a, "depth"_a, "width"_a,
        "Parts in `partial` of product_grad().");
  m.attr("max_product_depth") = kMaxProductDepth;
#else
  m.def(
      "has_products", [] { return false; }, "Whether the current GPU has what product() needs: no.");
#endif
}

// How many rows there are up to the last one with a byte other than 0.
int64_t used_rows(Address rows, int64_t num_rows, int64_t row_bytes, int64_t stride_bytes) {
  const nb::gil_scoped_release no_gil;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(row_bytes));
  const auto is_used = [&](int64_t row) {
    return std::memcmp(at<std::byte>(rows) + row * stride_bytes, zeros.data(), zeros.size()) != 0;
  };
  while (num_rows > 0 && !is_used(num_rows - 1)) --num_rows;
  return num_rows;
}

void bind_rows(nb::module_& m) {
  bind_struct(m, "BlockRef", "Edges grouped by row: addresses, see trainer/nn/native/block.h.",
              FIELDS(BlockRef, offsets, num_offsets, index, edge, num_edges, num_rows, skip_self, own_pieces));
  nb::class_<RowDrop>(m, "RowDrop", "ReLU and dropout; see trainer/nn/native/sum_rows.h.")
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
      "Gathers and sums rows; see trainer/nn/native/sum_rows.h. `stream`: torch's, None on the CPU; arrays: addresses.",
      FIELDS(SumCall, block, dtype, out_dtype, dim, x, x_stride, own_use, own, own_stride, num_own, heads, edge_factor,
             index_factor, own_factor, row_factor, mean, out, out_stride, inverse_count, partial, drop, row_index,
             own_row_index));
  bind_call(m, "gather_rows", "Rows by index; see trainer/nn/native/gather_rows.h.",
            FIELDS(GatherRowsCall, dtype, out_dtype, num_rows, dim, x, x_stride, row_index, out));
  bind_call(m, "transpose", "Exchanges rows and columns; see trainer/nn/native/transpose.h.",
            FIELDS(TransposeCall, block, num_columns, offsets, index, edge, scratch, scratch_bytes));
  bind_call(m, "drop", "Activation and dropout; see trainer/nn/native/activation.h.",
            FIELDS(DropCall, dtype, activation, size, p, key, key_at, x, out));
  bind_call(m, "drop_grad", "Their gradient.", FIELDS(DropGradCall, dtype, activation, size, p, y, grad, out));
}

void bind_learned(nb::module_& m) {
  bind_struct(m, "LearnedRows", "A table of learned rows; see trainer/nn/native/learned_rows.h.",
              FIELDS(LearnedRows, rows, hot, hot_bits, hot_before));
  bind_struct(m, "ChangedRows", "Rows on their way to a table.", FIELDS(ChangedRows, count, ids, row_index, rows));
  bind_call(m, "take_rows", "Rows of a table by id.",
            FIELDS(TakeRowsCall, table, changed, num_rows, dim, count, ids, row_index, out, bad));
  bind_call(m, "update_rows", "A step of an optimizer on rows of a table.",
            FIELDS(UpdateRowsCall, rule, table, first, second, num_rows, dim, count, ids, row_index, grads, before,
                   changed, rate, eps, weight_decay, share1, share2));
  bind_call(m, "put_rows", "Changed rows go to a table.", FIELDS(PutRowsCall, table, num_rows, dim, changed));
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
  number("LEAKY_RELU", Activation::kLeakyRelu);
  number("ADAGRAD", RowRule::kAdagrad);
  number("ADAM", RowRule::kAdam);
}

}  // namespace
}  // namespace cohort::trainer

NB_MODULE(_native, m) {
  using namespace cohort::trainer;
  cohort::base::raise_errors_as_cohort_error();
  bind_enums(m);
  bind_rows(m);
  bind_heads(m);
  bind_joined(m);
  bind_indexed_scores(m);
  bind_products(m);
  bind_learned(m);
  m.def("copy_arrays", &copy_arrays, "stream"_a.none(), "copies"_a,
        "Several arrays at once, (from, to, count, room, fill); see trainer/nn/native/copy_arrays.h.");
  m.def("totals", &totals, "stream"_a.none(), nb::kw_only(), "dtype"_a, "size"_a, "columns"_a, "parts"_a, "bias"_a,
        "out"_a, "Sums of arrays, element by element; see trainer/nn/native/totals.h.");
  m.attr("MOST_PARTS") = kMostParts;
  m.def("transpose_scratch_bytes", &scratch_bytes, "stream"_a.none(), "num_edges"_a,
        "How much scratch memory a transposition needs.");
  m.def("used_rows", &used_rows, "rows"_a, "num_rows"_a, "row_bytes"_a, "stride_bytes"_a,
        "How many rows in memory of the CPU there are up to the last one with a byte other than 0.");
  m.def("max_pieces", &max_pieces, "num_edges"_a, "How many pieces of long rows a reduction may have.");
}
