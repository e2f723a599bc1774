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
  std::ranges::fill(keys_, kNoTreeNode);
  num_keys_ = 0;
}

int32_t TreeIds::find_or_add(uint64_t key, int32_t next) {
  if (2 * (num_keys_ + 1) > keys_.size()) grow();
  const std::size_t place = place_for(key);
  if (keys_[place] == key) return ids_[place];
  ++num_keys_;
  keys_[place] = key;
  return ids_[place] = next;
}

void TreeIds::grow() {
  constexpr int kFirstBits = 12;
  bits_ = bits_ == 0 ? kFirstBits : bits_ + 1;
  const std::size_t size = std::size_t{1} << bits_;
  const std::vector<uint64_t> keys = std::exchange(keys_, std::vector<uint64_t>(size, kNoTreeNode));
  const std::vector<int32_t> ids = std::exchange(ids_, std::vector<int32_t>(size));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == kNoTreeNode) continue;
    const std::size_t place = place_for(keys[i]);
    keys_[place] = keys[i];
    ids_[place] = ids[i];
  }
}

// Of the key, or where it is to be put.
std::size_t TreeIds::place_for(uint64_t key) const {
  std::size_t place = place_of_key(key, bits_);
  while (keys_[place] != key && keys_[place] != kNoTreeNode) place = (place + 1) & (keys_.size() - 1);
  return place;
}

}  // namespace cohort::sampler
