// Nodes in order of what they save per byte. Internal to cache/.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/uninitialized_vector.h"

namespace cohort::cache {

// A density (a float of at least 0) orders as its bits do: keys hold their distance from these, then the node.
inline constexpr uint32_t kInfinityBits = 0x7F800000;

struct Order {
  base::UninitializedVector<uint64_t> keys;  // uint64 [n], ascending

  std::size_t size() const { return keys.size(); }
  uint32_t node(std::size_t position) const { return static_cast<uint32_t>(keys[position]); }
  float density(std::size_t position) const {
    return std::bit_cast<float>(kInfinityBits - static_cast<uint32_t>(keys[position] >> 32));
  }
};

// All nodes whose density is at least 0, in descending order, equal ones by node. `density(node)` is called in
// parallel.
Order order_by(int64_t num_nodes, const std::function<float(int64_t)>& density);

}  // namespace cohort::cache
