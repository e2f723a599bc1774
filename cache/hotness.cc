#include "cache/hotness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace cohort::cache {
namespace {

constexpr uint64_t kHashMultiplier = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio, odd
constexpr int kLooksToAgree = 2;
constexpr std::size_t kMostPromised = 128;  // counts above this promise the same more as it does
constexpr int64_t kEnoughNodes = 1000;      // of a count, to take their mean

template <typename T>
void add_to(T& count, T more) {
  if (count > std::numeric_limits<T>::max() - more) {
    throw base::Error(
        {"hotness", "counts below the bound of their type", "one that would pass it", "pre-sample fewer batches"});
  }
  count += more;
}

// Ids of the hottest `size` nodes, ascending.
std::vector<uint32_t> top_of(std::span<const uint32_t> counts, std::size_t size) {
  std::vector<uint64_t> keys;
  for (std::size_t node = 0; node < counts.size(); ++node) {
    if (counts[node] > 0) keys.push_back(uint64_t{~counts[node]} << 32 | node);
  }
  size = std::min(size, keys.size());
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(size), keys.end());
  std::vector<uint32_t> top(size);
  std::transform(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(size), top.begin(),
                 [](uint64_t key) { return static_cast<uint32_t>(key); });
  std::sort(top.begin(), top.end());
  return top;
}

// What a count promises of as many other reads: the mean over the nodes that have it of what a trial read, times how
// much more was counted than tried. Between counts that too few nodes have it is interpolated.
std::vector<double> promise_of(std::span<const uint32_t> counts, std::span<const uint32_t> trial) {
  const auto sum = [](std::span<const uint32_t> all) { return std::accumulate(all.begin(), all.end(), 0.0); };
  const double tried = sum(trial), scale = tried > 0 ? sum(counts) / tried : 0;
  std::array<int64_t, kMostPromised + 1> nodes{}, reads{};
  for (std::size_t node = 0; node < counts.size(); ++node) {
    if (counts[node] > kMostPromised) continue;
    ++nodes[counts[node]];
    reads[counts[node]] += trial[node];
  }
  std::vector<double> promised;
  for (std::size_t count = 0; count <= kMostPromised; ++count) {
    if (nodes[count] < kEnoughNodes) continue;
    const double mean = scale * static_cast<double>(reads[count]) / static_cast<double>(nodes[count]);
    const double last = promised.empty() ? mean : promised.back(), next = std::max(last, mean);
    const std::size_t known = promised.size(), steps = count - known + 1;
    for (std::size_t i = 1; i <= steps; ++i) {
      promised.push_back(last + (next - last) * static_cast<double>(i) / static_cast<double>(steps));
    }
  }
  return promised.size() >= 2 ? promised : std::vector<double>();
}

}  // namespace

uint64_t hash_words(std::span<const int64_t> words, uint64_t before) {
  uint64_t hash = before ^ words.size();
  for (int64_t word : words) {
    hash = (hash ^ static_cast<uint64_t>(word)) * kHashMultiplier;
    hash ^= hash >> 29;
  }
  return hash;
}

uint64_t HotnessKey::digest() const {
  std::vector<int64_t> words = {static_cast<int64_t>(dataset), static_cast<int64_t>(split), batch_size};
  words.insert(words.end(), fanout.begin(), fanout.end());
  return hash_words(words);
}

Hotness::Hotness(HotnessKey key, int64_t num_nodes, uint64_t seed)
    : key_(std::move(key)),
      seed_(seed),
      node_reads_(static_cast<std::size_t>(num_nodes)),
      expansions_(static_cast<std::size_t>(num_nodes)),
      edges_read_(static_cast<std::size_t>(num_nodes)) {}

void Hotness::add(const SampledBatch& batch) {
  if (in_trial_) {
    add_to_trial(batch);
    return;
  }
  ++num_batches_;
  const auto num_nodes = static_cast<int64_t>(batch.nodes.size());
  const auto num_edges = static_cast<int64_t>(batch.edge_targets.size());
  base::require(batch.num_expanded >= 0 && batch.num_expanded <= num_nodes, "expanded nodes among the batch's nodes");
  max_batch_nodes_ = std::max(max_batch_nodes_, num_nodes);
  max_batch_edges_ = std::max(max_batch_edges_, num_edges);
  for (std::size_t i = 0; i < batch.nodes.size(); ++i) {
    const auto node = static_cast<std::size_t>(batch.nodes[i]);
    add_to(node_reads_[node], 1u);
    if (static_cast<int64_t>(i) < batch.num_expanded) add_to(expansions_[node], 1u);
  }
  for (int64_t target : batch.edge_targets) {
    add_to(edges_read_[static_cast<std::size_t>(batch.nodes[static_cast<std::size_t>(target)])], uint64_t{1});
  }
}

void Hotness::add_to_trial(const SampledBatch& batch) {
  for (std::size_t i = 0; i < batch.nodes.size(); ++i) {
    const auto node = static_cast<std::size_t>(batch.nodes[i]);
    ++trial_[0][node];
    if (static_cast<int64_t>(i) < batch.num_expanded) ++trial_[1][node];
  }
}

void Hotness::begin_trial() {
  in_trial_ = true;
  trial_.fill(std::vector<uint32_t>(node_reads_.size()));
}

void Hotness::end_trial() {
  promised_ = {promise_of(node_reads_, trial_[0]), promise_of(expansions_, trial_[1])};
  in_trial_ = false;
  trial_ = {};
}

std::filesystem::path hotness_path(const std::filesystem::path& dataset, const HotnessKey& key) {
  return dataset / fmt::format("hotness-{:016x}.bin", key.digest());
}

bool TopOfOrder::look(std::span<const uint32_t> counts) {
  const auto size = static_cast<std::size_t>(std::ceil(share_ * static_cast<double>(counts.size())));
  std::vector<uint32_t> top = top_of(counts, size);
  std::vector<uint32_t> common;
  std::set_intersection(top.begin(), top.end(), top_.begin(), top_.end(), std::back_inserter(common));
  const bool agrees = !top_.empty() && static_cast<double>(common.size()) >=
                                           agreement_ * static_cast<double>(std::max(top.size(), top_.size()));
  agreed_looks_ = agrees ? agreed_looks_ + 1 : 0;
  top_ = std::move(top);
  return agreed_looks_ >= kLooksToAgree;
}

}  // namespace cohort::cache
