// meta.json of data sets of several node types and relations: version 3 of the format.
#include <algorithm>
#include <cctype>

#include "dataset/meta_json.h"
#include "dataset/reverses.h"

namespace cohort::dataset {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& place, const std::string& expected, const std::string& found) {
  throw base::Error({place, expected, found, kImportAgain});
}

const Json& list_member(const Json& json, const std::string& place, const char* key, int64_t most) {
  const auto found = json.find(key);
  if (found == json.end()) refuse(place, base::format("the key \"{}\"", key), "none");
  const auto size = static_cast<int64_t>(found->size());
  const std::string expected = base::format("\"{}\": a list of 1 to {}", key, most);
  if (!found->is_array()) refuse(place, expected, shown(*found));
  if (size < 1 || size > most) refuse(place, expected, std::to_string(size));
  return *found;
}

void demand_name(const std::string& name, const std::string& place) {
  const bool fits = !name.empty() && name.size() <= kMaxTypeName && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
  if (!fits) refuse(place, base::format("\"type\": names of 1 to {} letters, digits, _ and -", kMaxTypeName), name);
}

NodeType read_node_type(const Json& json, const std::string& place) {
  NodeType out;
  out.name = meta_member<std::string>(json, place, "type", "a string");
  demand_name(out.name, place);
  out.num_nodes = count_member(json, place, "count", 1);
  read_features(json, place, "features", out);
  return out;
}

// The number of the node type of this name.
int type_named(const Meta& meta, const std::string& name, const std::string& place) {
  const auto found = std::find_if(meta.node_types.begin(), meta.node_types.end(),
                                  [&](const NodeType& type) { return type.name == name; });
  if (found == meta.node_types.end()) refuse(place, "\"type\": the name of a type in \"nodes\"", name);
  return static_cast<int>(found - meta.node_types.begin());
}

EdgeType read_edge_type(const Json& json, const std::string& place, const Meta& meta) {
  constexpr const char* kExpected = "\"type\": a list of source type, name and target type";
  const Json* const type = json.is_object() && json.contains("type") ? &json["type"] : nullptr;
  if (type == nullptr) refuse(place, "the key \"type\"", "none");
  const bool three = type->is_array() && type->size() == 3 &&
                     std::all_of(type->begin(), type->end(), [](const Json& name) { return name.is_string(); });
  if (!three) refuse(place, kExpected, shown(*type));
  EdgeType out;
  out.source = (*type)[0].get<std::string>();
  out.name = (*type)[1].get<std::string>();
  out.target = (*type)[2].get<std::string>();
  demand_name(out.name, place);
  out.source_type = type_named(meta, out.source, place);
  out.target_type = type_named(meta, out.target, place);
  out.num_edges = count_member(json, place, "count", 0);
  read_edge_files(json, place, out);
  read_features(json, place, "features", out);
  return out;
}

bool is_same(const EdgeType& a, const EdgeType& b) {
  return a.name == b.name && a.source_type == b.source_type && a.target_type == b.target_type;
}

void read_node_types(const Json& json, const std::string& place, Meta& meta) {
  const Json& list = list_member(json, place, "nodes", kMaxNodeTypes);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string at = base::format("{}: nodes[{}]", place, i);
    NodeType type = read_node_type(list[i], at);
    for (const NodeType& before : meta.node_types) {
      if (before.name == type.name) refuse(at, "a type that is named once", type.name + " again");
    }
    meta.num_nodes += type.num_nodes;
    meta.node_types.push_back(std::move(type));
  }
  if (meta.num_nodes <= kMaxTypedNodes) return;
  throw base::Error({place, base::format("at most {} nodes of all types together", kMaxTypedNodes),
                     std::to_string(meta.num_nodes),
                     "leave nodes out: a data set of several types has fewer than 2^31"});
}

// Members of a relation that speak of the relations around it.
void read_neighbours(const Json& json, const std::string& place, Meta& meta, std::size_t relation) {
  EdgeType& edges = meta.edge_types[relation];
  for (std::size_t before = 0; before < relation; ++before) {
    if (!is_same(edges, meta.edge_types[before])) continue;
    refuse(place, "a relation that is named once",
           base::format("{}, {}, {} again", edges.source, edges.name, edges.target));
  }
  if (relation > 0 && edges.source_type < meta.edge_types[relation - 1].source_type) {
    refuse(place, "relations in the order of their source types",
           base::format("source type {} (nodes[{}]) after {} (nodes[{}])", edges.source, edges.source_type,
                        meta.edge_types[relation - 1].source, meta.edge_types[relation - 1].source_type));
  }
  if (!json.contains("reverse_of")) return;
  if (json["reverse_of"].is_null()) {
    edges.reverse_of = kNoReverse;
    return;
  }
  const auto of = meta_member<int64_t>(json, place, "reverse_of", "an integer or null");
  const std::string expected = base::format(
      "\"reverse_of\": the number of a relation with edges from {} to {}, or null", edges.target, edges.source);
  if (of < 0 || of >= static_cast<int64_t>(meta.edge_types.size())) refuse(place, expected, std::to_string(of));
  const EdgeType& forward = meta.edge_types[static_cast<std::size_t>(of)];
  if (forward.source_type != edges.target_type || forward.target_type != edges.source_type) {
    refuse(place, expected, base::format("{}: edges from {} to {}", of, forward.source, forward.target));
  }
  edges.reverse_of = static_cast<int>(of);
}

void read_edge_types(const Json& json, const std::string& place, Meta& meta) {
  const Json& list = list_member(json, place, "edges", kMaxEdgeTypes);
  const auto at = [&](std::size_t i) { return base::format("{}: edges[{}]", place, i); };
  for (std::size_t i = 0; i < list.size(); ++i) {
    meta.edge_types.push_back(read_edge_type(list[i], at(i), meta));
    meta.num_edges += meta.edge_types.back().num_edges;
  }
  for (std::size_t i = 0; i < list.size(); ++i) read_neighbours(list[i], at(i), meta, i);
}

void read_target(const Json& json, const std::string& place, Meta& meta) {
  const Json& target = object_member(json, place, "target");
  const std::string at = place + ": target";
  meta.target_type = type_named(meta, meta_member<std::string>(target, at, "type", "a string"), at);
  meta.num_classes = count_member(target, at, "num_classes", 0);
  read_labels(target, at, meta);
  read_target_files(target, at, meta);
}

}  // namespace

Meta read_typed_meta(const Json& json, const std::string& place) {
  Meta meta;
  meta.typed = true;
  read_node_types(json, place, meta);
  read_edge_types(json, place, meta);
  read_target(json, place, meta);
  return meta;
}

}  // namespace cohort::dataset
