// The GPU's part of cohort.ibp._native: arrays in GPU memory are addresses, so that no array protocol comes between the
// caller's stream and ours.
#include <fcntl.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/cuda_check.h"
#include "ibp/gpu.h"
#include "ibp/uses/bags.h"
#include "ibp/uses/sharded/fetch.h"
#include "ibp/uses/topk/group_scores.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::ibp {
namespace {

Measure measure_of(const std::string& metric) {
  if (metric == "dot") return Measure::kDot;
  return metric == "cosine" ? Measure::kCosine : Measure::kL2;
}

float* floats_at(uintptr_t address) { return reinterpret_cast<float*>(address); }
int64_t* integers_at(uintptr_t address) { return reinterpret_cast<int64_t*>(address); }
int duplicate(int descriptor) { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }
cudaStream_t stream_at(uintptr_t address) { return reinterpret_cast<cudaStream_t>(address); }
using Found = std::tuple<uintptr_t, int64_t>;  // the count's address, and the room
FoundRef found_at(const Found& found) { return {integers_at(std::get<0>(found)), std::get<1>(found)}; }

// Scores of groups and pairs, with arrays as addresses.
void bind_scores(nb::module_& module) {
  using Addresses = std::tuple<uintptr_t, uintptr_t, uintptr_t>;
  nb::class_<RowsAndQueries>(module, "RowsAndQueries")
      .def("__init__", [](RowsAndQueries* self, uintptr_t rows, int64_t num_rows, uintptr_t queries,
                          int64_t num_queries, uint32_t num_columns) {
        new (self) RowsAndQueries{reinterpret_cast<const uint16_t*>(rows), reinterpret_cast<const uint16_t*>(queries),
                                  num_rows, num_queries, num_columns};
      });
  nb::class_<ScoreBoundsRef>(module, "ScoreBoundsRef")
      .def("__init__", [](ScoreBoundsRef* self, const std::string& metric, uintptr_t factors, uintptr_t squares,
                          float slope, float stretch, float least, float smallest, float largest) {
        new (self) ScoreBoundsRef{
            measure_of(metric), floats_at(factors), floats_at(squares), slope, stretch, least, smallest, largest};
      });
  nb::class_<GroupScoresRef>(module, "GroupScoresRef")
      .def("__init__", [](GroupScoresRef* self, uintptr_t best, uintptr_t lengths, uintptr_t widest) {
        new (self) GroupScoresRef{floats_at(best), floats_at(lengths), floats_at(widest)};
      });
  module.def("score_groups", [](const RowsAndQueries& given, const ScoreBoundsRef& bounds, const GroupScoresRef& scores,
                                uintptr_t stream) { score_groups(given, bounds, scores, stream_at(stream)); });
  module.def("find_pairs", [](const RowsAndQueries& given, const ScoreBoundsRef& bounds, const GroupScoresRef& scores,
                              uintptr_t least, uintptr_t pairs, const Found& found, uintptr_t stream) {
    find_pairs(given, bounds, scores, reinterpret_cast<const double*>(least), integers_at(pairs), found_at(found),
               stream_at(stream));
  });
  module.def("score_pairs", [](const RowsAndQueries& given, const ScoreBoundsRef& bounds, uintptr_t lengths,
                               uintptr_t least, uintptr_t pairs, const Found& found_pairs, const Addresses& to,
                               const Found& found, uintptr_t stream) {
    const auto [of_query, row, high] = to;
    score_pairs(given, bounds, floats_at(lengths), reinterpret_cast<const double*>(least), integers_at(pairs),
                found_at(found_pairs), {integers_at(of_query), integers_at(row), floats_at(high)}, found_at(found),
                stream_at(stream));
  });
  module.attr("group_rows") = kScoreRows;
}

void bind_cuda(nb::module_& module) {
  nb::class_<DeviceTable>(module, "DeviceTable")
      .def("__init__", [](DeviceTable* self, const EncodedRows& encoded,
                          bool pinned) { new (self) DeviceTable(encoded, pinned ? Place::kPinned : Place::kDevice); })
      .def_prop_ro("on_host", &DeviceTable::on_host)
      // Of rows that another process may open: (what it needs to know of them, a descriptor that the caller closes);
      // -1: they cannot be shared.
      .def("share",
           [](const DeviceTable& self) {
             const base::FileDescriptor shared = self.share();
             const int number = shared ? duplicate(shared.get()) : -1;
             return nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(&self.ref()), sizeof(EncodedRef)), number);
           })
      .def_static("open", [](const Profile& profile, const nb::bytes& shape, int shared) {
        const base::FileDescriptor file(duplicate(shared));
        EncodedRef ref;
        base::require(shape.size() == sizeof(ref), "a table of the same build of the library");
        std::memcpy(&ref, shape.c_str(), sizeof(ref));
        return std::make_unique<DeviceTable>(profile, ref, file);
      });
  nb::class_<Gather>(module, "Gather")
      .def(nb::init<int64_t>())
      .def_prop_ro("max_rows", &Gather::max_rows)
      .def("check", &Gather::check)
      .def("fetch",
           [](Gather& self, const DeviceTable& table, uintptr_t index, int64_t count, uintptr_t out, uintptr_t stream,
              int max_sms, bool check, bool plane_a, bool bfloat16) {
             const FetchOptions options{.max_sms = max_sms, .check = check, .plane_a = plane_a, .bfloat16 = bfloat16};
             self.fetch(table, reinterpret_cast<const int64_t*>(index), count, reinterpret_cast<void*>(out),
                        stream_at(stream), options);
           })
      .def("fetch_distinct", [](Gather& self, const DeviceTable& table, uintptr_t memory, int64_t num_ids,
                                uintptr_t out, uintptr_t stream) {
        self.fetch_distinct(table, distinct_in(reinterpret_cast<void*>(memory), num_ids), reinterpret_cast<void*>(out),
                            stream_at(stream));
      });
  const auto place_named = [](bool pinned) { return pinned ? Place::kPinned : Place::kDevice; };
  nb::class_<DeviceWritableRows>(module, "DeviceWritableRows")
      .def("__init__",
           [place_named](DeviceWritableRows* self, const EncodedRows& rows, bool pinned, int64_t spare) {
             new (self) DeviceWritableRows(rows, place_named(pinned), spare);
           })
      .def("__init__",
           [place_named](DeviceWritableRows* self, const Profile& profile, int64_t num_rows, uint32_t slot_bytes,
                         bool pinned, int64_t spare) {
             new (self) DeviceWritableRows(profile, num_rows, slot_bytes, place_named(pinned), spare);
           })
      .def_prop_ro("table", &DeviceWritableRows::table, nb::rv_policy::reference_internal)
      .def_prop_ro("profile", &DeviceWritableRows::profile, nb::rv_policy::reference_internal)
      .def_prop_ro("num_rows", [](const DeviceWritableRows& self) { return self.table().ref().num_rows; })
      .def_prop_ro("layout", [](const DeviceWritableRows& self) { return name_of(self.table().ref().layout); })
      .def_prop_ro("stored_bytes", &DeviceWritableRows::stored_bytes)
      .def_prop_ro("room_left", &DeviceWritableRows::room_left)
      .def("check", &DeviceWritableRows::check)
      .def("to_host", &DeviceWritableRows::to_host, nb::call_guard<nb::gil_scoped_release>())
      .def("put",
           [](DeviceWritableRows& self, uintptr_t ids, uintptr_t rows, int64_t count, uintptr_t stream, int max_sms) {
             self.put(reinterpret_cast<const int64_t*>(ids), reinterpret_cast<const void*>(rows), count,
                      stream_at(stream), {.max_sms = max_sms});
           });
  nb::class_<StreamedRows>(module, "StreamedRows")
      .def(nb::init<const EncodedRows&>(), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("staging_bytes", &StreamedRows::staging_bytes)
      .def("copy", [](const StreamedRows& self, uintptr_t staging,
                      uintptr_t stream) { self.copy(reinterpret_cast<std::byte*>(staging), stream_at(stream)); })
      .def("decode", [](StreamedRows& self, Gather& gather, uintptr_t staging, uintptr_t all, uintptr_t out,
                        uintptr_t stream, int max_sms) {
        self.decode(gather, reinterpret_cast<const std::byte*>(staging), reinterpret_cast<const int64_t*>(all),
                    reinterpret_cast<void*>(out), stream_at(stream), {.max_sms = max_sms});
      });
  module.def("encode_gpu", [](uintptr_t data, int64_t num_rows, const Profile& profile, const std::string& layout,
                              uint32_t slot_bytes) {
    const RowTable rows{reinterpret_cast<const void*>(data), num_rows, profile.dtype, profile.num_columns};
    const nb::gil_scoped_release release;
    return encode_gpu(rows, profile, encode_options(layout, slot_bytes));
  });
}

