#include "sampler/trees.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"

namespace cohort::sampler {

void demand_tree_nodes(int64_t count) {
  if (count <= kMaxTreeNodes) return;
  throw base::Error({"a disjoint batch", "at most " + std::to_string(kMaxTreeNodes) + " nodes and edges of all trees",
                     std::to_string(count), "use a smaller batch_size or fewer num_neighbors"});
}

void demand_trees(int64_t count) {
  if (count <= kMaxTrees) return;
  throw base::Error({"a disjoint batch", "at most " + std::to_string(kMaxTrees) + " seeds", std::to_string(count),
                     "use a smaller batch_size"});
}

void TreeIds::clear() {
  std::ranges::fill(entries_, Entry());
  num_keys_ = 0;
}

int32_t TreeIds::find_or_add(uint64_t key, int32_t next) {
  if (2 * (num_keys_ + 1) > entries_.size()) grow();
  Entry& entry = entry_for(key);
  if (entry.key == key) return entry.id;
  ++num_keys_;
  entry = {key, next};
  return next;
}

void TreeIds::grow() {
  constexpr int kFirstBits = 12;
  bits_ = bits_ == 0 ? kFirstBits : bits_ + 1;
  for (const Entry& entry : std::exchange(entries_, std::vector<Entry>(std::size_t{1} << bits_))) {
    if (entry.key != kNoTreeNode) entry_for(entry.key) = entry;
  }
}

// That of the key, or where it is to be put.
TreeIds::Entry& TreeIds::entry_for(uint64_t key) {
  std::size_t bucket = bucket_of_key(key, bits_);
  while (entries_[bucket].key != key && entries_[bucket].key != kNoTreeNode)
    bucket = (bucket + 1) & (entries_.size() - 1);
  return entries_[bucket];
}

}  // namespace cohort::sampler
