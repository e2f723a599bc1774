// cohort.trainer._native: the trainer's end of the channel as Python objects, arrays through DLPack.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/nanobind_errors.h"
#include "base/process.h"
#include "trainer/native/held_slot.h"
#include "trainer/native/nn_module.h"

#ifdef COHORT_WITH_CUDA
#include "base/device.h"
#include "base/sm_partition.h"
#endif

namespace nb = nanobind;
using namespace cohort;
using channel::Batch;
using trainer::HeldSlot;
using trainer::Receiver;

namespace {

// An array inside a slot.
struct Array {
  uint64_t offset;
  std::vector<int64_t> shape;
  nb::dlpack::dtype dtype = nb::dtype<int64_t>();
  std::vector<int64_t> strides = {};  // in elements; none: rows follow each other
};

// The array as a torch tensor that keeps the slot.
nb::object view(nb::handle slot_object, const Array& array) {
  const auto& slot = nb::cast<const HeldSlot&>(slot_object);
  const std::vector<std::size_t> sizes(array.shape.begin(), array.shape.end());
  const auto [device, ordinal] = slot.dlpack_device();
  return nb::cast(nb::ndarray<nb::pytorch>(slot.data() + array.offset, sizes.size(), sizes.data(), slot_object,
                                           array.strides.empty() ? nullptr : array.strides.data(), array.dtype, device,
                                           ordinal));
}

// The property `name`: the array that find(slot, its batch) names, as a torch tensor that keeps the slot; None where
// there is none.
template <typename Find>
void bind_array(nb::class_<HeldSlot>& slot_class, const char* name, Find find, const char* doc = "") {
  const auto get = [find](nb::handle self) -> nb::object {
    auto& slot = nb::cast<HeldSlot&>(self);
    const std::optional<Array> array = find(std::as_const(slot), slot.batch());
    return array ? view(self, *array) : nb::none();
  };
  slot_class.def_prop_ro(name, get, doc);
}

nb::dlpack::dtype dlpack_type(uint32_t code) {
  return {static_cast<uint8_t>(code >> 8), static_cast<uint8_t>(code & 0xFF), 1};
}

std::vector<int64_t> first_of(const int64_t* values, int count) { return {values, values + count}; }

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

void bind_edge_arrays(nb::class_<HeldSlot>& slot_class) {
  bind_array(slot_class, "edge_index", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.edge_index_offset, {2, channel::num_local_edges(batch)}};
  });
  bind_array(
      slot_class, "source_node",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.source_node_offset, {batch.last_hop_global ? batch.num_edges : 0}};
      },
      "int64 [num_edges], the node of each edge's source, where last_hop_global.");
  bind_array(slot_class, "indptr", [](const HeldSlot& slot, const Batch& batch) {
    const auto count = [&] { return batch.num_nodes - batch.nodes_per_hop[batch.num_hops] + 1; };
    return Array{batch.indptr_offset, {slot.typed() ? slot.num_offsets() : count()}};
  });
  bind_array(
      slot_class, "e_id",
      [](const HeldSlot& slot, const Batch& batch) -> std::optional<Array> {
        if (!slot.header().with_e_id) return std::nullopt;
        return Array{batch.e_id_offset, {batch.num_edges}};
      },
      "int64 [num_edges]: where each edge stands in the data set's indices; None where nobody asked for it.");
  bind_array(
      slot_class, "edge_weight",
      [](const HeldSlot& slot, const Batch& batch) -> std::optional<Array> {
        if (!slot.header().with_edge_weight) return std::nullopt;
        return Array{batch.edge_weight_offset, {batch.num_edges}, nb::dtype<float>()};
      },
      "float32 [num_edges], as edge_index has the edges; None where nobody asked for it.");
}

void bind_node_arrays(nb::class_<HeldSlot>& slot_class) {
  const auto rows = [](const HeldSlot& slot, int64_t count) {
    slot.require_rows();
    return Array{slot.batch().x_offset, {count, slot.header().feature_dim}, dlpack_type(slot.header().feature_dtype)};
  };
  bind_array(slot_class, "x", [rows](const HeldSlot& slot, const Batch& batch) { return rows(slot, batch.num_nodes); });
  bind_array(
      slot_class, "padded_x",
      [rows](const HeldSlot& slot, const Batch& batch) { return rows(slot, channel::padded(batch.num_nodes)); },
      "x and the room behind it, which nobody has filled: padded(num_nodes) rows.");
  bind_array(slot_class, "n_id", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.n_id_offset, {batch.num_nodes}};
  });
  bind_array(slot_class, "y", [](const HeldSlot& slot, const Batch& batch) {
    const auto dtype = dlpack_type(slot.header().label_dtype);
    const int64_t of_all_types = batch.labels_of_seeds ? batch.num_seeds : batch.num_nodes;
    const int64_t count = slot.typed() ? slot.typed()->num_labels : of_all_types, width = slot.header().label_width;
    return width == 0 ? Array{batch.y_offset, {count}, dtype} : Array{batch.y_offset, {count, width}, dtype};
  });
  bind_array(
      slot_class, "endpoints",
      [](const HeldSlot&, const Batch& batch) {
        return Array{batch.input_id_offset + 8 * static_cast<uint64_t>(channel::num_inputs(batch)),
                     {batch.num_endpoints}};
      },
      "Where seeds are pairs: int64, the batch-local ids of their sources, then of their targets.");
  bind_array(slot_class, "input_id", [](const HeldSlot&, const Batch& batch) {
    return Array{batch.input_id_offset, {channel::num_inputs(batch)}};
  });
}

