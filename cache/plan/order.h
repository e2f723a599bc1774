// Nodes in order of what they save per byte. Internal to cache/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/uninitialized_vector.h"

namespace cohort::cache {

struct Order {
  base::UninitializedVector<uint32_t> nodes;   // uint32 [n]
  base::UninitializedVector<float> densities;  // float32 [n], descending; equal ones by node
};

// The first `most`, or somewhat more, of all nodes that do not save less than nothing. `density(node)` is called in
// parallel.
Order order_by(int64_t num_nodes, int64_t most, const std::function<float(int64_t)>& density);

// The nodes of another order by another density, but for those that save nothing.
Order order_again(const Order& other, int64_t num_nodes, const std::function<float(int64_t)>& density);

}  // namespace cohort::cache
