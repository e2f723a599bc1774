// cohort.dataset._native: the C++ library as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "base/nanobind_errors.h"
#include "base/nanobind_path.h"
#include "dataset/appending/merge.h"
#include "dataset/check.h"
#include "dataset/dataset.h"
#include "dataset/drawn_lists.h"
#include "dataset/generating/features.h"
#include "dataset/generating/generate.h"
#include "dataset/interruptible.h"
#include "dataset/output.h"
#include "dataset/parallel.h"
#include "dataset/partitioning/partition.h"
#include "dataset/passes.h"
#include "dataset/reverses.h"
#include "dataset/sorting/edge_sorter.h"
#include "dataset/sorting/id_map.h"
#include "dataset/sorting/text_map.h"
#include "dataset/take_rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cohort::dataset {
namespace {

using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // int32 or int64

// Of one relation: number of its source type and of its target type, indptr, indices, and what is said of its reverse.
using OfRelation = std::tuple<int, int, Ids, Indices, int>;

// Whether they ascend from 0 to `count`.
bool are_offsets(std::span<const int64_t> offsets, int64_t count) {
  return !offsets.empty() && offsets.front() == 0 && offsets.back() == count &&
         scan(std::ssize(offsets) - 1, {}, [&](int64_t i) { return offsets[i + 1] < offsets[i]; }).first < 0;
}

base::CscRef csc_of(const Ids& indptr, const Indices& indices) {
  const base::CscRef csc{static_cast<int64_t>(indptr.shape(0)) - 1, static_cast<int64_t>(indices.shape(0)),
                         indptr.data(), indices.data(), static_cast<int>(indices.itemsize())};
  if (!are_offsets({indptr.data(), indptr.shape(0)}, csc.num_edges)) {
    throw base::Error({"indptr of a relation", "ascending offsets from 0 to the number of edges", "others",
                       "cohort dataset check says which"});
  }
  return csc;
}

std::vector<RelationLists> lists_of(const std::vector<OfRelation>& relations) {
  std::vector<RelationLists> lists;
  for (const auto& [source, target, indptr, indices, reverse_of] : relations) {
    lists.push_back({source, target, csc_of(indptr, indices), reverse_of});
  }
  return lists;
}

// Of each relation: reverse_of, and where its edges are.
auto reverses_of(const std::vector<OfRelation>& relations) {
  const std::vector<RelationLists> lists = lists_of(relations);
  std::vector<std::pair<int, std::vector<std::pair<int, bool>>>> out;
  const std::vector<int> found = run_interruptibly([&](const std::stop_token&) { return find_reverses(lists); });
  for (std::size_t relation = 0; relation < lists.size(); ++relation) {
    auto& [reverse_of, there] = out.emplace_back();
    reverse_of = found[relation];
    for (const auto& [other, reversed] : same_edges(lists, found, static_cast<int>(relation))) {
      there.emplace_back(other, reversed);
    }
  }
  return out;
}

void demand_nodes(const Ids& ids, const char* place, int64_t num_nodes, const std::stop_token& stop) {
  const int64_t* const values = ids.data();
  const Scan bad = scan(static_cast<int64_t>(ids.shape(0)), stop,
                        [=](int64_t i) { return values[i] < 0 || values[i] >= num_nodes; });
  if (bad.first < 0) return;
  throw base::Error({base::format("{}[{}]", place, bad.first), base::format("a node in [0, {})", num_nodes),
                     std::to_string(values[bad.first]), "nodes are numbered from 0, one per feature row"});
}

nb::list check_folder(const std::filesystem::path& folder) {
  const auto problems = run_interruptibly([&](const std::stop_token& stop) { return check(folder, stop); });
  nb::list out;
  for (const Problem& p : problems) {
    out.append(nb::make_tuple(base::text(p.place), base::text(p.expected), base::text(p.found), base::text(p.hint)));
  }
  return out;
}

GenerateOptions options_of(const std::string& kind, int64_t nodes, int64_t edges, int64_t dim, const std::string& dtype,
                           int64_t classes, uint64_t seed, const std::array<double, 3>& split, bool undirected,
                           bool edge_weights, int64_t edge_dim) {
  const auto graph_kind = kind_named(kind);
  if (!graph_kind) throw base::Error({"--kind", "sbm, powerlaw or rmat", kind, ""});
  const auto feature_dtype = dtype_named(dtype);
  if (!feature_dtype) throw base::Error({"--dtype", "uint8, float16, bfloat16 or float32", dtype, ""});
  return {.kind = *graph_kind,
          .num_nodes = nodes,
          .num_edges = edges,
          .feature_dim = dim,
          .feature_dtype = *feature_dtype,
          .num_classes = classes,
          .seed = seed,
          .split = split,
          .undirected = undirected,
          .edge_weights = edge_weights,
          .edge_dim = edge_dim};
}

void generate_folder(const std::filesystem::path& out, GenerateOptions options, bool overwrite) {
  options.overwrite = overwrite;
  run_interruptibly([&](const std::stop_token& stop) { generate(out, options, stop); });
}

void generate_graph_into(const std::filesystem::path& folder, const std::string& name, const GenerateOptions& options) {
  run_interruptibly([&](const std::stop_token& stop) { generate_graph(folder, name, options, stop); });
}

using Bytes = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // uint8 [n, row bytes], written
using ConstBytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::span<const int64_t> span_of(const Ids& ids) { return {ids.data(), ids.shape(0)}; }

void generate_rows(const FeatureGenerator& rows, const Ids& labels, const Ids& nodes, const Bytes& out) {
  base::require(out.shape(0) == nodes.shape(0) && out.shape(1) == rows.row_bytes(), "out of shape [nodes, row bytes]");
  demand_nodes(nodes, "nodes", static_cast<int64_t>(labels.shape(0)), {});
  const nb::gil_scoped_release release;
  rows.take(span_of(labels), span_of(nodes), reinterpret_cast<std::byte*>(out.data()), {});
}

void take_rows_of(const ConstBytes& rows, const Ids& ids, const Bytes& out) {
  base::require(out.shape(0) == ids.shape(0) && out.shape(1) == rows.shape(1), "out of shape [ids, row bytes]");
  demand_nodes(ids, "ids", static_cast<int64_t>(rows.shape(0)), {});
  const nb::gil_scoped_release release;
  take_rows(reinterpret_cast<const std::byte*>(rows.data()), rows.shape(1), span_of(ids),
            reinterpret_cast<std::byte*>(out.data()));
}

using Digests = nb::ndarray<uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // uint64 [n], written
using Marks = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;        // bool [nodes], written
using ConstMarks = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using Look = std::optional<nb::callable>;  // is called about 20 times a second; what it raises ends the work

void look_at(const Look& look) {
  if (look) (*look)();
}

void digest_rows_of(const ConstBytes& rows, const Digests& digests, const std::optional<Ids>& indptr,
                    const Look& look) {
  const auto count = static_cast<int64_t>(rows.shape(0));
  base::require(indptr ? indptr->shape(0) == digests.shape(0) + 1 && are_offsets(span_of(*indptr), count)
                       : rows.shape(0) == digests.shape(0),
                "a digest for each row, or for each list of an indptr that leads to all rows");
  const auto work = [&](const std::stop_token& stop) {
    digest_rows(reinterpret_cast<const std::byte*>(rows.data()), rows.shape(1), indptr ? indptr->data() : nullptr,
                {digests.data(), digests.shape(0)}, stop);
  };
  run_interruptibly(work, [&] { look_at(look); });
}

// The indices are nodes of the sources' type, as demand_in_range() has seen.
void mark_targets_of(const Ids& indptr, const Indices& indices, const ConstMarks& is_marked, const Marks& reached,
                     const Look& look) {
  const base::CscRef csc = csc_of(indptr, indices);
  base::require(static_cast<int64_t>(reached.shape(0)) == csc.num_nodes, "a mark for each target");
  const std::span marks{is_marked.data(), is_marked.shape(0)};
  const auto work = [&](const std::stop_token& stop) { mark_targets(csc, marks, reached.data(), stop); };
  run_interruptibly(work, [&] { look_at(look); });
}

using Degrees = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;  // int32 [targets], written

void count_degrees_of(const Ids& indptr, const Indices& indices, const Degrees& degrees,
                      const std::optional<Ids>& times, int64_t oldest, int64_t latest) {
  const base::CscRef csc = csc_of(indptr, indices);
  base::require(static_cast<int64_t>(degrees.shape(0)) == csc.num_nodes, "a degree for each target");
  base::require(!times || static_cast<int64_t>(times->shape(0)) == csc.num_edges, "a time for each edge");
  run_interruptibly([&](const std::stop_token& stop) {
    count_degrees(csc, times ? times->data() : nullptr, oldest, latest, degrees.data(), stop);
  });
}

using NumpyIds = nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>;

NumpyIds owned_ids(std::vector<int64_t> ids) {
  auto* const kept = new std::vector<int64_t>(std::move(ids));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
  return {kept->data(), {kept->size()}, owner};
}

// Of a data set whose lists are as its checks want them: offsets are not looked at again.
std::tuple<NumpyIds, NumpyIds, NumpyIds> lists_of_nodes(const Ids& indptr, const Indices& indices, const Ids& nodes,
                                                        const Ids& keys, const Ids& new_sources, const Ids& new_targets,
                                                        int64_t most, uint64_t seed, int64_t most_edges,
                                                        const std::optional<Ids>& times,
                                                        const std::optional<Ids>& new_times, bool are_numbered,
                                                        int64_t oldest, int64_t latest) {
  base::require(keys.shape(0) == nodes.shape(0), "a key for each node");
  base::require(new_sources.shape(0) == new_targets.shape(0), "a source for each target");
  base::require(!times || times->shape(0) == indices.shape(0), "a time for each edge");
  base::require(times.has_value() == new_times.has_value() && (!times || new_times->shape(0) == new_sources.shape(0)),
                "a time for each new edge, where edges have times");
  const base::CscRef csc{static_cast<int64_t>(indptr.shape(0)) - 1, static_cast<int64_t>(indices.shape(0)),
                         indptr.data(), indices.data(), static_cast<int>(indices.itemsize())};
  demand_nodes(nodes, "nodes", INT64_MAX, {});
  ListsCall call{csc, span_of(nodes), span_of(keys), span_of(new_sources), span_of(new_targets)};
  if (times) {
    call.times = span_of(*times);
    call.new_times = span_of(*new_times);
    call.oldest = oldest;
    call.latest = latest;
  }
  call.are_numbered = are_numbered;
  call.most = most;
  call.seed = seed;
  call.most_edges = most_edges;
  Lists lists = [&] {
    const nb::gil_scoped_release release;
    return draw_lists(call);
  }();
  return {owned_ids(std::move(lists.offsets)), owned_ids(std::move(lists.sources)), owned_ids(std::move(lists.places))};
}

std::pair<NumpyIds, NumpyIds> numbered_nodes(const Ids& first, const Ids& nodes) {
  demand_nodes(first, "first", INT64_MAX, {});
  demand_nodes(nodes, "nodes", INT64_MAX, {});
  Numbered numbered = number_nodes(span_of(first), span_of(nodes));
  return {owned_ids(std::move(numbered.others)), owned_ids(std::move(numbered.places))};
}

void demand_folder_in_range(const std::filesystem::path& folder, const Look& look) {
  const auto work = [&](const std::stop_token& stop) { demand_in_range(Dataset::open(folder, Rows::kRaw), stop); };
  run_interruptibly(work, [&] { look_at(look); });
}

// Of each node type, or relation: the file of encoded rows ("": none), and whether there are raw ones.
using FoundRows = std::vector<std::pair<std::string, bool>>;

// Of the node types and of the relations, after the cheap checks.
std::pair<FoundRows, FoundRows> find_rows(const std::filesystem::path& folder, bool prefer_raw) {
  const Dataset data = Dataset::open(folder, prefer_raw ? Rows::kRaw : Rows::kAny);
  FoundRows of_nodes, of_edges;
  for (int type = 0; type < static_cast<int>(data.meta().node_types.size()); ++type) {
    of_nodes.emplace_back(data.encoded_rows_of(type).string(), data.features_of(type).is_mapped());
  }
  for (int relation = 0; relation < static_cast<int>(data.meta().edge_types.size()); ++relation) {
    of_edges.emplace_back(data.encoded_edge_rows_of(relation).string(), data.edge_features_of(relation).is_mapped());
  }
  return {of_nodes, of_edges};
}

PartitionOptions partition_options(const std::string& method, int64_t num_parts, uint64_t seed, int64_t memory_bytes) {
  const auto named = partition_method_named(method);
  if (!named) throw base::Error({"--method", "metis, streaming or random", method, ""});
  return {*named, num_parts, seed, memory_bytes};
}

nb::ndarray<nb::numpy, int32_t, nb::ndim<1>> partition_folder(const std::filesystem::path& folder,
                                                              const std::string& method, int64_t num_parts,
                                                              uint64_t seed, int64_t memory_bytes) {
  const PartitionOptions options = partition_options(method, num_parts, seed, memory_bytes);
  auto* const parts = new std::vector<int32_t>;
  const nb::capsule owner(parts, [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  *parts = run_interruptibly([&](const std::stop_token& stop) {
    const Dataset data = Dataset::open(folder, Rows::kRaw);
    demand_in_range(data, stop);
    return partition(data, options, stop);
  });
  return {parts->data(), {parts->size()}, owner};
}

// --- imports ---

using Strided = nb::ndarray<const int64_t, nb::ndim<1>, nb::device::cpu>;  // int64 [any], maybe a column
using WritableIds = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Times = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using TextBytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Weights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Ends ends_of(const Strided& ids) { return {ids.data(), ids.stride(0)}; }

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
                      const std::string& self_loops, bool weighted, bool timed, bool numbered, int64_t num_sources,
                      const std::string& source_type, const std::string& target_type) {
  new (self) EdgeSorter(folder, memory_bytes,
                        {place, num_nodes, transpose, reverse, dedupe, self_loops_named(self_loops), weighted, timed,
                         numbered, num_sources, source_type, target_type});
}

// int64 [n]: -1 for ids that there are not. The result fills `nodes`.
void find_nodes(const OwningIdMap& self, const Strided& ids, const WritableIds& nodes) {
  base::require(ids.shape(0) == nodes.shape(0), "a place for the node of each id");
  run_interruptibly([&](const std::stop_token& stop) {
    for_chunks(static_cast<int64_t>(ids.shape(0)), stop, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) nodes.data()[i] = self.map.node(ids.data()[i * ids.stride(0)]);
    });
  });
}

