#include "dataset/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/format.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr const char* kFiniteHint = "replace it in the source, e.g. with numpy.nan_to_num, and import again";
constexpr std::array<const char*, 3> kSplitNames = {"train_ids", "val_ids", "test_ids"};

std::string more(const Scan& bad) { return bad.count == 1 ? "" : base::format(" ({} such places)", bad.count); }

// The place of an element, by row and column where there are columns.
std::string place_of(const MappedArray& array, int64_t element) {
  if (array.shape().size() < 2) return base::format("{}[{}]", array.place(), element);
  const int64_t width = array.shape()[1];
  return base::format("{}[{}, {}]", array.place(), element / width, element % width);
}

// Appends the problem of element `bad.first`, unless there is none.
void report(std::vector<Problem>& problems, const MappedArray& array, const Scan& bad, const std::string& expected,
            const std::string& found, const char* hint = kImportAgain) {
  if (bad.first < 0) return;
  problems.push_back({place_of(array, bad.first), expected, found + more(bad), hint});
}

// Scans the elements of a large array in pieces, of each of which no page stays in memory.
template <typename IsBad>
Scan scan_in_pieces(const MappedArray& array, const std::stop_token& stop, IsBad is_bad) {
  constexpr int64_t kPiece = int64_t{1} << 26;
  Scan all;
  for (int64_t first = 0; first < array.size(); first += kPiece) {
    const Scan bad = scan(std::min(kPiece, array.size() - first), stop, [&](int64_t i) { return is_bad(first + i); });
    if (all.first < 0 && bad.first >= 0) all.first = first + bad.first;
    all.count += bad.count;
    array.release();
  }
  return all;
}

// What a number of a node of this type must be.
std::string node_in(const Dataset& data, int type) {
  const NodeType& nodes = data.meta().node_types[static_cast<std::size_t>(type)];
  return data.is_typed() ? base::format("a node of type {} in [0, {})", nodes.name, nodes.num_nodes)
                         : base::format("a node in [0, {})", nodes.num_nodes);
}

void check_indptr(const MappedArray& array, std::vector<Problem>& problems, const std::stop_token& stop) {
  if (!array.is_mapped()) return;
  const int64_t* indptr = array.as<int64_t>().data();
  const Scan bad = scan(array.size() - 1, stop, [&](int64_t v) { return indptr[v + 1] < indptr[v]; });
  if (bad.first < 0) return;
  report(problems, array, {bad.first + 1, bad.count}, base::format("at least {}, the value before", indptr[bad.first]),
         std::to_string(indptr[bad.first + 1]));
}

template <typename Index>
void check_sources(const MappedArray& array, int64_t num_sources, const std::string& expected,
                   std::vector<Problem>& problems, const std::stop_token& stop) {
  const Index* values = array.as<Index>().data();
  const Scan bad = scan_in_pieces(array, stop, [&](int64_t i) { return values[i] < 0 || values[i] >= num_sources; });
  if (bad.first >= 0) report(problems, array, bad, expected, std::to_string(values[bad.first]));
}

void check_edges(const Dataset& data, std::vector<Problem>& problems, const std::stop_token& stop) {
  for (int relation = 0; relation < static_cast<int>(data.meta().edge_types.size()); ++relation) {
    check_indptr(data.indptr_array(relation), problems, stop);
    const MappedArray& indices = data.indices_of(relation);
    if (!indices.is_mapped()) continue;
    const int type = data.meta().edge_types[static_cast<std::size_t>(relation)].source_type;
    const int64_t num_sources = data.meta().node_types[static_cast<std::size_t>(type)].num_nodes;
    const auto check_them = indices.dtype() == DType::int32 ? &check_sources<int32_t> : &check_sources<int64_t>;
    check_them(indices, num_sources, node_in(data, type), problems, stop);
  }
}

