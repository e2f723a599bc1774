#include "cache/plan/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

namespace cohort::cache {
namespace {

// Few different ones, of all signs and sizes.
std::vector<float> some_densities(std::size_t num_nodes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> few = {0.0f, -0.0f, -1e-9f, 1e-30f, 3e20f};
  for (int i = 0; i < 300; ++i) few.push_back(std::exponential_distribution<float>(1e6f)(random));
  std::vector<float> densities(num_nodes);
  for (float& density : densities) density = few[random() % few.size()];
  return densities;
}

TEST(Order, IsDescendingAndThenByNode) {
  for (const std::size_t num_nodes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    SCOPED_TRACE(num_nodes);
    const std::vector<float> densities = some_densities(num_nodes, 1);
    std::vector<uint32_t> expected(num_nodes);
    std::iota(expected.begin(), expected.end(), 0u);
    std::erase_if(expected, [&](uint32_t node) { return densities[node] < 0; });
    std::ranges::stable_sort(expected, std::greater(), [&](uint32_t node) { return densities[node]; });
    const Order order = order_by(static_cast<int64_t>(num_nodes),
                                 [&](int64_t node) { return densities[static_cast<std::size_t>(node)]; });
    ASSERT_EQ(order.size(), expected.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(order.node(i), expected[i]) << i;
      ASSERT_EQ(order.density(i), densities[expected[i]]) << i;
    }
  }
}

}  // namespace
}  // namespace cohort::cache