// Different ids, and bags of their rows.
void bind_bags(nb::module_& module) {
  module.def("distinct_bytes", &distinct_bytes);
  // (how many, the row of the padding or -1, whether an id is outside the table)
  module.def("find_distinct", [](const DeviceTable& table, uintptr_t ids, bool wide, int64_t count, int64_t padding,
                                 uintptr_t memory, uintptr_t row_index, uintptr_t stream) {
    const nb::gil_scoped_release release;
    const Distinct found =
        find_distinct(table, {reinterpret_cast<const void*>(ids), wide, count, padding},
                      reinterpret_cast<void*>(memory), reinterpret_cast<int32_t*>(row_index), stream_at(stream));
    return std::make_tuple(found.count, found.padding_row, found.outside);
  });
  using RowIndex = std::tuple<uintptr_t, int64_t, int64_t>;  // the address, how many, the row of the padding or -1
  using Offsets = std::tuple<uintptr_t, bool, int64_t>;      // the address or 0, whether int64, how many
  module.def("reduce_bags",
             [](const Profile& profile, uintptr_t rows, const RowIndex& row_index, const Offsets& offsets,
                int64_t bag_size, int64_t num_bags, const std::string& mode, uintptr_t out, uintptr_t stream) {
               const BagsRef bags{.row_index = reinterpret_cast<const int32_t*>(std::get<0>(row_index)),
                                  .count = std::get<1>(row_index),
                                  .padding_row = std::get<2>(row_index),
                                  .offsets = reinterpret_cast<const void*>(std::get<0>(offsets)),
                                  .wide = std::get<1>(offsets),
                                  .num_offsets = std::get<2>(offsets),
                                  .bag_size = bag_size,
                                  .num_bags = num_bags};
               const BagMode chosen = mode == "sum" ? BagMode::kSum : mode == "mean" ? BagMode::kMean : BagMode::kMax;
               reduce_bags(reinterpret_cast<const void*>(rows), profile.dtype, profile.num_columns, bags, chosen,
                           reinterpret_cast<void*>(out), stream_at(stream));
             });
}