// Times must ascend in each list.
void check_times(const Dataset& data, int relation, std::vector<Problem>& problems, const std::stop_token& stop) {
  const MappedArray& array = data.edge_times_of(relation);
  if (!array.is_mapped() || !data.indptr_array(relation).is_mapped()) return;
  const auto indptr = data.indptr_of(relation);
  if (!std::ranges::is_sorted(indptr)) return;  // a problem of its own
  const int64_t* times = array.as<int64_t>().data();
  const auto first_step_down = [&](int64_t node) {
    const int64_t *begin = times + indptr[static_cast<std::size_t>(node)],
                  *end = times + indptr[static_cast<std::size_t>(node) + 1];
    const int64_t* after = std::is_sorted_until(begin, end);
    return after == end ? -1 : after - times;
  };
  const Scan bad = scan(std::ssize(indptr) - 1, stop, [&](int64_t node) { return first_step_down(node) >= 0; });
  if (bad.first < 0) return;
  const int64_t edge = first_step_down(bad.first);
  report(problems, array, {edge, bad.count}, base::format("at least {}, the time before in the list", times[edge - 1]),
         std::to_string(times[edge]));
}

// Numbers, or yes (1) and no (0) of several labels.
void check_targets(const Dataset& data, std::vector<Problem>& problems, const std::stop_token& stop) {
  const MappedArray& array = data.labels_array();
  if (array.dtype() == DType::uint8) {
    const auto labels = array.as<uint8_t>();
    const Scan bad =
        scan_in_pieces(array, stop, [&](int64_t i) { return labels[i] > 1 && labels[i] != kUnknownLabel; });
    if (bad.first >= 0) report(problems, array, bad, "0, 1, or 255 for unknown", std::to_string(labels[bad.first]));
    return;
  }
  const auto labels = array.as<float>();
  const bool any = data.meta().task == Task::regression;
  const Scan bad = scan_in_pieces(array, stop, [&](int64_t i) {
    const float label = labels[i];
    return any ? std::isinf(label) : !(label == 0 || label == 1 || std::isnan(label));
  });
  if (bad.first < 0) return;
  report(problems, array, bad, any ? "a finite number, or NaN for none" : "0, 1, or NaN for unknown",
         base::format("{}", labels[bad.first]));
}

// How the labels of a node without any look.
const char* none_of(const Dataset& data) {
  if (data.meta().label_dtype == DType::int64) return "-1";
  return data.meta().label_dtype == DType::uint8 ? "255" : "NaN";
}

void check_labels(const Dataset& data, std::vector<Problem>& problems, const std::stop_token& stop) {
  if (!data.labels_array().is_mapped()) return;
  if (data.meta().task != Task::classification) return check_targets(data, problems, stop);
  const int64_t* labels = data.labels().data();
  const int64_t num_classes = data.num_classes();
  const Scan bad =
      scan(data.num_target_nodes(), stop, [&](int64_t v) { return labels[v] < -1 || labels[v] >= num_classes; });
  if (bad.first < 0) return;
  report(problems, data.labels_array(), bad, base::format("a class in [0, {}) or -1 for none", num_classes),
         std::to_string(labels[bad.first]));
}

// True when the ids of a split are in range.
bool check_ids(const Dataset& data, const MappedArray& array, std::vector<Problem>& problems,
               const std::stop_token& stop) {
  if (!array.is_mapped()) return false;
  const auto ids = array.as<int64_t>();
  const int64_t num_nodes = data.num_target_nodes();
  const Scan bad = scan(array.size(), stop, [&](int64_t i) { return ids[i] < 0 || ids[i] >= num_nodes; });
  if (bad.first < 0) return true;
  report(problems, array, bad, node_in(data, data.meta().target_type), std::to_string(ids[bad.first]));
  return false;
}

// Ids of one split: in range, labelled, and not named before. `owner` uint8 [V]: 1 + the split that has the node.
void check_split(const Dataset& data, std::size_t split, std::vector<uint8_t>& owner, std::vector<Problem>& problems,
                 const std::stop_token& stop) {
  const MappedArray& array = data.split_arrays()[split];
  if (!check_ids(data, array, problems, stop)) return;
  const auto ids = array.as<int64_t>();
  Scan again, unlabelled;
  uint8_t other = 0;
  const bool have_labels = data.labels_array().is_mapped();
  for (int64_t i = 0; i < array.size(); ++i) {
    if (i % kChunk == 0 && stop.stop_requested()) throw Interrupted();
    uint8_t& seen = owner[static_cast<std::size_t>(ids[i])];
    if (seen != 0 && again.count++ == 0) {
      again.first = i;
      other = seen;
    }
    if (have_labels && !data.has_label(ids[i]) && unlabelled.count++ == 0) unlabelled.first = i;
    seen = static_cast<uint8_t>(split + 1);
  }
  if (again.first >= 0) {
    report(problems, array, again, "a node that occurs once in all splits",
           base::format("node {}, which {} already has", ids[again.first], kSplitNames[other - 1]),
           "put each node into one split, once");
  }
  if (unlabelled.first >= 0) {
    report(problems, array, unlabelled, "a node with a label",
           base::format("node {}, whose label is {}", ids[unlabelled.first], none_of(data)),
           "leave nodes without labels out of splits");
  }
}

