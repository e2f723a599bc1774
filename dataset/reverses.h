// Which relations of a graph have the same edges, in the same or in the other direction.
//
// A relation may name another as its reverse. Of relations that say nothing, those are reverses of each other whose
// edges are the same in the other direction, each as often. Edges are compared by the sum of a 128-bit hash of each, so
// the order of the lists does not matter; only relations with equally many edges are compared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/csc_ref.h"

namespace cohort::dataset {

// Values of a relation's reverse_of that are no relation's number:
inline constexpr int kUnknownReverse = -1;  // nothing is said
inline constexpr int kNoReverse = -2;       // it has none

struct RelationLists {
  int source_type = 0, target_type = 0;
  base::CscRef lists{};  // of the target type's nodes
  int reverse_of = kUnknownReverse;
};

// reverse_of of each relation: what is said, else the number of a relation that it is found to be the reverse of. Of
// two relations that are found, the later names the earlier. A relation within one type names itself where it is its
// own reverse and others have its edges, too.
std::vector<int> find_reverses(std::span<const RelationLists> relations);

struct SameEdges {
  int relation;
  bool reversed;  // in the other direction

  friend bool operator==(const SameEdges&, const SameEdges&) = default;
};

// Where the edges of a relation are, itself first: in all relations that are linked to it by reverse_of, an odd number
// of links away in the other direction. A relation within one type that is linked to none is its own reverse, unless it
// has none. `found`: as find_reverses() returns it.
std::vector<SameEdges> same_edges(std::span<const RelationLists> relations, std::span<const int> found, int relation);

}  // namespace cohort::dataset
