// cohort.ibp._native: the C++ API for Python, on anything with DLPack. GPU calls take addresses, so that no array
// protocol comes between the caller's stream and ours.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <omp.h>
#include <pthread.h>

#include "base/check.h"
#include "base/nanobind_errors.h"
#include "base/with_cuda.h"
#include "ibp/codecs.h"
#include "ibp/fit.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"
#include "ibp/writable.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::ibp {

void bind_gpu(nb::module_& module);  // native_gpu.cc, in builds with CUDA

namespace {

using base::Error;
using InArray = nb::ndarray<nb::ro>;
using OutArray = nb::ndarray<>;
using Index = nb::ndarray<nb::ro, int64_t, nb::ndim<1>>;

// Our name for an array's dtype: floats by kind, all else by size.
Dtype dtype_of(nb::dlpack::dtype dtype) {
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (dtype.lanes == 1) {
    if (code == nb::dlpack::dtype_code::Bfloat && dtype.bits == 16) return Dtype::kBfloat16;
    if (code == nb::dlpack::dtype_code::Float && dtype.bits == 16) return Dtype::kFloat16;
    if (code == nb::dlpack::dtype_code::Float && dtype.bits == 32) return Dtype::kFloat32;
    if (dtype.bits == 8) return Dtype::kUint8;
    if (dtype.bits == 32) return Dtype::kBits32;
    if (dtype.bits == 64) return Dtype::kBits64;
  }
  throw Error({"rows: dtype", "1, 4 or 8-byte elements, float16 or bfloat16", std::to_string(dtype.bits) + " bits",
               "view the rows as one of these"});
}

template <typename Array>
void check_contiguous(const Array& array, const char* place) {
  int64_t step = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.size() > 0 && array.stride(i) != step) {
      throw Error({place, "a C-contiguous array",
                   "stride " + std::to_string(array.stride(i)) + " of dimension " + std::to_string(i),
                   "call .contiguous() or numpy.ascontiguousarray"});
    }
    step *= static_cast<int64_t>(array.shape(i));
  }
}

template <typename Array>
void check_on_host(const Array& array, const char* place) {
  if (array.device_type() == nb::device::cpu::value || array.device_type() == nb::device::cuda_host::value) return;
  throw Error({place, "an array in host memory", "an array in GPU memory", "call .cpu()"});
}

RowTable table_of(const InArray& rows) {
  if (rows.ndim() != 2) {
    throw Error({"rows: shape", "[rows, columns]", std::to_string(rows.ndim()) + " dimensions", ""});
  }
  check_on_host(rows, "rows");
  check_contiguous(rows, "rows");
  if (rows.shape(1) > kMaxRowBytes) {
    throw Error({"rows: row width", "at most 65536 bytes", std::to_string(rows.shape(1)) + " columns",
                 "split wider rows into column groups"});
  }
  return {rows.data(), static_cast<int64_t>(rows.shape(0)), dtype_of(rows.dtype()),
          static_cast<uint32_t>(rows.shape(1))};
}

nb::dict to_dict(const Candidate& candidate) {
  nb::dict out;
  out["codec"] = name_of(candidate.profile.codec);
  out["bytes_per_row"] = candidate.bytes_per_row;
  out["stored_per_row"] = candidate.stored_per_row;
  out["lines_per_row"] = candidate.lines_per_row;
  out["raw_share"] = candidate.raw_share;
  return out;
}

nb::tuple fit_rows(const InArray& rows, const FitOptions& options) {
  const RowTable table = table_of(rows);
  Fit result;
  {
    const nb::gil_scoped_release release;
    result = fit(table, options);
  }
  nb::list candidates;
  for (const Candidate& candidate : result.candidates) candidates.append(to_dict(candidate));
  return nb::make_tuple(result.profile, result.why, result.sample_rows, candidates);
}

// Where rows of this dtype go: checked for room before anything is written.
void* check_out(const OutArray& out, int64_t num_rows, uint32_t num_columns, Dtype dtype) {
  check_on_host(out, "out");
  check_contiguous(out, "out");
  const auto bytes = static_cast<int64_t>(out.nbytes());
  const int64_t wanted = num_rows * int64_t{num_columns} * element_bytes(dtype);
  const bool same = num_rows == 0 || element_bytes(dtype_of(out.dtype())) == element_bytes(dtype);
  if (bytes == wanted && same) return out.data();
  throw Error({"out", std::to_string(wanted) + " bytes of " + name_of(dtype), std::to_string(bytes) + " bytes",
               "out has the shape [index, columns] and the rows' dtype"});
}

std::span<const int64_t> index_of(const Index& index) {
  check_on_host(index, "index");
  check_contiguous(index, "index");
  return {static_cast<const int64_t*>(index.data()), index.shape(0)};
}

