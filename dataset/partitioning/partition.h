// Dividing the nodes of a graph into parts of about equal size, so that few edges join two parts.
// What is cut is counted in stored edges: each is a row that a batch reads from another part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "base/csc_ref.h"
#include "dataset/dataset.h"

namespace cohort::dataset {

// metis: multilevel k-way partitioning of the graph without directions, in memory (Karypis, Kumar: "A fast and high
// quality multilevel scheme for partitioning irregular graphs", SIAM J. Sci. Comput. 20, 1998). Needs libmetis.
//
// streaming: passes over the mapped file with 4 bytes a node in memory. In each pass a node v goes to the part i with
// the largest
//     |N(v) in P_i| - alpha * gamma * |P_i|^(gamma - 1),    gamma = 1.5, alpha = sqrt(k) * m / n^1.5
// among those with room (Fennel: Tsourakakis, Gkantsidis, Radunovic, Vojnovic, WSDM 2014); N(v) are its in-neighbours,
// n nodes and m stored edges. From the second pass on all nodes have a part, which is what lifts one pass to the
// quality of METIS, and alpha grows from pass to pass (restreaming: Nishimura, Ugander, KDD 2013).
//
// random: a hash of the node's number; what the others are compared with.
//
// The nodes of several types are numbered through and divided together; the relations are one graph.
enum class PartitionMethod { metis, streaming, random };

std::optional<PartitionMethod> partition_method_named(std::string_view name);

struct PartitionOptions {
  PartitionMethod method = PartitionMethod::metis;
  int64_t num_parts = 2;
  uint64_t seed = 0;
  int64_t memory_bytes = 0;  // metis: the most it may take; 0: what the machine has left
};

// A part has at most so many times the mean of all nodes, and (but for hashed parts) of the training nodes.
inline constexpr double kMostOfMean = 1.05;

inline constexpr int64_t kMaxParts = 4096;

// The lists of a relation, where the nodes of all types are numbered through.
struct NumberedLists {
  base::CscRef lists;                          // by target
  int64_t first_source = 0, first_target = 0;  // what is added to their numbers

  bool has_target(int64_t node) const { return node >= first_target && node - first_target < lists.num_nodes; }
  // Of the edge at this place of `indices`.
  int64_t source(int64_t place) const { return first_source + lists.index(place); }
};

// Of all relations of a data set.
std::vector<NumberedLists> numbered_lists(const Dataset& data);

int64_t num_edges_of(std::span<const NumberedLists> relations);

// int32 [V], the part of each node: the same for any number of threads. Throws base::Error for options out of range,
// for a graph that METIS cannot hold in `memory_bytes` (with what it would take), and where it was not built in.
std::vector<int32_t> partition(const Dataset& data, const PartitionOptions& options, const std::stop_token& stop = {});

// The bodies of the two methods that look at edges. train uint8 [V]: 1 for nodes of the training split.
std::vector<int32_t> partition_metis(std::span<const NumberedLists> lists, std::span<const uint8_t> train,
                                     const PartitionOptions& options, const std::stop_token& stop);
std::vector<int32_t> partition_streaming(std::span<const NumberedLists> lists, std::span<const uint8_t> train,
                                         const PartitionOptions& options, const std::stop_token& stop);

// Whether this build has METIS.
bool has_metis();

}  // namespace cohort::dataset
