#include "cache/order.h"

#include <bit>
#include <parallel/algorithm>

namespace cohort::cache {
namespace {

constexpr int64_t kFewItems = 4096;        // not worth waking threads for
constexpr uint64_t kLeftOut = UINT64_MAX;  // node ids are below 2^32 - 1

}  // namespace

// A float of at least 0 orders as its bits do; the complement puts the largest first. Those below 0 get a key that no
// node has.
Order order_by(int64_t num_nodes, bool keep_zeros, const std::function<float(int64_t)>& density) {
  std::vector<uint64_t> keys(static_cast<std::size_t>(num_nodes));
#pragma omp parallel for schedule(static) if (num_nodes > kFewItems)
  for (int64_t node = 0; node < num_nodes; ++node) {
    const float saved = density(node) + 0.0f;  // no minus zero
    const auto bits = std::bit_cast<uint32_t>(saved);
    keys[static_cast<std::size_t>(node)] = saved < 0 ? kLeftOut : uint64_t{~bits} << 32 | static_cast<uint64_t>(node);
  }
  std::erase_if(keys, [=](uint64_t key) { return key == kLeftOut || (!keep_zeros && key >> 32 == UINT32_MAX); });
  __gnu_parallel::sort(keys.begin(), keys.end());
  const auto size = static_cast<int64_t>(keys.size());
  Order order{std::vector<uint32_t>(keys.size()), std::vector<float>(keys.size())};
#pragma omp parallel for schedule(static) if (size > kFewItems)
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    order.nodes[at] = static_cast<uint32_t>(keys[at]);
    order.densities[at] = std::bit_cast<float>(~static_cast<uint32_t>(keys[at] >> 32));
  }
  return order;
}

}  // namespace cohort::cache