void* check_out(const OutArray& out, int64_t num_rows, const Profile& profile) {
  return check_out(out, num_rows, profile.num_columns, profile.dtype);
}

void fetch_rows(const EncodedRows& encoded, const Index& index, const OutArray& out, bool plane_a, bool bfloat16) {
  const std::span<const int64_t> ids = index_of(index);
  const Dtype dtype = bfloat16 ? Dtype::kBfloat16 : encoded.profile.dtype;
  void* to = check_out(out, static_cast<int64_t>(ids.size()), encoded.profile.num_columns, dtype);
  const nb::gil_scoped_release release;
  if (bfloat16) return fetch_bfloat16(encoded, ids, static_cast<uint16_t*>(to));
  fetch(plane_a ? plane_a_of(encoded) : encoded, ids, to);
}

// int64 [n]: the rows that fit() would look at.
nb::ndarray<nb::numpy, int64_t, nb::ndim<1>> sampled_rows(int64_t num_rows, double sample, int64_t min_sample,
                                                          uint64_t seed) {
  auto* rows =
      new std::vector<int64_t>(sample_rows(num_rows, {.sample = sample, .min_sample = min_sample, .seed = seed}));
  const nb::capsule owner(rows, [](void* gone) noexcept { delete static_cast<std::vector<int64_t>*>(gone); });
  return {rows->data(), {rows->size()}, owner};
}

// (entries uint64 [n], data uint8 [bytes]): arrays that own what they show.
nb::tuple take_rows(const EncodedRows& encoded, const nb::ndarray<nb::ro, int64_t, nb::ndim<1>>& index) {
  check_on_host(index, "index");
  check_contiguous(index, "index");
  auto stored = std::make_unique<StoredRows>();
  {
    const nb::gil_scoped_release release;
    *stored = take(encoded, std::span(static_cast<const int64_t*>(index.data()), index.shape(0)));
  }
  StoredRows* const rows = stored.release();
  const nb::capsule owner(rows, [](void* gone) noexcept { delete static_cast<StoredRows*>(gone); });
  return nb::make_tuple(
      nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>(rows->entries.data(), {rows->entries.size()}, owner),
      nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(rows->data.data(), {rows->data.size()}, owner));
}

void decode_stored_rows(const Profile& profile, const nb::ndarray<nb::ro, uint64_t, nb::ndim<1>>& entries,
                        const nb::ndarray<nb::ro, uint8_t, nb::ndim<1>>& data, const OutArray& out) {
  check_on_host(data, "data");
  check_contiguous(data, "data");
  check_contiguous(entries, "entries");
  void* to = check_out(out, static_cast<int64_t>(entries.shape(0)), profile);
  const nb::gil_scoped_release release;
  decode_stored(profile, std::span(static_cast<const uint64_t*>(entries.data()), entries.shape(0)),
                std::span(static_cast<const std::byte*>(static_cast<const void*>(data.data())), data.shape(0)), to);
}

void decode_rows(const EncodedRows& encoded, const OutArray& out) {
  void* to = check_out(out, encoded.ref.num_rows, encoded.profile);
  const nb::gil_scoped_release release;
  decode(encoded, to);
}

void bind_profile(nb::module_& module) {
  nb::class_<Profile>(module, "Profile")
      .def_prop_ro("codec", [](const Profile& profile) { return name_of(profile.codec); })
      .def_prop_ro("dtype", [](const Profile& profile) { return name_of(profile.dtype); })
      .def_prop_ro("row_bytes", &Profile::row_bytes)
      .def_ro("num_columns", &Profile::num_columns)
      .def_ro("slot_bytes", &Profile::slot_bytes)
      .def_ro("mantissa_bits", &Profile::mantissa_bits)
      .def_prop_ro("error_bound", &Profile::error_bound)
      .def("save", [](const Profile& profile, const std::string& path) { save(profile, path); })
      .def_static("load", &load_profile)
      .def("__getstate__",
           [](const Profile& profile) {
             const std::vector<std::byte> bytes = to_bytes(profile);
             return nb::bytes(bytes.data(), bytes.size());
           })
      .def("__setstate__",
           [](Profile& profile, const nb::bytes& bytes) {
             const auto* data = static_cast<const std::byte*>(bytes.data());
             new (&profile) Profile(profile_from(std::span(data, bytes.size()), "a pickled profile"));
           })
      .def(
          "__eq__", [](const Profile& a, const Profile& b) { return a == b; }, nb::is_operator(),
          nb::sig("def __eq__(self, other: object, /) -> bool"));
}