// The rows of tables that this GPU reads, by ids of all of them.
class Shards {
 public:
  // Keeps the addresses: `where` is (bounds, owners, positions) of ShardsRef, 0 for null.
  Shards(std::vector<const DeviceTable*> tables, int64_t num_rows, std::array<uintptr_t, 3> where, bool wide)
      : tables_(std::move(tables)) {
    std::vector<EncodedRef> refs;
    refs.reserve(tables_.size());
    for (const DeviceTable* table : tables_) refs.push_back(table->ref());
    refs_ = base::upload(refs);
    ref_ = {.refs = refs_.data(),
            .num_rows = num_rows,
            .bounds = integers_at(where[0]),
            .owners = reinterpret_cast<const int32_t*>(where[1]),
            .positions = wide ? nullptr : reinterpret_cast<const int32_t*>(where[2]),
            .wide_positions = wide ? integers_at(where[2]) : nullptr};
  }

  // `told`: int64 [tables + 1] in host memory, for the counts and the status.
  void fetch(uintptr_t ids, int64_t count, uintptr_t out, const std::array<uintptr_t, 3>& scratch, uintptr_t told,
             uintptr_t stream) const {
    const auto [entries, positions, words] = scratch;
    auto* found = reinterpret_cast<unsigned long long*>(words);
    fetch_sharded(tables_, ref_, integers_at(ids), count, reinterpret_cast<void*>(out),
                  {reinterpret_cast<uint64_t*>(entries), reinterpret_cast<int32_t*>(positions), found},
                  stream_at(stream));
    base::cuda_check(cudaMemcpyAsync(reinterpret_cast<void*>(told), found + tables_.size(), 8 * (tables_.size() + 1),
                                     cudaMemcpyDeviceToHost, stream_at(stream)),
                     "report what was fetched");
  }

 private:
  std::vector<const DeviceTable*> tables_;
  base::DeviceArray<EncodedRef> refs_;
  ShardsRef ref_;
};

// Rows as they are sent: sizes and copies of those of a table, and those of another table's profile decoded.
void bind_stored(nb::module_& module) {
  nb::class_<DeviceProfile>(module, "DeviceProfile").def(nb::init<const Profile&>());
  nb::class_<Shards>(module, "Shards")
      .def(nb::init<std::vector<const DeviceTable*>, int64_t, std::array<uintptr_t, 3>, bool>(), nb::keep_alive<1, 2>())
      .def("fetch", &Shards::fetch);
  module.def("stored_sizes",
             [](const DeviceTable& table, uintptr_t index, int64_t count, uintptr_t sizes, uintptr_t stream) {
               stored_sizes(table, integers_at(index), count, integers_at(sizes), stream_at(stream));
             });
  module.def("take_stored", [](const DeviceTable& table, uintptr_t index, int64_t count, uintptr_t ends,
                               uintptr_t entries, uintptr_t data, uintptr_t stream) {
    take_stored(table, integers_at(index), count, integers_at(ends),
                {reinterpret_cast<uint64_t*>(entries), reinterpret_cast<std::byte*>(data)}, stream_at(stream));
  });
  module.def("decode_stored_gpu",
             [](const DeviceProfile& profile, uintptr_t entries, uintptr_t positions, uintptr_t count, uintptr_t data,
                int64_t bytes, uintptr_t out, uintptr_t status, uintptr_t stream) {
               LocatedRows rows;
               rows.entries = reinterpret_cast<const uint64_t*>(entries);
               rows.positions = reinterpret_cast<const int32_t*>(positions);
               rows.count = reinterpret_cast<const unsigned long long*>(count);
               rows.regions = {RegionRef{reinterpret_cast<const std::byte*>(data), bytes}};
               rows.step_bytes = kStoredStep;
               fetch_located(profile, rows, reinterpret_cast<void*>(out), reinterpret_cast<unsigned long long*>(status),
                             stream_at(stream));
             });
}

}  // namespace

void bind_gpu(nb::module_& module) {
  bind_cuda(module);
  bind_bags(module);
  bind_scores(module);
  bind_stored(module);
}

}  // namespace cohort::ibp
