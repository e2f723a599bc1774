#include "cache/plan/hotness.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/format.h"
#include "base/prefetch.h"

namespace cohort::cache {
namespace {

constexpr uint64_t kHashMultiplier = 0x9E3779B97F4A7C15ull;  // 2^64 / golden ratio, odd
constexpr std::size_t kMostPromised = 128;                   // counts above this promise the same more as it does
constexpr int64_t kEnough = 1000;                            // items of a count, to take their mean

template <typename T>
void add_to(T& count, T more) {
  if (count > std::numeric_limits<T>::max() - more) {
    throw base::Error(
        {"hotness", "counts below the bound of their type", "one that would pass it", "pre-sample fewer batches"});
  }
  count += more;
}

// Mean reads of an item by its count, ascending: `reads` by `weights`. Between counts with fewer than kEnough items it
// is interpolated; empty when fewer than two counts have enough.
std::vector<double> rising_means(std::span<const int64_t> reads, std::span<const double> weights,
                                 std::span<const int64_t> items) {
  std::vector<double> means;
  for (std::size_t count = 0; count < items.size(); ++count) {
    if (items[count] < kEnough || weights[count] <= 0) continue;
    const double mean = static_cast<double>(reads[count]) / weights[count];
    const double last = means.empty() ? mean : means.back(), next = std::max(last, mean);
    const std::size_t known = means.size(), steps = count - known + 1;
    for (std::size_t i = 1; i <= steps; ++i) {
      means.push_back(last + (next - last) * static_cast<double>(i) / static_cast<double>(steps));
    }
  }
  return means.size() >= 2 ? means : std::vector<double>();
}

// What a count promises of as many other reads: the mean of what a trial read of the items that have it, times what
// makes all items together promise what was counted. `tried` by count, the last above kMostPromised; weight(i): of an
// item in the mean.
template <typename Weight>
std::vector<double> promise_of(std::span<const uint32_t> counts, std::span<const int64_t> tried, Weight weight) {
  std::vector<int64_t> items(kMostPromised + 1);
  std::vector<double> weights(kMostPromised + 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > kMostPromised) continue;
    ++items[counts[i]];
    weights[counts[i]] += weight(i);
  }
  std::vector<double> promised = rising_means(tried, weights, items);
  if (promised.empty()) return promised;
  double counted = 0, sum = 0;  // what counts above the last promise more than it is as counted
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto known = std::min<std::size_t>(counts[i], promised.size() - 1);
    counted += weight(i) * static_cast<double>(known);
    sum += weight(i) * promised[known];
  }
  for (double& reads : promised) reads *= sum > 0 ? counted / sum : 0;
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

Hotness::Hotness(HotnessKey key, int64_t num_nodes, int64_t num_lists, uint64_t seed)
    : key_(std::move(key)),
      seed_(seed),
      node_reads_(static_cast<std::size_t>(num_nodes), 0u),
      expansions_(static_cast<std::size_t>(num_lists), 0u),
      edges_read_(static_cast<std::size_t>(num_lists), uint64_t{0}) {}

void Hotness::add(const SampledBatch& batch) {
  if (tried_) return try_batch(batch);
  ++totals_.num_batches;
  base::require(batch.lists.size() == batch.picks.size(), "picks of each list");
  const int64_t num_edges = std::accumulate(batch.picks.begin(), batch.picks.end(), int64_t{0});
  totals_.max_batch_nodes = std::max(totals_.max_batch_nodes, std::ssize(batch.nodes));
  totals_.max_batch_edges = std::max(totals_.max_batch_edges, num_edges);
  const int64_t* nodes = batch.nodes.data();
  for (std::size_t i = 0; i < batch.nodes.size(); ++i) {
    base::prefetch_ahead(node_reads_.data(), nodes, i, batch.nodes.size());
    add_to(node_reads_[static_cast<std::size_t>(nodes[i])], 1u);
  }
  const std::span<const int64_t> num_read = batch.looked_at.empty() ? batch.picks : batch.looked_at;
  const int64_t* lists = batch.lists.data();
  for (std::size_t i = 0; i < batch.lists.size(); ++i) {
    base::prefetch_ahead(expansions_.data(), lists, i, batch.lists.size());
    base::prefetch_ahead(edges_read_.data(), lists, i, batch.lists.size());
    add_to(expansions_[static_cast<std::size_t>(lists[i])], 1u);
    add_to(edges_read_[static_cast<std::size_t>(lists[i])], static_cast<uint64_t>(num_read[i]));
  }
}

void Hotness::try_batch(const SampledBatch& batch) {
  const auto count = [](const auto& counts, std::span<const int64_t> items, std::span<const int64_t> weights,
                        std::vector<int64_t>& tried) {
    for (std::size_t i = 0; i < items.size(); ++i) {
      base::prefetch_ahead(counts.data(), items.data(), i, items.size());
      tried[std::min<std::size_t>(counts[static_cast<std::size_t>(items[i])], kMostPromised + 1)] +=
          weights.empty() ? 1 : weights[i];
    }
  };
  count(node_reads_, batch.nodes, {}, (*tried_)[0]);
  count(expansions_, batch.lists, batch.looked_at, (*tried_)[1]);
}

void Hotness::begin_trial() { tried_.emplace().fill(std::vector<int64_t>(kMostPromised + 2)); }

void Hotness::end_trial(int64_t whole_lists_edges) {
  const auto alike = [](std::size_t) { return 1.0; };
  promised_[0] = promise_of(node_reads_, (*tried_)[0], alike);
  if (whole_lists_edges == 0) {
    promised_[1] = promise_of(expansions_, (*tried_)[1], alike);
  } else {  // a list is as long as what was read of it; those that were not share the other edges
    auto others = static_cast<double>(whole_lists_edges);
    double num_others = 0;
    const auto length = [&](std::size_t list) { return static_cast<double>(edges_read_[list]) / expansions_[list]; };
    for (std::size_t list = 0; list < expansions_.size(); ++list) {
      expansions_[list] > 0 ? others -= length(list) : ++num_others;
    }
    promised_[1] = promise_of(expansions_, (*tried_)[1], [&](std::size_t list) {
      return expansions_[list] > 0 ? length(list) : std::max(0.0, others) / num_others;
    });
  }
  tried_.reset();
}

std::filesystem::path hotness_path(const std::filesystem::path& dataset, const HotnessKey& key) {
  return dataset / base::format("hotness-{:016x}.bin", key.digest());
}

}  // namespace cohort::cache
