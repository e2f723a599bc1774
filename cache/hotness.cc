#include "cache/hotness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace cohort::cache {
namespace {

constexpr uint64_t kHashMultiplier = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio, odd
constexpr int kLooksToAgree = 2;
constexpr std::size_t kMostPromised = 64;  // counts of half the batches above this promise the same more as it does
constexpr int64_t kEnoughNodes = 1000;     // of a count, to take their mean

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

// What a count in all batches promises of as many others, from the counts in their first half.
//
// Each half tells what a count c of the other comes to: f(c), the mean over the nodes. Twice the batches know more. If
// what is expected is linear in the count (as for counts of a Poisson process whose rates follow a gamma distribution)
// with slope b, then a count T of both promises (f(T/2) + b T/2) / (1 + b) a half: f(T/2) where halves have nothing in
// common, T/2 where they are the same.
std::vector<double> promise_of(std::span<const uint32_t> first, std::span<const uint32_t> all) {
  std::array<int64_t, kMostPromised + 1> nodes{}, others{};
  for (std::size_t node = 0; node < all.size(); ++node) {
    const uint32_t a = first[node], b = all[node] - a;
    if (a <= kMostPromised) ++nodes[a], others[a] += b;
    if (b <= kMostPromised) ++nodes[b], others[b] += a;
  }
  std::vector<double> mean;
  for (std::size_t c = 0; c <= kMostPromised && nodes[c] >= kEnoughNodes; ++c) {
    mean.push_back(static_cast<double>(others[c]) / static_cast<double>(nodes[c]));
    if (c > 0) mean[c] = std::max(mean[c], mean[c - 1]);
  }
  std::vector<double> promised;
  for (std::size_t count = 0; mean.size() >= 2 && count <= 2 * (mean.size() - 1); ++count) {
    const std::size_t low = std::min(count / 2, mean.size() - 2);
    const double half = static_cast<double>(count) / 2, slope = std::clamp(mean[low + 1] - mean[low], 0.0, 1.0);
    const double of_half = mean[low] + slope * (half - static_cast<double>(low));
    const double reads = 2 * (of_half + slope * half) / (1 + slope);
    promised.push_back(promised.empty() ? reads : std::max(promised.back(), reads));
  }
  return promised;
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

void Hotness::begin_second_half() { first_half_ = {node_reads_, expansions_}; }

void Hotness::end() {
  promised_ = {promise_of(first_half_[0], node_reads_), promise_of(first_half_[1], expansions_)};
  first_half_ = {};
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
