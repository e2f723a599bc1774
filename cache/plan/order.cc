#include "cache/plan/order.h"

#include <algorithm>

#include "base/radix_sort.h"
#include "cache/plan/cost.h"

namespace cohort::cache {
namespace {

constexpr uint32_t kNoKey = UINT32_MAX;  // of densities below 0, behind all others

uint32_t key_of(float density) {
  return density < 0 ? kNoKey : kInfinityBits - std::bit_cast<uint32_t>(density + 0.0f);  // no minus zero
}

// By density: the keys come in the order of their nodes. Comparing them takes five times as long where many are equal.
void sort(base::UninitializedVector<uint64_t>& keys) {
  if (std::ssize(keys) <= kFewItems) return std::sort(keys.begin(), keys.end());
  base::UninitializedVector<uint64_t> other(keys.size());
  constexpr int kDigitBits = 11;
  for (int shift = 32; shift < 64; shift += kDigitBits) {
    base::sort_by_digit<kDigitBits, uint64_t>(keys, other, shift);
    keys.swap(other);
  }
}

}  // namespace

Order order_by(int64_t num_nodes, const std::function<float(int64_t)>& density) {
  Order order{base::UninitializedVector<uint64_t>(static_cast<std::size_t>(num_nodes))};
#pragma omp parallel for schedule(static) if (num_nodes > kFewItems)
  for (int64_t node = 0; node < num_nodes; ++node) {
    order.keys[static_cast<std::size_t>(node)] = uint64_t{key_of(density(node))} << 32 | static_cast<uint64_t>(node);
  }
  sort(order.keys);
  const auto end = std::ranges::lower_bound(order.keys, uint64_t{kNoKey} << 32);
  order.keys.resize(static_cast<std::size_t>(end - order.keys.begin()));
  return order;
}

}  // namespace cohort::cache