// int64 sizes by hop of each of `count` types or relations.
template <std::size_t kWidth>
std::vector<std::vector<int64_t>> by_hop(const int64_t (*sizes)[kWidth], int count, int num_hops) {
  std::vector<std::vector<int64_t>> all;
  for (int which = 0; which < count; ++which) all.push_back(first_of(sizes[which], num_hops));
  return all;
}

// Feature rows of the nodes of a type.
nb::object table_of(nb::handle self, int type) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  base::require(type >= 0 && type < slot.header().num_types, "a type of the graph");
  const channel::Table& table = slot.header().tables[type];
  if (table.feature_dim == 0) return nb::none();
  const int64_t count = channel::nodes_of(slot.batch(), typed, type);
  return view(self, {typed.x_offset[type], {count, table.feature_dim}, dlpack_type(table.feature_dtype)});
}

// The part of indptr.
nb::object offsets_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  base::require(relation >= 0 && relation < slot.header().num_relations, "a relation of the graph");
  const auto count = [&](int which) { return channel::targets_of(slot.header(), slot.batch(), typed, which) + 1; };
  int64_t first = 0;
  for (int before = 0; before < relation; ++before) first += count(before);
  return view(self, {slot.batch().indptr_offset + 8 * static_cast<uint64_t>(first), {count(relation)}});
}

// Columns of edge_index.
nb::object edges_of(nb::handle self, int relation) {
  const auto& slot = nb::cast<const HeldSlot&>(self);
  const channel::TypedBatch& typed = slot.require_types();
  const Batch& batch = slot.batch();
  base::require(relation >= 0 && relation < slot.header().num_relations, "a relation of the graph");
  const auto count = [&](int which) {
    return std::accumulate(typed.edges_per_hop[which], typed.edges_per_hop[which] + batch.num_hops, int64_t{0});
  };
  uint64_t first = 0;
  for (int before = 0; before < relation; ++before) first += static_cast<uint64_t>(count(before));
  return view(self,
              {batch.edge_index_offset + 8 * first, {2, count(relation)}, nb::dtype<int64_t>(), {batch.num_edges, 1}});
}

void bind_typed_arrays(nb::class_<HeldSlot>& slot_class) {
  slot_class
      .def_prop_ro(
          "nodes_of_types",
          [](const HeldSlot& slot) {
            return by_hop(slot.require_types().nodes_per_hop, slot.header().num_types, slot.batch().num_hops + 1);
          },
          "Of a typed graph: num_sampled_nodes of each node type. n_id has the nodes of one type after the other.")
      .def_prop_ro(
          "edges_of_relations",
          [](const HeldSlot& slot) {
            return by_hop(slot.require_types().edges_per_hop, slot.header().num_relations, slot.batch().num_hops);
          },
          "Of a typed graph: num_sampled_edges of each relation. edge_index, indptr and e_id have the edges of one "
          "relation after the other.")
      .def("table", &table_of, nb::arg("type"),
           "Of a typed graph: feature rows of the nodes of a type; None where the type has none.")
      .def("offsets", &offsets_of, nb::arg("relation"),
           "Of a typed graph: the part of indptr that is the relation's, int64 [targets + 1].")
      .def("edges", &edges_of, nb::arg("relation"),
           "Of a typed graph: the columns of edge_index that are the relation's, int64 [2, edges].");
}

void bind_slot(nb::module_& m) {
  nb::class_<HeldSlot> slot_class(
      m, "HeldSlot", nb::is_weak_referenceable(),
      "A batch in shared memory. The slot goes back to the sampler when this object and all views of it "
      "are gone.");
  bind_edge_arrays(slot_class);
  bind_node_arrays(slot_class);
  bind_typed_arrays(slot_class);
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
      .def_prop_ro("num_seeds", [](const HeldSlot& slot) { return slot.batch().num_seeds; })
      .def_prop_ro(
          "num_inputs", [](const HeldSlot& slot) { return channel::num_inputs(slot.batch()); },
          "How much of the seed set the batch has: seeds, or pairs, whose endpoints are the seeds.")
      .def_prop_ro("step", [](const HeldSlot& slot) { return slot.batch().step; })
      .def_prop_ro("num_steps", [](const HeldSlot& slot) { return slot.batch().num_steps; })
      .def_prop_ro("num_sampled_nodes",
                   [](const HeldSlot& slot) { return first_of(slot.batch().nodes_per_hop, slot.batch().num_hops + 1); })
      .def_prop_ro("num_sampled_edges",
                   [](const HeldSlot& slot) { return first_of(slot.batch().edges_per_hop, slot.batch().num_hops); })
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
          "list_tiers", [](const HeldSlot& slot) { return lists_by_tier(slot.batch()); },
          "(lists, bytes of neighbours drawn) of neighbour lists, likewise.");
}

