#include "cache/plan/order.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "base/radix_sort.h"
#include "cache/plan/cost.h"

namespace cohort::cache {
namespace {

constexpr int64_t kChunk = 1 << 16;         // of nodes, that one thread takes
constexpr uint32_t kFirstKey = 0x80000000;  // of densities of at least 0; those below have lesser ones
constexpr uint32_t kKeyOfZero = UINT32_MAX;

using Keys = base::UninitializedVector<uint64_t>;

// A float of at least 0 orders as its bits do; the complement puts the largest first.
uint32_t key_of(float density) { return ~std::bit_cast<uint32_t>(density + 0.0f); }  // no minus zero

uint64_t key_of(uint32_t density_key, int64_t node) {
  return uint64_t{density_key} << 32 | static_cast<uint64_t>(node);
}

// Of keys in the order of their nodes. Densities are few where rows are read as often and as long as others: what
// compares them takes five times as long.
Order sorted(Keys keys) {
  if (std::ssize(keys) <= kFewItems) {
    std::sort(keys.begin(), keys.end());
  } else {
    Keys other(keys.size());
    constexpr int kDigitBits = 11;
    for (int shift = 32; shift < 64; shift += kDigitBits) {
      base::sort_by_digit<kDigitBits, uint64_t>(keys, other, shift);
      keys.swap(other);
    }
  }
  const auto size = static_cast<int64_t>(keys.size());
  Order order{base::UninitializedVector<uint32_t>(keys.size()), base::UninitializedVector<float>(keys.size())};
#pragma omp parallel for schedule(static) if (size > kFewItems)
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(i);
    order.nodes[at] = static_cast<uint32_t>(keys[at]);
    order.densities[at] = std::bit_cast<float>(~static_cast<uint32_t>(keys[at] >> 32));
  }
  return order;
}

// Calls each(chunk, first, last) for the chunks of all nodes, in parallel.
template <typename Each>
void for_chunks(int64_t num_nodes, Each each) {
  const int64_t num_chunks = (num_nodes + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(dynamic) if (num_chunks > 1)
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    each(static_cast<std::size_t>(chunk), chunk * kChunk, std::min(num_nodes, (chunk + 1) * kChunk));
  }
}

// The last key that some of the first `most` may have, or one somewhat behind it.
uint32_t last_key_of(const base::UninitializedVector<uint32_t>& keys, int64_t most) {
  constexpr int kDroppedBits = 16;
  std::vector<int64_t> count(std::size_t{1} << kDroppedBits);
  const auto num_nodes = static_cast<int64_t>(keys.size());
#pragma omp parallel
  {
    std::vector<int64_t> own(count.size());
#pragma omp for schedule(static) nowait
    for (int64_t node = 0; node < num_nodes; ++node) ++own[keys[static_cast<std::size_t>(node)] >> kDroppedBits];
#pragma omp critical
    std::transform(own.begin(), own.end(), count.begin(), count.begin(), std::plus<>());
  }
  int64_t before = 0;
  for (uint32_t bucket = kFirstKey >> kDroppedBits; bucket < count.size(); ++bucket) {
    before += count[bucket];
    if (before >= most) return bucket << kDroppedBits | ((1u << kDroppedBits) - 1);
  }
  return kKeyOfZero;
}

// Nodes with their keys, of those whose keys lie between kFirstKey and `last_key`.
Keys keys_of(const base::UninitializedVector<uint32_t>& of_node, uint32_t last_key) {
  const auto num_nodes = static_cast<int64_t>(of_node.size());
  const auto is_wanted = [&](int64_t node) {
    const uint32_t key = of_node[static_cast<std::size_t>(node)];
    return key >= kFirstKey && key <= last_key;
  };
  std::vector<int64_t> begins(static_cast<std::size_t>((num_nodes + kChunk - 1) / kChunk) + 1);
  for_chunks(num_nodes, [&](std::size_t chunk, int64_t first, int64_t last) {
    for (int64_t node = first; node < last; ++node) begins[chunk + 1] += is_wanted(node);
  });
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  Keys keys(static_cast<std::size_t>(begins.back()));
  for_chunks(num_nodes, [&](std::size_t chunk, int64_t first, int64_t last) {
    auto to = static_cast<std::size_t>(begins[chunk]);
    for (int64_t node = first; node < last; ++node) {
      if (is_wanted(node)) keys[to++] = key_of(of_node[static_cast<std::size_t>(node)], node);
    }
  });
  return keys;
}

}  // namespace

Order order_by(int64_t num_nodes, int64_t most, const std::function<float(int64_t)>& density) {
  base::UninitializedVector<uint32_t> of_node(static_cast<std::size_t>(num_nodes));
  for_chunks(num_nodes, [&](std::size_t, int64_t first, int64_t last) {
    for (int64_t node = first; node < last; ++node) of_node[static_cast<std::size_t>(node)] = key_of(density(node));
  });
  return sorted(keys_of(of_node, most < num_nodes ? last_key_of(of_node, most) : kKeyOfZero));
}

// In the order of the nodes, in which a density's operands lie.
Order order_again(const Order& other, int64_t num_nodes, const std::function<float(int64_t)>& density) {
  const auto size = static_cast<int64_t>(other.nodes.size());
  base::UninitializedVector<uint32_t> of_node(static_cast<std::size_t>(num_nodes));
  for_chunks(num_nodes, [&](std::size_t, int64_t first, int64_t last) {
    std::fill(of_node.begin() + first, of_node.begin() + last, 0u);
  });
#pragma omp parallel for schedule(static) if (size > kFewItems)
  for (int64_t i = 0; i < size; ++i) of_node[other.nodes[static_cast<std::size_t>(i)]] = 1;
  for_chunks(num_nodes, [&](std::size_t, int64_t first, int64_t last) {
    for (int64_t node = first; node < last; ++node) {
      uint32_t& key = of_node[static_cast<std::size_t>(node)];
      if (key) key = key_of(density(node));
    }
  });
  return sorted(keys_of(of_node, kKeyOfZero - 1));
}

}  // namespace cohort::cache
