#include "sampler/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "dataset/npy.h"

namespace cohort::sampler {
namespace {

// A stream of its own, apart from the draws of batches (steps there stay far below).
constexpr uint64_t kShuffleStream = ~uint64_t{0};

void check_seeds(std::span<const int64_t> seeds, int64_t num_nodes, const std::string& place) {
  std::vector<bool> seen(static_cast<std::size_t>(num_nodes), false);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (seeds[i] < 0 || seeds[i] >= num_nodes) {
      throw base::Error({fmt::format("{}[{}]", place, i), fmt::format("a node id in [0, {})", num_nodes),
                         std::to_string(seeds[i]), ""});
    }
    if (seen[static_cast<std::size_t>(seeds[i])]) {
      throw base::Error({fmt::format("{}[{}]", place, i), "every node once",
                         fmt::format("node {} a second time", seeds[i]), "remove duplicates from the input nodes"});
    }
    seen[static_cast<std::size_t>(seeds[i])] = true;
  }
}

}  // namespace

std::vector<int64_t> shuffled(int64_t size, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  const base::PhiloxKey key = base::derive_key(base::key_of(seed), epoch, kShuffleStream);
  for (uint64_t i = static_cast<uint64_t>(size); i > 1; --i) {
    std::swap(order[i - 1], order[base::random_below(i, key, i, 0)]);
  }
  return order;
}

Schedule::Schedule(std::span<const int64_t> seeds, const channel::Request& request, uint64_t seed)
    : set_(seeds), batch_size_(request.batch_size) {
  if (batch_size_ == 0) throw base::Error({"batch size", "at least 1", "0", ""});
  num_steps_ = (seeds.size() + batch_size_ - 1) / batch_size_;
  if (request.shuffle != 0) {
    order_ = shuffled(static_cast<int64_t>(seeds.size()), seed, request.epoch);
  } else {
    order_.resize(seeds.size());
    std::iota(order_.begin(), order_.end(), 0);
  }
}

std::span<const int64_t> Schedule::positions(uint64_t step) const {
  const std::size_t first = step * batch_size_;
  return std::span(order_).subspan(first, std::min<std::size_t>(batch_size_, order_.size() - first));
}

std::span<const int64_t> Schedule::seeds(uint64_t step) {
  batch_.clear();
  for (int64_t position : positions(step)) batch_.push_back(set_[static_cast<std::size_t>(position)]);
  return batch_;
}

std::span<const int64_t> SeedSets::get(uint32_t number) {
  if (const auto known = sets_.find(number); known != sets_.end()) return known->second;
  const std::filesystem::path path = folder_ / fmt::format("seeds-{}.npy", number);
  const dataset::MappedArray file = dataset::map_npy(path, {{dataset::DType::int64}, {-1}});
  const auto data = file.as<int64_t>();
  std::vector<int64_t> seeds(data.begin(), data.end());
  check_seeds(seeds, num_nodes_, path.string());
  return sets_.emplace(number, std::move(seeds)).first->second;
}

}  // namespace cohort::sampler
