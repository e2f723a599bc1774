#include "dataset/encoded.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "dataset/json.h"

namespace cohort::dataset {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "cohort-prepared";
constexpr int64_t kVersion = 1, kTypedPreparedVersion = 2;
constexpr const char* kPrepareAgain =
    "run cohort dataset prepare on the data set again, or remove the folder with this file";

// Throws when the raw file is there and is not the one that was encoded.
void demand_fresh(const fs::path& raw, int64_t bytes, int64_t mtime_ns, const std::string& place) {
  struct stat status {};
  if (stat(raw.c_str(), &status) != 0) {
    if (errno == ENOENT) return;  // the raw copy was dropped: the encoded rows are the only ones
    base::fail_errno(raw.string(), "features whose size and time can be read", errno);
  }
  const int64_t found_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (status.st_size == bytes && found_ns == mtime_ns) return;
  throw base::Error({place, base::format("rows of {}, {} bytes written at {} ns", raw.string(), bytes, mtime_ns),
                     base::format("a file that has changed since: {} bytes, {} ns", status.st_size, found_ns),
                     kPrepareAgain});
}

// The folder that holds the encoded rows of a data set; empty when there is none.
fs::path folder_of_rows(const fs::path& folder) {
  if (fs::exists(folder / kPreparedFile)) return folder;
  const fs::path inner = folder / kPreparedFolder;
  const bool another_data_set = fs::exists(inner / kMetaFile);  // renumbered: its rows are not ours
  return fs::exists(inner / kPreparedFile) && !another_data_set ? inner : fs::path();
}

// The file of encoded rows, once it is known to be there and to be made of the raw rows that `json` describes.
fs::path file_of_rows(const nlohmann::json& json, const fs::path& holder, const std::string& file,
                      const std::string& place) {
  if (file.empty() || file.find('/') != std::string::npos) {
    throw base::Error({place, "the name of a file in this folder", file, kPrepareAgain});
  }
  const auto raw = member<std::string>(json, place, "raw_file", "a path", kPrepareAgain);
  const auto raw_bytes = member<int64_t>(json, place, "raw_bytes", "an integer", kPrepareAgain);
  const auto raw_mtime_ns = member<int64_t>(json, place, "raw_mtime_ns", "an integer", kPrepareAgain);
  if (!fs::exists(holder / file)) {
    throw base::Error({(holder / file).string(), "encoded rows", "no such file", kPrepareAgain});
  }
  demand_fresh((holder / raw).lexically_normal(), raw_bytes, raw_mtime_ns, place);
  return holder / file;
}

// The member "tables": the encoded rows of some of the types.
std::vector<fs::path> find_tables(const nlohmann::json& json, const fs::path& holder, const std::string& place,
                                  const Meta& meta) {
  constexpr const char* kExpected = "\"tables\": a list of objects, one for each node type with encoded rows";
  std::vector<fs::path> files(meta.node_types.size());
  const auto tables = json.find("tables");
  if (tables == json.end() || !tables->is_array()) {
    throw base::Error({place, kExpected, tables == json.end() ? "none" : shown(*tables), kPrepareAgain});
  }
  for (const nlohmann::json& table : *tables) {
    const auto name = member<std::string>(table, place, "type", "the name of a node type", kPrepareAgain);
    const auto type = std::ranges::find(meta.node_types, name, &NodeType::name);
    if (type == meta.node_types.end()) throw base::Error({place, "node types of the data set", name, kPrepareAgain});
    const auto file = member<std::string>(table, place, "file", "the name of a file", kPrepareAgain);
    files[static_cast<std::size_t>(type - meta.node_types.begin())] = file_of_rows(table, holder, file, place);
  }
  return files;
}

// The member "edge_tables": the encoded rows of the edges of some of the relations.
std::vector<fs::path> find_edge_tables(const nlohmann::json& json, const fs::path& holder, const std::string& place,
                                       const Meta& meta) {
  constexpr const char* kExpected = "\"edge_tables\": a list of objects, one for each relation with encoded rows";
  std::vector<fs::path> files(meta.edge_types.size());
  const auto tables = json.find("edge_tables");
  if (tables == json.end()) return files;
  if (!tables->is_array()) throw base::Error({place, kExpected, shown(*tables), kPrepareAgain});
  for (const nlohmann::json& table : *tables) {
    const auto number = member<int64_t>(table, place, "relation", "the number of a relation", kPrepareAgain);
    const bool known = number >= 0 && number < std::ssize(files);
    if (!known || meta.edge_types[static_cast<std::size_t>(number)].feature_dim == 0) {
      throw base::Error(
          {place, "numbers of relations whose edges have features", std::to_string(number), kPrepareAgain});
    }
    const auto file = member<std::string>(table, place, "file", "the name of a file", kPrepareAgain);
    files[static_cast<std::size_t>(number)] = file_of_rows(table, holder, file, place);
  }
  return files;
}

}  // namespace

EncodedFiles find_encoded_rows(const fs::path& folder, const Meta& meta) {
  const fs::path holder = folder_of_rows(folder);
  if (holder.empty()) {
    return {std::vector<fs::path>(meta.node_types.size()), std::vector<fs::path>(meta.edge_types.size())};
  }
  const std::string place = (holder / kPreparedFile).string();
  const nlohmann::json json = parse_json(place, "the description of encoded rows", kPrepareAgain);
  demand_format(json, place, kFormat, meta.typed ? kTypedPreparedVersion : kVersion, kPrepareAgain);
  std::vector<fs::path> of_nodes;
  if (meta.typed) {
    of_nodes = find_tables(json, holder, place, meta);
  } else {
    const bool of_edges_alone = json.contains("edge_tables") && !json.contains("raw_file");
    of_nodes = {of_edges_alone ? fs::path() : file_of_rows(json, holder, kEncodedFile, place)};
  }
  return {std::move(of_nodes), find_edge_tables(json, holder, place, meta)};
}

bool is_prepared_folder(const fs::path& folder) { return fs::exists(folder / kPreparedFile); }

}  // namespace cohort::dataset
