// Random graphs with features that can be learned from, of any size, the same for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "dataset/dtype.h"

namespace cohort::dataset {

// sbm: planted communities; a node's class is its community, and 4 of 5 edges come from the own community.
// powerlaw: both ends are floor(V u^2), u uniform in [0, 1), and nodes are renamed at random.
// rmat: recursive quadrants .57/.19/.19/.05 (source bit above destination bit), and nodes are renamed at random.
// In the last two, classes are drawn independently of the edges: features alone tell them.
enum class GraphKind { sbm, powerlaw, rmat };

std::optional<GraphKind> kind_named(std::string_view name);
const char* name_of(GraphKind kind);

struct GenerateOptions {
  GraphKind kind = GraphKind::sbm;
  int64_t num_nodes = 0;
  int64_t num_edges = 0;  // that are drawn
  int64_t feature_dim = 0;
  DType feature_dtype = DType::float32;
  int64_t num_classes = 2;
  uint64_t seed = 0;
  std::array<double, 3> split = {0.6, 0.2, 0.2};  // train, val, test; what is missing to 1 belongs to none
  bool overwrite = false;
  bool undirected = false;    // every edge is stored in both directions
  bool edge_weights = false;  // each has a weight in (0, 1], the same in both directions
  int64_t edge_dim = 0;       // of each edge, float32 features that tell whether its ends have one class; 0: none

  int64_t stored_edges() const { return undirected ? 2 * num_edges : num_edges; }
};

// Writes all but the features into an existing folder: graph, labels, splits, meta.json with this name.
void generate_graph(const std::filesystem::path& folder, const std::string& name, const GenerateOptions& options,
                    const std::stop_token& stop = {});

// Writes the data set into the folder `out`, which appears when it is whole. Throws base::Error for options out of
// range and for a disk that is too small, Interrupted when a stop is asked for; nothing is left of it then.
void generate(const std::filesystem::path& out, const GenerateOptions& options, const std::stop_token& stop = {});

}  // namespace cohort::dataset