bool has_array_of_targets(const Dataset& data) {
  const auto& edge_types = data.meta().edge_types;
  for (std::size_t i = 0; i < edge_types.size(); ++i) {
    const bool into_targets = edge_types[i].target_type == data.meta().target_type;
    if (into_targets && data.indptr_array(static_cast<int>(i)).is_mapped()) return true;
  }
  return data.labels_array().is_mapped();
}

void check_splits(const Dataset& data, std::vector<Problem>& problems, const std::stop_token& stop) {
  // Without an array of V elements, a damaged meta.json could ask for any amount of memory.
  if (!has_array_of_targets(data)) return;
  std::vector<uint8_t> owner(static_cast<std::size_t>(data.num_target_nodes()), 0);
  for (std::size_t split = 0; split < kSplitNames.size(); ++split) check_split(data, split, owner, problems, stop);
}

// Which bits of a float are those of the exponent; all of them are set in infinities and NaNs. 0: no float.
constexpr uint32_t exponent_of(DType dtype) {
  if (dtype == DType::float32) return 0x7F800000u;
  if (dtype == DType::float16) return 0x7C00u;
  return dtype == DType::bfloat16 ? 0x7F80u : 0;
}

template <typename Bits>
void check_finite_as(const MappedArray& array, std::vector<Problem>& problems, const std::stop_token& stop) {
  const auto* const bits = reinterpret_cast<const Bits*>(array.data());
  const auto exponent = static_cast<Bits>(exponent_of(array.dtype()));
  const Scan bad = scan_in_pieces(array, stop, [&](int64_t i) { return (bits[i] & exponent) == exponent; });
  if (bad.first < 0) return;
  const bool is_nan = static_cast<Bits>(bits[bad.first] << 1) > static_cast<Bits>(exponent << 1);  // without the sign
  report(problems, array, bad, "a finite number", is_nan ? "NaN" : "Inf", kFiniteHint);
}

void check_finite(const MappedArray& array, std::vector<Problem>& problems, const std::stop_token& stop) {
  if (!array.is_mapped() || exponent_of(array.dtype()) == 0) return;
  const bool wide = array.dtype() == DType::float32;
  (wide ? &check_finite_as<uint32_t> : &check_finite_as<uint16_t>)(array, problems, stop);
}

}  // namespace

void demand_in_range(const Dataset& data, const std::stop_token& stop) {
  std::vector<Problem> problems;
  check_edges(data, problems, stop);
  if (data.meta().task == Task::classification) check_labels(data, problems, stop);
  for (const MappedArray& ids : data.split_arrays()) check_ids(data, ids, problems, stop);
  if (!problems.empty()) throw base::Error(problems.front());
}

std::vector<Problem> check(const std::filesystem::path& folder, const std::stop_token& stop) {
  std::vector<Problem> problems;
  const Dataset data = Dataset::open(folder, problems);
  if (data.num_nodes() == 0) return problems;  // meta.json itself is the problem
  check_edges(data, problems, stop);
  check_labels(data, problems, stop);
  check_splits(data, problems, stop);
  for (int relation = 0; relation < static_cast<int>(data.meta().edge_types.size()); ++relation) {
    check_finite(data.edge_weights_of(relation), problems, stop);
    check_finite(data.edge_features_of(relation), problems, stop);
    check_times(data, relation, problems, stop);
  }
  for (int type = 0; type < static_cast<int>(data.meta().node_types.size()); ++type) {
    check_finite(data.features_of(type), problems, stop);
  }
  return problems;
}

}  // namespace cohort::dataset
