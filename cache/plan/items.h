// What a plan places: feature rows and neighbour lists, each numbered through. The rows of the node types follow each
// other, in the order of the types, so a row has the number of its node; so do the lists of the relations. With one
// node type and one relation, row, list and node have the same number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/csc_ref.h"

namespace cohort::cache {

// The neighbour lists of one relation.
struct RelationLists {
  base::CscRef lists{};      // of the nodes of the target type, in their order
  int64_t first = 0;         // the number of the first list
  int64_t first_source = 0;  // the node that the lists call 0
  int64_t first_target = 0;  // the node that has the first list
};

// Of ranges by ascending `first`, the one that has the item.
template <typename Range>
const Range& range_with(const std::vector<Range>& ranges, int64_t item) {
  if (ranges.size() == 1) return ranges[0];
  return *(std::ranges::upper_bound(ranges, item, {}, &Range::first) - 1);
}

// The number behind the last list.
inline int64_t end_of(const std::vector<RelationLists>& relations) {
  return relations.empty() ? 0 : relations.back().first + relations.back().lists.num_nodes;
}

}  // namespace cohort::cache