uint64_t request(Receiver& receiver, uint32_t seed_set, uint64_t epoch, uint64_t first_step, uint64_t step_stride,
                 bool shuffle, uint32_t batch_size, const std::vector<int32_t>& fanout, int32_t sampler_sms,
                 bool labels_of_seeds, bool last_hop_global,
                 const std::tuple<uint32_t, double, uint32_t, uint32_t, uint32_t>& pairs) {
  const auto num_relations = static_cast<std::size_t>(std::max(receiver.header().num_relations, 1));
  const std::size_t num_hops = fanout.size() / num_relations;
  base::require(fanout.size() % num_relations == 0, "a fanout for each relation and hop");
  if (num_hops == 0 || num_hops > channel::kMaxHops) {
    throw base::Error(
        {"num_neighbors", "1 to " + std::to_string(channel::kMaxHops) + " hops", std::to_string(num_hops), ""});
  }
  channel::Request request{};
  request.seed_set = seed_set;
  request.epoch = epoch;
  request.first_step = first_step;
  request.step_stride = step_stride;
  request.shuffle = shuffle ? 1 : 0;
  request.batch_size = batch_size;
  request.num_hops = static_cast<int32_t>(num_hops);
  std::copy(fanout.begin(), fanout.end(), request.fanout);
  request.sampler_sms = sampler_sms;
  request.labels_of_seeds = labels_of_seeds ? 1 : 0;
  request.last_hop_global = last_hop_global ? 1 : 0;
  const auto [mode, negatives, redraws, exclude, relation] = pairs;
  request.negative_mode = static_cast<channel::NegativeMode>(mode);
  request.negatives = negatives;
  request.redraws = redraws;
  request.exclude = static_cast<channel::Exclude>(exclude);
  request.relation = relation;
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

nb::ndarray<nb::pytorch> all_rows(nb::handle self) {
  auto& receiver = nb::cast<Receiver&>(self);
  const channel::ChannelHeader& header = receiver.header();
  const std::byte* rows = receiver.all_rows();
  const auto dim = static_cast<std::size_t>(header.feature_dim);
  const std::array<std::size_t, 2> sizes = {static_cast<std::size_t>(header.num_rows), dim};
  const nb::dlpack::dtype dtype = dlpack_type(header.feature_dtype);
  const std::array<int64_t, 2> strides = {header.row_stride_bytes * 8 / dtype.bits, 1};
  const auto [device, ordinal] = receiver.dlpack_device();
  return nb::ndarray<nb::pytorch>(const_cast<std::byte*>(rows), 2, sizes.data(), self, strides.data(), dtype, device,
                                  ordinal);
}

void bind_receiver(nb::module_& m) {
  nb::class_<Receiver>(m, "Receiver", "The trainer's end of the channel in a folder.")
      .def(nb::init<const std::string&>(), nb::arg("folder"))
      .def("request", &request, nb::kw_only(), nb::arg("seed_set"), nb::arg("epoch"), nb::arg("first_step"),
           nb::arg("step_stride"), nb::arg("shuffle"), nb::arg("batch_size"), nb::arg("fanout"),
           nb::arg("sampler_sms") = 0, nb::arg("labels_of_seeds") = false, nb::arg("last_hop_global") = false,
           nb::arg("pairs") = std::tuple(0u, 0.0, 0u, 0u, 0u), nb::call_guard<nb::gil_scoped_release>(),
           "Asks for a pass over a seed set (layout.h), batches first_step, first_step + step_stride, ...; returns its "
           "number. `sampler_sms`: the first so many SMs of the GPU are the sampler's, 0: all are shared; "
           "`labels_of_seeds`: batches need no others; `last_hop_global`: where rows are in place, sources of the last "
           "hop need no local ids.")
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
      .def_prop_ro("rows_in_place", &Receiver::rows_in_place,
                   "True when slots have no x: row i of a batch is row n_id[i] of all rows.")
      .def_prop_ro(
          "all_rows", [](nb::handle self) { return all_rows(self); },
          "All feature rows [num_rows, dim], in memory of the GPU; on the CPU the data set has them.")
      .def_prop_ro("device", &Receiver::device, "\"cpu\" or \"cuda:<ordinal>\".")
      .def_prop_ro("slots_bytes", &Receiver::slots_bytes, "Memory of all slots as they are now.");
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
  m.def("padded", &channel::padded, nb::arg("count"), "How many there is room for where there are so many.");
  bind_slot(m);
  bind_receiver(m);
#ifdef COHORT_WITH_CUDA
  bind_rest_stream(m);
#endif
  trainer::bind_layers(m);
}
