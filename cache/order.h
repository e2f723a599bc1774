// Nodes in order of what they save per byte. Internal to cache/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace cohort::cache {

struct Order {
  std::vector<uint32_t> nodes;   // uint32 [n]
  std::vector<float> densities;  // float32 [n], descending; equal ones by node
};

// All nodes that do not save less than nothing, or only those above 0. `density(node)` is called in parallel.
Order order_by(int64_t num_nodes, bool keep_zeros, const std::function<float(int64_t)>& density);

}  // namespace cohort::cache