// Texts of Arrow's type large_string.
Texts texts_of(const Ids& offsets, const TextBytes& bytes) {
  const auto ends = span_of(offsets);
  base::require(!ends.empty() && ends.front() >= 0 && std::is_sorted(ends.begin(), ends.end()) &&
                    ends.back() <= static_cast<int64_t>(bytes.shape(0)),
                "ascending offsets into the bytes");
  return {ends, reinterpret_cast<const char*>(bytes.data())};
}

void make_text_map(TextMap* self, const Ids& offsets, const TextBytes& bytes) {
  run_interruptibly([&](const std::stop_token& stop) { new (self) TextMap(texts_of(offsets, bytes), stop); });
}

// int64 [n]: -1 for texts that there are not. The result fills `nodes`.
void find_texts(const TextMap& self, const Ids& offsets, const TextBytes& bytes, const WritableIds& nodes) {
  run_interruptibly([&](const std::stop_token& stop) {
    self.find(texts_of(offsets, bytes), {nodes.data(), nodes.shape(0)}, stop);
  });
}

void add_edges(EdgeSorter& self, const Strided& src, const Strided& dst, const OwningIdMap* ids,
               const std::optional<Weights>& weights, const std::optional<Times>& times) {
  base::require(src.shape(0) == dst.shape(0), "as many sources as destinations");
  base::require(!weights || weights->shape(0) == src.shape(0), "as many weights as edges");
  base::require(!times || times->shape(0) == src.shape(0), "as many times as edges");
  run_interruptibly(
      [&](const std::stop_token& stop) {
        self.add(ends_of(src), ends_of(dst), static_cast<int64_t>(src.shape(0)), ids ? &ids->map : nullptr, stop,
                 weights ? weights->data() : nullptr, times ? times->data() : nullptr);
      },
      [&] {
        if (self.stopped()) throw Interrupted();
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

// --- appended edges ---

using ThreePaths = std::array<std::filesystem::path, 3>;  // of an array as it was, what comes to it, and the result

EdgeOrder edge_order_named(const std::string& name) {
  if (name == "source") return EdgeOrder::kSource;
  if (name == "weight") return EdgeOrder::kWeight;
  if (name == "time") return EdgeOrder::kTime;
  base::require(name == "time alone", "an order of edges");
  return EdgeOrder::kTimeAlone;
}

// The number of edges, and the nodes int64 [any] whose lists are others than before.
std::pair<int64_t, nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>> merge_edges_of(
    const std::string& place, const std::string& order, bool dedupe, bool has_loops, const ThreePaths& indptr,
    const ThreePaths& indices, const std::vector<ThreePaths>& beside,
    const std::optional<std::array<std::filesystem::path, 2>>& removed) {
  const auto files = [](const ThreePaths& paths) { return ArrayOfEdges{paths[0], paths[1], paths[2]}; };
  MergeOptions options{place, edge_order_named(order), dedupe, has_loops, files(indptr), files(indices), {}};
  for (const ThreePaths& paths : beside) options.beside.push_back(files(paths));
  if (removed) std::tie(options.removed_indptr, options.removed_indices) = std::tie((*removed)[0], (*removed)[1]);
  auto* const result = new MergeResult;
  const nb::capsule owner(result, [](void* p) noexcept { delete static_cast<MergeResult*>(p); });
  *result = run_interruptibly([&](const std::stop_token& stop) { return merge_edges(options, stop); });
  return {result->num_edges, {result->changed.data(), {result->changed.size()}, owner}};
}

// Functions of rows and lists of in-neighbours.
void add_rows(nb::module_& m) {
  m.def("take_rows", &take_rows_of, "rows"_a, "ids"_a, "out"_a,
        "out[i] = rows[ids[i]]: uint8 [V, row bytes], int64 [n] -> uint8 [n, row bytes], filled in place.");
  m.def("count_degrees", &count_degrees_of, "indptr"_a, "indices"_a, "degrees"_a, "times"_a = nb::none(),
        "oldest"_a = 0, "latest"_a = 0,
        "degrees[v] = the in-neighbours of v but v itself, int32 [targets], filled in place; with times int64 [E], by "
        "edges of a time in [oldest, latest].");
  m.def("digest_rows", &digest_rows_of, "rows"_a, "digests"_a, "indptr"_a = nb::none(), "look"_a = nb::none(),
        "uint8 [n, row bytes], uint64 [n]: digests[i] becomes that of itself and row i; with indptr int64 [m + 1] and "
        "uint64 [m], of itself and rows indptr[i] to indptr[i + 1]. look() is called about 20 times a second; what it "
        "raises ends the work.");
  m.def(
      "mark_targets", &mark_targets_of, "indptr"_a, "indices"_a, "is_marked"_a, "reached"_a, "look"_a = nb::none(),
      "reached[v] becomes true where one of the in-neighbours of v is marked: bool [sources] -> bool [targets], filled "
      "in place. look() as above.");
  m.def(
      "lists_of_nodes", &lists_of_nodes, "indptr"_a, "indices"_a, "nodes"_a, "keys"_a, "new_sources"_a, "new_targets"_a,
      "most"_a, "seed"_a, "most_edges"_a, "times"_a = nb::none(), "new_times"_a = nb::none(), "are_numbered"_a = false,
      "oldest"_a = INT64_MIN, "latest"_a = INT64_MAX,
      "(offsets int64 [n + 1], sources int64 [m], places int64 [m]) of the lists of in-neighbours of nodes int64 [n], "
      "with new edges where a data set of all would have them; of longer lists than `most`, if that is not -1, so many "
      "are drawn, by the seed and the node's key int64 [n]. A place is that of an edge in `indices`; of the i-th new "
      "edge it is the number of edges there, plus i. With times int64 [E], by which each list ascends, and those of "
      "new edges, lists have the edges of a time in [oldest, latest]; new edges of equal times stay in their order if "
      "`are_numbered`. No sources if there are more than `most_edges`.");
  m.def("numbered_nodes", &numbered_nodes, "first"_a, "nodes"_a,
        "(the nodes that are not among the first ones, each once; for each node its place among the first and then "
        "these): int64 [n], each once, and int64 [m] -> int64 [k], int64 [m].");
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Cohort data sets: generating, checking and writing, in C++.";
  base::raise_errors_as_cohort_error();
  m.def("check", &check_folder, "folder"_a, "All problems of a data set, as (place, expected, found, hint).");
  m.def("demand_in_range", &demand_folder_in_range, "folder"_a, "look"_a = nb::none(),
        "Refuses offsets and ids that lead out of the arrays. look() is called about 20 times a second; what it raises "
        "ends the work.");
  m.def("find_rows", &find_rows, "folder"_a, "prefer_raw"_a,
        "After the cheap checks, of each node type and then of each relation: the file of encoded rows, empty without, "
        "and whether there are raw ones.");
  nb::class_<GenerateOptions>(m, "GenerateOptions", "A random data set, whole or in parts.")
      .def(nb::new_(&options_of), nb::kw_only(), "kind"_a, "nodes"_a, "edges"_a, "dim"_a, "dtype"_a, "classes"_a,
           "seed"_a, "split"_a, "undirected"_a, "edge_weights"_a, "edge_dim"_a = 0);
  m.def("generate", &generate_folder, "out"_a, "options"_a, "overwrite"_a, "Writes a random data set.");
  m.def("generate_graph", &generate_graph_into, "folder"_a, "name"_a, "options"_a,
        "Writes all but the features into an existing folder.");
  nb::class_<FeatureGenerator>(m, "FeatureGenerator", "The feature rows of a random data set, in any order.")
      .def(nb::init<const GenerateOptions&>(), "options"_a)
      .def_prop_ro("row_bytes", &FeatureGenerator::row_bytes)
      .def("write", &generate_rows, "labels"_a, "nodes"_a, "out"_a,
           "labels int64 [V], nodes int64 [n] -> out uint8 [n, row_bytes], filled in place.");
  add_rows(m);
  m.def("partition", &partition_folder, "folder"_a, nb::kw_only(), "method"_a, "num_parts"_a, "seed"_a,
        "memory_bytes"_a, "int32 [V]: the part of each node; memory_bytes 0: what the machine has left.");
  m.def("has_metis", &has_metis);
  m.def(
      "merge_edges", &merge_edges_of, nb::kw_only(), "place"_a, "order"_a, "dedupe"_a, "has_loops"_a, "indptr"_a,
      "indices"_a, "beside"_a, "removed"_a.none(),
      "Puts new edges into the lists of a relation, and takes edges out of them: of each array the file as it was, the "
      "file of what comes, and the file to write; removed: indptr and indices. Returns the number of edges, and the "
      "nodes whose lists are others than before; see dataset/appending/merge.h.");
  m.def("reverses", &reverses_of, "relations"_a,
        "Of each (source type, target type, indptr int64 [V + 1], indices int32 or int64 [E], reverse_of): its "
        "reverse_of, and where its edges are, [(relation, in the other direction)]; see dataset/reverses.h.");
  nb::class_<OutputFolder>(m, "OutputFolder", "A folder that appears whole (commit) or not at all (discard).")
      .def(nb::init<const std::filesystem::path&, bool, bool>(), "out"_a, "overwrite"_a, "keeps_others"_a)
      .def_prop_ro("path", &OutputFolder::path)
      .def_prop_ro("out", &OutputFolder::out)
      .def("commit",
           [](OutputFolder& folder) { run_interruptibly([&](const std::stop_token& stop) { folder.commit(stop); }); })
      .def("discard", &OutputFolder::discard);
  nb::class_<OwningIdMap>(m, "IdMap", "Finds the nodes of arbitrary ids.")
      .def(nb::init<Ids, Ids>(), "ids"_a, "nodes"_a,
           "ids int64 [V], strictly ascending; nodes int64 [V], or [0] when id i is node i.")
      .def("find", &find_nodes, "ids"_a, "nodes"_a,
           "nodes[i] = the node of ids[i], or -1: int64 [n] -> int64 [n], filled in place.");
  nb::class_<TextMap>(m, "TextMap", "Finds the nodes of ids that are texts.")
      .def("__init__", &make_text_map, "offsets"_a, "bytes"_a,
           "Of text i, which is node i, the bytes are bytes[offsets[i]:offsets[i + 1]]: int64 [V + 1], uint8 [any]; of "
           "equal texts, the first is found.")
      .def("find", &find_texts, "offsets"_a, "bytes"_a, "nodes"_a,
           "nodes[i] = the node of text i, or -1: int64 [n + 1], uint8 [any] -> int64 [n], filled in place.")
      .def_prop_ro("distinct", &TextMap::distinct)
      .def_prop_ro("nbytes", &TextMap::bytes);
  nb::class_<IdSorter>(m, "IdSorter", "Collects the distinct ids of a graph, more than memory holds.")
      .def(nb::init<const std::filesystem::path&, std::size_t>(), "folder"_a, "memory_bytes"_a)
      .def("add", &add_ids, "ids"_a, "int64 [any]")
      .def("write", &write_ids, "path"_a, "Writes them, ascending, into an .npy file, int64 [V].");
  nb::class_<EdgeSorter>(m, "EdgeSorter",
                         "Edges in any order, more than memory holds, sorted by destination and source.")
      .def("__init__", &make_edge_sorter, nb::kw_only(), "folder"_a, "memory_bytes"_a, "place"_a, "num_nodes"_a,
           "transpose"_a = false, "reverse"_a = false, "dedupe"_a = false, "self_loops"_a = "keep",
           "weighted"_a = false, "timed"_a = false, "numbered"_a = false, "num_sources"_a = -1, "source_type"_a = "",
           "target_type"_a = "",
           "num_nodes -1: as many as the edges name; weighted: equal edges that come once add up; numbered: write the "
           "number of each edge among those that were added. Between two types, num_nodes are those of the target "
           "type.")
      .def("add", &add_edges, "src"_a, "dst"_a, "ids"_a.none(), "weights"_a.none() = nb::none(),
           "times"_a.none() = nb::none(),
           "int64 [n] each, weights float32 [n] or times int64 [n] where edges have them; with `ids` ends are ids, "
           "else nodes.")
      .def("stop", &EdgeSorter::stop, "Ends add() in another thread with RuntimeError.")
      .def("write", &write_graph, "folder"_a, "progress"_a,
           "Writes indptr.npy, indices.npy and, with weights, times or numbers, edge_weights.npy, edge_times.npy or "
           "edge_numbers.npy.")
      .def_prop_ro("num_nodes", &EdgeSorter::num_nodes)
      .def_prop_ro("edges_read", &EdgeSorter::edges_read)
      .def_prop_ro("edges_written", &EdgeSorter::edges_written);
}

}  // namespace cohort::dataset
