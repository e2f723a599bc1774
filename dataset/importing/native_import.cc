#include "dataset/importing/native_import.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "base/check.h"
#include "dataset/interruptible.h"
#include "dataset/sorting/edge_sorter.h"
#include "dataset/sorting/id_map.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::dataset {
namespace {

using Strided = nb::ndarray<const int64_t, nb::ndim<1>, nb::device::cpu>;  // int64 [any], maybe a column
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Ends ends_of(const Strided& ids) { return {ids.data(), ids.stride(0)}; }

std::span<const int64_t> span_of(const Ids& ids) { return {ids.data(), ids.shape(0)}; }

// An IdMap with the arrays that it looks into.
struct OwningIdMap {
  OwningIdMap(Ids ids_in, Ids nodes_in)
      : ids(std::move(ids_in)), nodes(std::move(nodes_in)), map(span_of(ids), span_of(nodes)) {}
  Ids ids, nodes;
  IdMap map;
};

SelfLoops self_loops_named(const std::string& name) {
  if (name == "keep") return SelfLoops::kKeep;
  if (name == "remove") return SelfLoops::kRemove;
  if (name == "add") return SelfLoops::kAdd;
  throw base::Error({"--self-loops", "keep, remove or add", name, ""});
}

void make_edge_sorter(EdgeSorter* self, const std::filesystem::path& folder, std::size_t memory_bytes,
                      const std::string& place, int64_t num_nodes, bool transpose, bool reverse, bool dedupe,
                      const std::string& self_loops, bool weighted) {
  new (self) EdgeSorter(folder, memory_bytes,
                        {place, num_nodes, transpose, reverse, dedupe, self_loops_named(self_loops), weighted});
}

void add_edges(EdgeSorter& self, const Strided& src, const Strided& dst, const OwningIdMap* ids,
               const std::optional<Weights>& weights) {
  base::require(src.shape(0) == dst.shape(0), "as many sources as destinations");
  base::require(!weights || weights->shape(0) == src.shape(0), "as many weights as edges");
  run_interruptibly([&](const std::stop_token& stop) {
    self.add(ends_of(src), ends_of(dst), static_cast<int64_t>(src.shape(0)), ids ? &ids->map : nullptr, stop,
             weights ? weights->data() : nullptr);
  });
}

// progress(edges written so far) is called now and then.
void write_graph(EdgeSorter& self, const std::filesystem::path& folder, const nb::callable& progress) {
  run_interruptibly([&](const std::stop_token& stop) { self.write(folder, stop); },
                    [&] { progress(self.edges_written()); });
  progress(self.edges_written());
}

void add_ids(IdSorter& self, const Strided& ids) {
  run_interruptibly([&](const std::stop_token& stop) {
    self.add(ids.data(), ids.stride(0), static_cast<int64_t>(ids.shape(0)), stop);
  });
}

void write_ids(IdSorter& self, const std::filesystem::path& path) {
  run_interruptibly([&](const std::stop_token& stop) { self.write(path, stop); });
}

}  // namespace

void register_import(nb::module_& m) {
  nb::class_<OwningIdMap>(m, "IdMap", "Finds the nodes of arbitrary ids.")
      .def(nb::init<Ids, Ids>(), "ids"_a, "nodes"_a,
           "ids int64 [V], strictly ascending; nodes int64 [V], or [0] when id i is node i.");
  nb::class_<IdSorter>(m, "IdSorter", "Collects the distinct ids of a graph, more than memory holds.")
      .def(nb::init<const std::filesystem::path&, std::size_t>(), "folder"_a, "memory_bytes"_a)
      .def("add", &add_ids, "ids"_a, "int64 [any]")
      .def("write", &write_ids, "path"_a, "Writes them, ascending, into an .npy file, int64 [V].");
  nb::class_<EdgeSorter>(m, "EdgeSorter",
                         "Edges in any order, more than memory holds, sorted by destination and source.")
      .def("__init__", &make_edge_sorter, nb::kw_only(), "folder"_a, "memory_bytes"_a, "place"_a, "num_nodes"_a,
           "transpose"_a, "reverse"_a, "dedupe"_a, "self_loops"_a, "weighted"_a = false,
           "num_nodes -1: as many as the edges name; weighted: equal edges that come once add up.")
      .def("add", &add_edges, "src"_a, "dst"_a, "ids"_a.none(), "weights"_a.none() = nb::none(),
           "int64 [n] each, weights float32 [n] where edges have them; with `ids` ends are ids, else nodes.")
      .def("write", &write_graph, "folder"_a, "progress"_a,
           "Writes indptr.npy, indices.npy and, with weights, edge_weights.npy.")
      .def_prop_ro("num_nodes", &EdgeSorter::num_nodes)
      .def_prop_ro("edges_read", &EdgeSorter::edges_read)
      .def_prop_ro("edges_written", &EdgeSorter::edges_written);
}

}  // namespace cohort::dataset
