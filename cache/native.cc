// cohort.cache._native: the planner and the file of counts, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <functional>

#include "base/check.h"
#include "base/host_memory.h"
#include "base/nanobind_errors.h"
#include "cache/plan/gpu_bytes.h"
#include "cache/plan/hotness.h"
#include "cache/plan/plan.h"
#include "cache/plan/stand_in.h"
#include "cache/slab_rows.h"
#include "channel/slot_size.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::cache {
namespace {

template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void need_length(std::size_t found, std::size_t wanted, const char* place) {
  if (found == wanted) return;
  throw base::Error(
      {place, std::to_string(wanted) + " elements, one for each", std::to_string(found) + " elements", ""});
}

// An array of C++ memory that its owner keeps.
template <typename T>
using View = nb::ndarray<nb::numpy, const T, nb::ndim<1>>;

template <typename T>
View<T> view(std::span<const T> values, nb::handle owner) {
  return View<T>(values.data(), {values.size()}, owner);
}

// What a member of an object has, or returns.
template <typename Object, auto kMember>
auto view_of(nb::handle self) {
  return view(std::span(std::invoke(kMember, nb::cast<const Object&>(self))), self);
}

// Of one GPU, or of all: batches, reads of each row, expansions and edges read of each list, promises.
using CountTuple =
    std::tuple<int64_t, Vector<uint32_t>, Vector<uint32_t>, Vector<uint64_t>, std::array<std::vector<double>, 2>>;

Counts counts_of(const CountTuple& arrays, const GraphSizes& sizes) {
  const auto& [num_batches, node_reads, expansions, edges_read, promised] = arrays;
  need_length(node_reads.shape(0), static_cast<std::size_t>(sizes.num_rows()), "counts");
  for (const std::size_t length : {expansions.shape(0), edges_read.shape(0)}) {
    if (!sizes.relations.empty()) need_length(length, static_cast<std::size_t>(sizes.num_lists()), "counts");
  }
  return {num_batches, node_reads.data(), expansions.data(), edges_read.data(), {promised[0], promised[1]}};
}

// Rows of a node type: how many, bytes of each in slabs and in host memory.
using TableTuple = std::tuple<int64_t, nb::object, nb::object>;
using Kept = std::vector<Vector<uint32_t>>;  // arrays that views are of

// Of stored rows: a number, or an array of one a row, which is `kept`.
RowBytes row_bytes_of(nb::handle value, int64_t num_rows, Kept& kept) {
  if (value.is_none()) return {};
  if (nb::isinstance<nb::int_>(value)) return {nb::cast<int64_t>(value)};
  const auto& each = kept.emplace_back(nb::cast<Vector<uint32_t>>(value));
  need_length(each.shape(0), static_cast<std::size_t>(num_rows), "row bytes");
  return {0, each.data()};
}

// The lists of a relation that has `indptr`, behind those of the relations before.
RelationLists& add_relation(const Vector<int64_t>& indptr, std::vector<RelationLists>& relations) {
  if (indptr.shape(0) < 1) throw base::Error({"indptr", "one element more than there are lists", "an empty array", ""});
  const int64_t first = end_of(relations);
  RelationLists& relation = relations.emplace_back();
  relation.first = first;
  relation.lists.num_nodes = static_cast<int64_t>(indptr.shape(0)) - 1;
  relation.lists.indptr = indptr.data();
  return relation;
}

// Arguments as plan() of cache/planner.py gives them.
Plan plan(const std::vector<TableTuple>& tables, const std::vector<std::pair<Vector<int64_t>, int>>& relations,
          const std::vector<CountTuple>& counts, std::vector<std::vector<int>> cliques,
          std::vector<int64_t> budget_bytes, const std::array<double, kNumLinks>& bytes_per_second,
          const std::array<double, kNumLinks>& seconds_per_line, int64_t entry_bytes, int64_t scratch_bytes,
          int pool_slots, int machines, double network_bytes_per_second) {
  PlanInput input;
  input.sizes.parts.count = machines;
  input.network_bytes_per_second = network_bytes_per_second;
  Kept kept;
  input.sizes.pool_slots = pool_slots;
  for (const auto& [num_rows, slab, host] : tables) {
    input.sizes.tables.push_back({num_rows, row_bytes_of(slab, num_rows, kept), row_bytes_of(host, num_rows, kept)});
  }
  for (const auto& [indptr, index_bytes] : relations) {
    add_relation(indptr, input.sizes.relations).lists.index_bytes = index_bytes;
  }
  for (const CountTuple& of_gpu : counts) input.counts.push_back(counts_of(of_gpu, input.sizes));
  input.cliques = std::move(cliques);
  input.budget_bytes = std::move(budget_bytes);
  for (std::size_t tier = 0; tier < kNumLinks; ++tier)
    input.links[tier] = {bytes_per_second[tier], seconds_per_line[tier]};
  input.index = index_cost(input.sizes, entry_bytes, scratch_bytes);
  const nb::gil_scoped_release release;
  return make_plan(input);
}

// A number, or an array of one a row.
using SizeOrSizes = std::variant<int64_t, View<uint32_t>>;

SizeOrSizes as_object(const RowSizes& sizes) {
  if (sizes.each.empty()) return sizes.row_bytes;
  auto* copy = new RowSizes(sizes);
  const nb::capsule owner(copy, [](void* kept) noexcept { delete static_cast<RowSizes*>(kept); });
  return view(std::span<const uint32_t>(copy->each), owner);
}

// Arguments as stored_row_bytes() of cache/planner.py gives them.
SizeOrSizes stored_row_bytes(const std::optional<Matrix<uint8_t>>& raw, const std::string& encoded, int64_t num_rows,
                             int64_t num_columns, const std::string& dtype, int64_t row_bytes, bool coded) {
  FeatureRows rows{{num_rows, num_columns, dtype}, row_bytes, nullptr, nullptr};
  if (raw) rows.raw = reinterpret_cast<const std::byte*>(raw->data());
  if (!encoded.empty()) rows.encoded = std::make_shared<HostRows>(HostRows::open(encoded, rows.shape, false));
  return as_object(SlabRows(std::move(rows), coded).sizes());
}

// Of a GPU's slot for such batches, where the largest batch seen had so many nodes and edges.
std::size_t slot_bytes(int64_t num_nodes, int64_t num_relations, int64_t batch_size, const std::vector<int32_t>& fanout,
                       int64_t most_nodes, int64_t most_edges, int64_t label_bytes, bool edge_ids, bool edge_weights,
                       int64_t edge_row_bytes) {
  channel::SlotContents contents{.label_bytes = label_bytes,
                                 .with_e_id = edge_ids || edge_row_bytes > 0,
                                 .with_edge_weight = edge_weights,
                                 .with_row_index = true};
  contents.target_types.assign(static_cast<std::size_t>(num_relations), 0);
  contents.edge_row_bytes = {edge_row_bytes};  // of all relations together
  channel::Batch largest{};
  largest.num_nodes = largest.num_labels = largest.nodes[0].per_hop[0] = most_nodes;
  largest.num_edges = largest.num_local_edges = largest.edges[0].per_hop[0] = most_edges;
  largest.num_seeds = batch_size;
  largest.num_hops = 1;
  const std::size_t most =
      channel::most_slot_bytes(contents, {.num_nodes = num_nodes, .fanout = fanout, .num_seeds = batch_size});
  return most > 0 ? most : channel::slot_bytes(most, channel::lay_out(contents, largest));
}

// Of a pool of rows for batches of which the largest seen had so many nodes, and of what is known of its rows.
int64_t pool_bytes(int64_t num_slots, int64_t num_nodes, int64_t most_nodes, bool reuse, int64_t row_bytes) {
  const int64_t batch_nodes = channel::pool_batch_nodes(most_nodes, num_nodes);
  return channel::pool_rows(num_slots, batch_nodes, num_nodes, reuse) * (row_bytes + kBytesOfPoolRow);
}

void bind_sizes(nb::module_& module) {
  module.def("slot_bytes", &slot_bytes, nb::kw_only(), "num_nodes"_a, "num_relations"_a, "batch_size"_a, "fanout"_a,
             "most_nodes"_a, "most_edges"_a, "label_bytes"_a, "edge_ids"_a, "edge_weights"_a, "edge_row_bytes"_a = 0);
  module.def("pool_bytes", &pool_bytes, nb::kw_only(), "num_slots"_a, "num_nodes"_a, "most_nodes"_a, "reuse"_a,
             "row_bytes"_a);
  module.def("bytes_of_nodes", &bytes_of_nodes, "num_nodes"_a, "label_bytes"_a);
  module.def("takes_topology", &takes_topology, "left_bytes"_a, "topology_bytes"_a);
  module.def("bytes_of_all_raw_rows", &bytes_of_all_raw_rows, "num_rows"_a, "row_bytes"_a);
  module.def("available_host_bytes", &base::available_host_bytes);
}

void bind_plan(nb::module_& module) {
  nb::class_<Use>(module, "Use")
      .def_ro("reads", &Use::reads)
      .def_ro("bytes", &Use::bytes)
      .def_ro("lines", &Use::lines)
      .def_ro("seconds", &Use::seconds);
  nb::class_<Slab>(module, "Slab")
      .def_prop_ro("nodes", &view_of<Slab, &Slab::nodes>)
      .def_ro("bytes", &Slab::bytes)
      .def_ro("num_entries", &Slab::num_entries);
  nb::class_<GpuPlan>(module, "GpuPlan")
      .def_ro("budget_bytes", &GpuPlan::budget_bytes)
      .def_ro("index_bytes", &GpuPlan::index_bytes)
      .def_prop_ro("used_bytes", &GpuPlan::used_bytes)
      .def_prop_ro("alpha", &GpuPlan::alpha)
      .def_prop_ro("seconds", &GpuPlan::seconds)
      .def_prop_ro("features", [](const GpuPlan& self) -> const Slab& { return self.slabs[0]; })
      .def_prop_ro("topology", [](const GpuPlan& self) -> const Slab& { return self.slabs[1]; })
      .def_prop_ro("feature_use", [](const GpuPlan& self) { return self.use[0]; })
      .def_prop_ro("topology_use", [](const GpuPlan& self) { return self.use[1]; });
  nb::class_<CliqueRows>(module, "CliqueRows")
      .def_prop_ro("nodes", &view_of<CliqueRows, &CliqueRows::nodes>)
      .def_prop_ro("owners", &view_of<CliqueRows, &CliqueRows::owners>);
  nb::class_<CliquePlan>(module, "CliquePlan")
      .def_ro("gpus", &CliquePlan::gpus)
      .def_prop_ro("features", [](const CliquePlan& self) -> const CliqueRows& { return self.rows[0]; })
      .def_prop_ro("topology", [](const CliquePlan& self) -> const CliqueRows& { return self.rows[1]; });
  nb::class_<Plan>(module, "Plan")
      .def_prop_ro("seconds", &Plan::seconds)
      .def("filling_bytes", &filling_bytes, "num_nodes"_a)
      .def_prop_ro("num_gpus", [](const Plan& self) { return self.gpus.size(); })
      .def_prop_ro("num_cliques", [](const Plan& self) { return self.cliques.size(); })
      .def(
          "gpu", [](const Plan& self, std::size_t i) -> const GpuPlan& { return self.gpus.at(i); },
          nb::rv_policy::reference_internal)
      .def(
          "clique", [](const Plan& self, std::size_t i) -> const CliquePlan& { return self.cliques.at(i); },
          nb::rv_policy::reference_internal);
}

// Of each relation: indptr, indices, first source and target node.
using RelationTuple = std::tuple<Vector<int64_t>, nb::object, int64_t, int64_t>;

StandIn stand_in(const std::string& policy, const std::vector<RelationTuple>& given, int64_t num_nodes, int64_t picks) {
  std::vector<RelationLists> relations;
  for (const auto& [indptr, indices, first_source, first_target] : given) {
    RelationLists& relation = add_relation(indptr, relations);
    relation.first_source = first_source;
    relation.first_target = first_target;
    const auto take = [&lists = relation.lists](const auto& array) {
      const auto wanted = static_cast<std::size_t>(lists.indptr[lists.num_nodes]), found = array.shape(0);
      if (found != wanted) throw base::Error({"indices", std::to_string(wanted), std::to_string(found), ""});
      lists.num_edges = static_cast<int64_t>(array.shape(0));
      lists.indices = array.data();
      lists.index_bytes = static_cast<int>(array.itemsize());
    };
    Vector<int32_t> narrow;  // of the array itself: a converted copy would end with this round
    if (nb::try_cast(indices, narrow, false)) {
      take(narrow);
    } else {
      take(nb::cast<Vector<int64_t>>(indices, false));
    }
  }
  const nb::gil_scoped_release release;
  return counts_of_policy(policy, relations, num_nodes, picks);
}

void bind_stand_in(nb::module_& module) {
  nb::class_<StandIn>(module, "StandIn")
      .def_prop_ro("reads", &view_of<StandIn, &StandIn::reads>)
      .def_prop_ro("expansions", &view_of<StandIn, &StandIn::expansions>)
      .def_prop_ro("edges_read", &view_of<StandIn, &StandIn::edges_read>);
  module.def("stored_row_bytes", &stored_row_bytes, "raw"_a.none(), "encoded"_a, "num_rows"_a, "num_columns"_a,
             "dtype"_a, "row_bytes"_a, "coded"_a);
  module.def("stand_in", &stand_in, "policy"_a, "relations"_a, "num_nodes"_a, "picks"_a);
}

void bind_hotness(nb::module_& module) {
  nb::class_<Hotness>(module, "Hotness")
      .def_static(
          "load", [](const std::string& path) { return Hotness::load(path); }, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("fanout", [](const Hotness& self) { return self.key().fanout; })
      .def_prop_ro("batch_size", [](const Hotness& self) { return self.key().batch_size; })
      .def_prop_ro("num_batches", &Hotness::num_batches)
      .def_prop_ro("max_batch_nodes", &Hotness::max_batch_nodes)
      .def_prop_ro("max_batch_edges", &Hotness::max_batch_edges)
      .def_prop_ro("node_reads", &view_of<Hotness, &Hotness::node_reads>)
      .def_prop_ro("expansions", &view_of<Hotness, &Hotness::expansions>)
      .def_prop_ro("edges_read", &view_of<Hotness, &Hotness::edges_read>)
      .def_prop_ro("promised", [](nb::handle self) {
        const Promises promises = nb::cast<const Hotness&>(self).promises();
        return nb::make_tuple(view(promises.reads, self), view(promises.expansions, self));
      });
}

}  // namespace
}  // namespace cohort::cache

NB_MODULE(_native, module) {
  using namespace cohort;
  base::raise_errors_as_cohort_error();
  cache::bind_plan(module);
  cache::bind_sizes(module);
  cache::bind_hotness(module);
  cache::bind_stand_in(module);
  module.def("plan", &cache::plan, nb::kw_only(), "tables"_a, "relations"_a, "counts"_a, "cliques"_a, "budget_bytes"_a,
             "bytes_per_second"_a, "seconds_per_line"_a, "entry_bytes"_a, "scratch_bytes"_a, "pool_slots"_a,
             "machines"_a, "network_bytes_per_second"_a);
  module.attr("NETWORK_BYTES_PER_SECOND") = cache::kNetworkBytesPerSecond;
  module.def("cliques_named", &cache::cliques_named, "text"_a, "num_gpus"_a);
  module.attr("MAX_CLIQUE_GPUS") = cache::kMaxCliqueGpus;
}
