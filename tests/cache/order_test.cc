#include "cache/plan/order.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// The wanted nodes in descending order of density, equal ones by node.
template <typename IsWanted>
std::vector<uint32_t> expected_order(const std::vector<float>& densities, IsWanted is_wanted) {
  std::vector<uint32_t> nodes(densities.size());
  std::iota(nodes.begin(), nodes.end(), 0u);
  std::erase_if(nodes, [&](uint32_t node) { return !is_wanted(node); });
  std::stable_sort(nodes.begin(), nodes.end(), [&](uint32_t a, uint32_t b) { return densities[a] > densities[b]; });
  return nodes;
}

void expect_order(const Order& order, const std::vector<uint32_t>& expected, const std::vector<float>& densities) {
  ASSERT_EQ(std::vector<uint32_t>(order.nodes.begin(), order.nodes.end()), expected);
  ASSERT_EQ(order.densities.size(), order.nodes.size());
  for (std::size_t i = 0; i < order.nodes.size(); ++i) ASSERT_EQ(order.densities[i], densities[order.nodes[i]]) << i;
}

TEST(Order, IsDescendingAndThenByNode) {
  for (const std::size_t num_nodes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    SCOPED_TRACE(num_nodes);
    const std::vector<float> densities = some_densities(num_nodes, 1);
    const auto density = [&](int64_t node) { return densities[static_cast<std::size_t>(node)]; };
    const Order order = order_by(static_cast<int64_t>(num_nodes), INT64_MAX, density);
    expect_order(order, expected_order(densities, [&](uint32_t node) { return densities[node] >= 0; }), densities);
  }
}

TEST(Order, EndsSomewhatBehindTheMostThatIsWanted) {
  const std::vector<float> densities = some_densities(300'000, 2);
  const auto density = [&](int64_t node) { return densities[static_cast<std::size_t>(node)]; };
  const auto all = expected_order(densities, [&](uint32_t node) { return densities[node] >= 0; });
  for (const int64_t most : {0, 1, 1000, 100'000, 290'000, 299'999}) {
    SCOPED_TRACE(most);
    const Order order = order_by(300'000, most, density);
    ASSERT_LE(order.nodes.size(), all.size());
    EXPECT_GE(order.nodes.size(), std::min<std::size_t>(all.size(), static_cast<std::size_t>(most)));
    // Densities have about 1000 nodes each; some few of them differ by less than 1 %.
    EXPECT_LE(order.nodes.size(), static_cast<std::size_t>(most) + 10'000);
    expect_order(order, {all.begin(), all.begin() + std::ssize(order.nodes)}, densities);
  }
}

TEST(Order, AgainHasTheSameNodesThatSaveAnything) {
  const std::vector<float> densities = some_densities(300'000, 3), others = some_densities(300'000, 4);
  const Order order = order_by(300'000, 5000, [&](int64_t node) { return densities[static_cast<std::size_t>(node)]; });
  const Order again = order_again(order, 300'000, [&](int64_t node) { return others[static_cast<std::size_t>(node)]; });
  std::vector<bool> among(others.size());
  for (const uint32_t node : order.nodes) among[node] = true;
  expect_order(again, expected_order(others, [&](uint32_t node) { return among[node] && others[node] > 0; }), others);
}

}  // namespace
}  // namespace cohort::cache
