// New edges put into the lists of in-neighbours that a data set has (CSC), and edges taken out of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

namespace cohort::dataset {

// By what the edges of a list ascend: the source; the source and the bits of the weight; the time and the source; the
// time alone. Of equal edges, those that were there come first.
enum class EdgeOrder { kSource, kWeight, kTime, kTimeAlone };

// An array with a row for each edge: where it is, what comes to it, and where the result is written.
struct ArrayOfEdges {
  std::filesystem::path old, added, merged;
};

struct MergeOptions {
  std::string place;                           // what messages call the edges that come
  EdgeOrder order = EdgeOrder::kSource;        // of both sides
  bool dedupe = false;                         // edges that are there already do not come again
  bool has_loops = false;                      // each node that was there has its only loop
  ArrayOfEdges indptr;                         // int64 [V + 1]; the old one may have fewer nodes
  ArrayOfEdges indices;                        // int32 or int64 [E], of one type
  std::vector<ArrayOfEdges> beside;            // with `order` kWeight or kTime.., the first has the weights or times
  std::filesystem::path removed_indptr = {};   // edges to take out, source and target; "": none
  std::filesystem::path removed_indices = {};  // ascending in each list, none twice
};

struct MergeResult {
  int64_t num_edges = 0;
  std::vector<int64_t> changed;  // the nodes whose lists are others than before, ascending
};

// Writes the merged arrays. Lists that stay are copied in bulk; memory is 9 bytes a node and a few megabytes a thread.
// Throws base::Error for an old list that is not in order, for an edge to take out that is not there, and, with
// `dedupe` and weights, for an edge that is there already: its weight has been added up before.
MergeResult merge_edges(const MergeOptions& options, const std::stop_token& stop);

}  // namespace cohort::dataset