void bind_rows(nb::module_& module) {
  nb::class_<EncodedRows>(module, "EncodedRows")
      .def_ro("profile", &EncodedRows::profile)
      .def_prop_ro("num_rows", [](const EncodedRows& rows) { return rows.ref.num_rows; })
      .def_prop_ro("layout", [](const EncodedRows& rows) { return name_of(rows.ref.layout); })
      .def_prop_ro("stored_bytes", &EncodedRows::stored_bytes)
      .def(
          "save", [](const EncodedRows& rows, const std::string& path) { save(rows, path); },
          nb::call_guard<nb::gil_scoped_release>());
  nb::class_<WritableRows>(module, "WritableRows")
      .def(nb::init<const EncodedRows&>(), nb::call_guard<nb::gil_scoped_release>())
      .def(nb::init<const Profile&, int64_t, uint32_t>(), "profile"_a, "num_rows"_a, "slot_bytes"_a)
      .def_prop_ro("rows", &WritableRows::rows, nb::rv_policy::reference_internal)
      .def("put", [](WritableRows& self, const Index& ids, const InArray& rows) {
        const std::span<const int64_t> of_rows = index_of(ids);
        const RowTable table = table_of(rows);
        const nb::gil_scoped_release release;
        self.put(of_rows, table);
      });
  nb::class_<FileWriter>(module, "FileWriter")
      .def("__init__",
           [](FileWriter* self, std::string path, const Profile& profile, const std::string& layout,
              uint32_t slot_bytes, int64_t num_rows) {
             EncodeOptions options = encode_options(layout, slot_bytes);
             options.num_rows = num_rows;
             new (self) FileWriter(std::move(path), profile, options);
           })
      .def("append",
           [](FileWriter& self, const InArray& rows) {
             const RowTable table = table_of(rows);
             const nb::gil_scoped_release release;
             self.append(table);
           })
      .def("finish", &FileWriter::finish, nb::call_guard<nb::gil_scoped_release>());
}

void bind_functions(nb::module_& module) {
  module.def("fit", [](const InArray& rows, std::string codec, double sample, int64_t min_sample, uint32_t chunk_bytes,
                       uint32_t threshold_percent, uint64_t seed, uint32_t mantissa_bits) {
    return fit_rows(rows, {std::move(codec), sample, min_sample, chunk_bytes, threshold_percent, seed, mantissa_bits});
  });
  module.def("sample_rows", &sampled_rows);
  module.def("encode", [](const InArray& rows, const Profile& profile, const std::string& layout, uint32_t slot_bytes) {
    const RowTable table = table_of(rows);
    const nb::gil_scoped_release release;
    return encode(table, profile, encode_options(layout, slot_bytes));
  });
  module.def("encode_in_place", [](const OutArray& rows, const Profile& profile) {
    const RowTable table = table_of(InArray(rows));
    const nb::gil_scoped_release release;
    return encode_in_place(table, profile);
  });
  module.def("fetch", &fetch_rows);
  module.def("decode", &decode_rows);
  module.def("take", &take_rows);
  module.def("decode_stored", &decode_stored_rows);
  module.def("bound", [](const Profile& profile, int64_t num_rows, const std::string& layout, uint32_t slot_bytes) {
    return bound(profile, num_rows, encode_options(layout, slot_bytes));
  });
  module.def("load", [](const std::string& path, bool verify) {
    const nb::gil_scoped_release release;
    return load(path, verify);
  });
  module.def("mean_row_bytes",
             [](const InArray& rows, const Profile& profile) { return mean_row_bytes(table_of(rows), profile); });
}

// A forked process, of a DataLoader's workers say, has none of the threads that OpenMP keeps between parallel regions,
// and would wait for them in its first one: they end before a fork, and start again in each process that needs them.
void end_threads_before_forks() {
  static const int failed = pthread_atfork([] { omp_pause_resource_all(omp_pause_soft); }, nullptr, nullptr);
  base::require(failed == 0, "pthread_atfork");
}

}  // namespace

}  // namespace cohort::ibp

NB_MODULE(_native, module) {
  cohort::base::raise_errors_as_cohort_error();
  cohort::ibp::end_threads_before_forks();
  cohort::ibp::bind_profile(module);
  cohort::ibp::bind_rows(module);
  cohort::ibp::bind_functions(module);
#ifdef COHORT_WITH_CUDA
  cohort::ibp::bind_gpu(module);
#endif
  module.attr("with_cuda") = cohort::base::kWithCuda;
  nanobind::list codecs;
  for (const cohort::ibp::Codec codec : cohort::ibp::kCodecs) codecs.append(cohort::ibp::name_of(codec));
  module.attr("CODECS") = nanobind::tuple(codecs);
}
