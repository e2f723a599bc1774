// cohort.trainer.loader._native: the trainer's end of the channel as Python objects, arrays through DLPack.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/host_memory.h"
#include "base/nanobind_errors.h"
#include "base/process.h"
#include "base/with_cuda.h"
#include "trainer/loader/native/module.h"

#ifdef COHORT_WITH_CUDA
#include "base/device.h"
#include "base/sm_partition.h"
#endif

namespace nb = nanobind;
using namespace cohort;
using channel::Batch;
using trainer::dlpack_type;
using trainer::HeldSlot;
using trainer::Receiver;

namespace {

std::vector<std::tuple<int64_t, int64_t, double>> rows_by_tier(const channel::Batch& batch) {
  std::vector<std::tuple<int64_t, int64_t, double>> tiers;
  for (const base::TierUse& tier : batch.row_tiers) tiers.emplace_back(tier.rows, tier.bytes, tier.us / 1e6);
  return tiers;
}

std::vector<std::tuple<int64_t, int64_t>> lists_by_tier(const channel::Batch& batch) {
  std::vector<std::tuple<int64_t, int64_t>> tiers;
  for (const base::ListUse& tier : batch.list_tiers) tiers.emplace_back(tier.lists, tier.bytes);
  return tiers;
}

// Of `count` types or relations.
template <typename Part>
std::vector<int64_t> sums_by_hop(const Part* parts, int count, int num_hops) {
  std::vector<int64_t> sums(static_cast<std::size_t>(num_hops));
  for (int which = 0; which < count; ++which) {
    std::transform(sums.begin(), sums.end(), parts[which].per_hop, sums.begin(), std::plus<>());
  }
  return sums;
}

void bind_slot(nb::module_& m) {
  nb::class_<HeldSlot> slot_class(
      m, "HeldSlot", nb::is_weak_referenceable(),
      "A batch in shared memory. The slot goes back to the sampler when this object and all views of it "
      "are gone.");
  trainer::bind_arrays(slot_class);
  slot_class
      .def_prop_ro(
          "last_hop_global", [](const HeldSlot& slot) { return slot.batch().last_hop_global != 0; },
          "True when edge_index is without the edges of the last hop, and source_node has all.")
      .def(
          "holds",
          [](const HeldSlot& slot, std::uintptr_t address) { return slot.holds(reinterpret_cast<void*>(address)); },
          nb::arg("address"), "Whether the address lies in the slot.")
      .def(
          "record_stream",
          [](HeldSlot& slot, std::uintptr_t stream) { slot.record_stream(reinterpret_cast<base::GpuStream>(stream)); },
          nb::arg("stream"),
          "Work on this CUDA stream (its handle), too, may still read the slot when it is given back.")
      .def("leave_rows", &HeldSlot::leave_rows,
           "Work put on the batch's CUDA stream from now on reads no rows of the pool that the batch names.")
      .def_prop_ro("num_seeds", [](const HeldSlot& slot) { return slot.batch().num_seeds; })
      .def_prop_ro(
          "num_inputs", [](const HeldSlot& slot) { return channel::num_inputs(slot.batch()); },
          "How much of the seed set the batch has: seeds, or pairs, whose endpoints are the seeds.")
      .def_prop_ro("step", [](const HeldSlot& slot) { return slot.batch().step; })
      .def_prop_ro("num_steps", [](const HeldSlot& slot) { return slot.batch().num_steps; })
      .def_prop_ro(
          "num_sampled_nodes",
          [](const HeldSlot& slot) {
            return sums_by_hop(slot.batch().nodes, slot.header().num_types, slot.batch().num_hops + 1);
          },
          "Nodes of all types, by hop.")
      .def_prop_ro(
          "num_sampled_edges",
          [](const HeldSlot& slot) {
            return sums_by_hop(slot.batch().edges, slot.header().num_relations, slot.batch().num_hops);
          },
          "Edges of all relations, by hop.")
      .def_prop_ro("sample_us", [](const HeldSlot& slot) { return slot.batch().sample.us(); })
      .def_prop_ro("fetch_us", [](const HeldSlot& slot) { return slot.batch().fetch.us(); })
      .def_prop_ro(
          "spans",
          [](const HeldSlot& slot) {
            const auto& [sample, fetch] = std::pair(slot.batch().sample, slot.batch().fetch);
            return std::tuple(sample.begin_us, sample.end_us, fetch.begin_us, fetch.end_us);
          },
          "When the sampler drew the batch and when it wrote the slot: begin and end of each, in microseconds of the "
          "clock of time.monotonic().")
      .def_prop_ro(
          "row_tiers", [](const HeldSlot& slot) { return rows_by_tier(slot.batch()); },
          "(rows, stored bytes, seconds) of feature rows by where they were read: local, peer, host, recent.")
      .def_prop_ro(
          "edge_rows",
          [](const HeldSlot& slot) {
            const base::TierUse& use = slot.batch().edge_rows;
            return std::tuple(use.rows, use.bytes, use.us / 1e6);
          },
          "(rows, stored bytes, seconds) of the edges' feature rows, all of which are read from host memory.")
      .def_prop_ro(
          "list_tiers", [](const HeldSlot& slot) { return lists_by_tier(slot.batch()); },
          "(lists, bytes of neighbours drawn) of neighbour lists, likewise.");
}

// Takes a field of a request from those that were given; enums are words.
template <typename T>
void take(nb::kwargs& given, const char* name, const char* about, T& field) {
  const nb::object value = given.attr("pop")(name, nb::none());
  if (value.is_none()) return;
  std::conditional_t<std::is_enum_v<T>, std::string, T> found;
  if (!nb::try_cast(value, found)) {
    throw base::Error({name, "a value that fits the field", nb::repr(value).c_str(), about});
  }
  if constexpr (std::is_enum_v<T>) {
    field = static_cast<T>(base::number_of(found, names_of(field), name));
  } else {
    field = found;
  }
}

uint64_t request(Receiver& receiver, const std::vector<int32_t>& fanout, nb::kwargs fields) {
  const auto num_relations = static_cast<std::size_t>(receiver.header().num_relations);
  const std::size_t num_hops = fanout.size() / num_relations;
  base::require(fanout.size() % num_relations == 0, "a fanout for each relation and hop");
  if (num_hops == 0 || num_hops > channel::kMaxHops) {
    throw base::Error(
        {"num_neighbors", "1 to " + std::to_string(channel::kMaxHops) + " hops", std::to_string(num_hops), ""});
  }
  channel::Request request{};
  request.num_hops = static_cast<int32_t>(num_hops);
  std::copy(fanout.begin(), fanout.end(), request.fanout);
  const auto windows = nb::cast<std::vector<int64_t>>(fields.attr("pop")("time_window", nb::list()));
  base::require(windows.empty() || windows.size() == num_relations, "a time window for each relation, or none");
  std::copy(windows.begin(), windows.end(), request.time_window);
  request.has_windows = !windows.empty();
#define COHORT_TAKE(type, name, about) take(fields, #name, about, request.name);
  COHORT_REQUEST_FIELDS(COHORT_TAKE)
#undef COHORT_TAKE
  if (fields.size() > 0) {
    throw base::Error({"a request", "fields of channel/request.h alone", nb::repr(fields).c_str(), ""});
  }
  const nb::gil_scoped_release no_gil;
  return receiver.request(request);
}

// True when a signal (Ctrl-C) has made Python raise; looked at in every round of a wait.
bool interrupted() {
  const nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

HeldSlot* next(Receiver& receiver, uint64_t pass, double limit_seconds, std::uintptr_t stream) {
  std::unique_ptr<HeldSlot> slot;
  {
    const nb::gil_scoped_release no_gil;
    slot = receiver.next(pass, static_cast<int64_t>(limit_seconds * 1e6), reinterpret_cast<base::GpuStream>(stream),
                         interrupted);
  }
  if (!slot) nb::raise_python_error();
  return slot.release();
}

nb::object rows_of(nb::handle self, int type) {
  auto& receiver = nb::cast<Receiver&>(self);
  const channel::ChannelHeader& header = receiver.header();
  base::require(type >= 0 && type < header.num_types, "a type of the graph");
  const channel::NamedRows& named = header.rows[type];
  if (named.num_rows == 0) return nb::none();
  const std::byte* rows = receiver.rows(static_cast<std::size_t>(type));
  const channel::Table& table = header.tables[type];
  const std::array<std::size_t, 2> sizes = {static_cast<std::size_t>(named.num_rows),
                                            static_cast<std::size_t>(table.feature_dim)};
  const nb::dlpack::dtype dtype = dlpack_type(table.feature_dtype);
  const std::array<int64_t, 2> strides = {named.stride_bytes * 8 / dtype.bits, 1};
  const auto [device, ordinal] = receiver.dlpack_device();
  return nb::cast(nb::ndarray<nb::pytorch>(const_cast<std::byte*>(rows), 2, sizes.data(), self, strides.data(), dtype,
                                           device, ordinal));
}

void bind_receiver(nb::module_& m) {
  nb::class_<Receiver>(m, "Receiver", "The trainer's end of the channel in a folder.")
      .def(nb::init<const std::string&>(), nb::arg("folder"))
      .def("request", &request, nb::arg("fanout"), nb::arg("fields"),
           "Asks for a pass over a seed set; returns its number. `fanout`: int32 [num_relations, num_hops] in turn, "
           "entry "
           "0 of each relation next to the seeds, -1: all in-neighbours. `fields`: by name, as channel/request.h lists "
           "them; others are 0, False or the first word.")
      .def("next", &next, nb::arg("pass_number"), nb::arg("limit_seconds"), nb::arg("stream"),
           nb::rv_policy::take_ownership,
           "The next batch of the pass. `limit_seconds`: how long the sampler may stay in one stage; `stream`: handle "
           "of "
           "the CUDA stream on which the batch will be used, 0 on the CPU.")
      .def("cancel_below", &Receiver::cancel_below, nb::arg("pass_number"),
           "Batches of earlier passes are not wanted any more.")
      .def("leave", &Receiver::leave, "Ends the trainer's part; batches held stay valid.")
      .def("set_idle", &Receiver::set_idle, "Says that the trainer is between passes.")
      .def("fail", &Receiver::fail, nb::arg("text"), "Leaves the reason of the trainer's failure in the channel.")
      .def_prop_ro(
          "rows_in",
          [](const Receiver& receiver) {
            const channel::RowsIn rows_in = receiver.rows_in();
            return rows_in == channel::RowsIn::kSlots ? "slots" : rows_in == channel::RowsIn::kTable ? "table" : "pool";
          },
          "Where rows are: \"slots\", where x has them; \"table\" of all rows, or \"pool\" of rows of recent batches, "
          "one a node type, of which a batch has rows `row_index`.")
      .def_prop_ro(
          "num_types", [](const Receiver& receiver) { return receiver.header().num_types; },
          "Node types of the graph, at least 1.")
      .def("rows", &rows_of, nb::arg("type"),
           "The table or the pool [num_rows, dim] of a node type, in memory of the GPU; None where it has no features. "
           "On the CPU the data set has the table. Of a pool only rows that a batch names may be read.")
      .def_prop_ro("device", &Receiver::device, "\"cpu\" or \"cuda:<ordinal>\".")
      .def_prop_ro("slots_bytes", &Receiver::slots_bytes, "Memory of all slots as they are now, and of pools of rows.");
}

#ifdef COHORT_WITH_CUDA
// A stream on the SMs that the sampler leaves.
class RestStream {
 public:
  RestStream(int gpu, int sampler_sms) : RestStream(on(gpu, sampler_sms)) {}
  int num_sms() const { return rest_.num_sms(); }
  std::uintptr_t handle() const { return reinterpret_cast<std::uintptr_t>(static_cast<cudaStream_t>(stream_)); }

 private:
  explicit RestStream(base::SmPartition rest) : rest_(std::move(rest)), stream_(rest_.make_stream()) {}
  static base::SmPartition on(int gpu, int sampler_sms) {
    base::choose_gpu(gpu);
    return {sampler_sms, base::SmPartition::Part::kRest};
  }

  base::SmPartition rest_;
  base::Stream stream_;
};

void bind_rest_stream(nb::module_& m) {
  nb::class_<RestStream>(m, "RestStream",
                         "A stream of a GPU (CUDA ordinal) whose kernels keep off the SMs of the sampler.")
      .def(nb::init<int, int>(), nb::arg("gpu"), nb::arg("sampler_sms"))
      .def_prop_ro("num_sms", &RestStream::num_sms)
      .def_prop_ro("handle", &RestStream::handle, "The cudaStream_t; it lives as long as this object.");
}
#endif

}  // namespace

NB_MODULE(_native, m) {
  base::raise_errors_as_cohort_error();
  m.def(
      "with_cuda", [] { return base::kWithCuda; }, "True when this build has the CUDA backend.");
  m.def(
      "end_with_parent", [](int pid, int signal) { base::end_with_parent(pid, signal); }, nb::arg("parent"),
      nb::arg("signal"), "Has the kernel send this process a signal when its parent dies.");
  m.def("keep_freed_memory", &base::keep_freed_memory,
        "Has malloc() keep what is freed, for steps that allocate as much again; see base/host_memory.h.");
  m.def("padded", &channel::padded, nb::arg("count"), "How many there is room for where there are so many.");
  bind_slot(m);
  bind_receiver(m);
#ifdef COHORT_WITH_CUDA
  bind_rest_stream(m);
#endif
}
