#include "sampler/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/random.h"
#include "dataset/npy.h"

namespace cohort::sampler {
namespace {

// A stream of its own, apart from the draws of batches (steps there stay far below).
constexpr uint64_t kShuffleStream = ~uint64_t{0};
constexpr uint64_t kTurnsOfCommunities = uint64_t{1} << 32;  // in place of a group, of which there are fewer

bool in_range(int64_t node, int64_t num_nodes) { return node >= 0 && node < num_nodes; }

[[noreturn]] void refuse_id(const std::string& place, int64_t num_nodes, int64_t node) {
  throw base::Error({place, base::format("a node id in [0, {})", num_nodes), std::to_string(node), ""});
}

void check_seeds(std::span<const int64_t> seeds, int64_t num_nodes, const std::string& place, bool may_repeat) {
  std::vector<bool> seen(static_cast<std::size_t>(num_nodes), false);
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (!in_range(seeds[i], num_nodes)) refuse_id(base::format("{}[{}]", place, i), num_nodes, seeds[i]);
    if (seen[static_cast<std::size_t>(seeds[i])] && !may_repeat) {
      throw base::Error({base::format("{}[{}]", place, i), "every node once",
                         base::format("node {} a second time", seeds[i]), "remove duplicates from the input nodes"});
    }
    seen[static_cast<std::size_t>(seeds[i])] = true;
  }
}

void check_starts(const SeedSet& set, const std::string& place) {
  const std::vector<int64_t>& starts = set.starts;
  if (starts.size() >= 2 && starts.front() == 0 && starts.back() == set.size() &&
      std::is_sorted(starts.begin(), starts.end())) {
    return;
  }
  throw base::Error(
      {place, base::format("starts of groups, ascending from 0 to {}", set.size()), base::joined(starts), ""});
}

std::vector<int64_t> read_numbers(const std::filesystem::path& path, std::vector<int64_t> shape = {-1}) {
  const dataset::MappedArray file = dataset::map_npy(path, {{dataset::DType::int64}, std::move(shape)});
  const auto numbers = file.as<int64_t>();
  return {numbers.begin(), numbers.end()};
}

// The positions, by the turn of their communities: int64 [communities]. Those of one community stay in their order.
std::vector<int64_t> by_community(std::span<const int64_t> positions, const Communities& communities,
                                  const std::vector<int64_t>& turn) {
  const auto turn_of = [&](int64_t position) {
    return static_cast<std::size_t>(
        turn[static_cast<std::size_t>(communities.of_seed[static_cast<std::size_t>(position)])]);
  };
  std::vector<std::size_t> next(turn.size() + 1);  // of each turn, where its next position goes
  for (const int64_t position : positions) ++next[turn_of(position) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<int64_t> sorted(positions.size());
  for (const int64_t position : positions) sorted[next[turn_of(position)]++] = position;
  return sorted;
}

// See EpochOrders.
std::vector<int64_t> mixed(std::span<const int64_t> positions, double mix, const Communities& communities,
                           const std::vector<int64_t>& turn) {
  const auto size = std::ssize(positions);
  const auto num_mixed = static_cast<int64_t>(std::llround(mix * static_cast<double>(size)));
  auto from_everywhere = positions.begin();
  const std::vector<int64_t> sorted =
      by_community(positions.subspan(static_cast<std::size_t>(num_mixed)), communities, turn);
  auto of_communities = sorted.begin();
  std::vector<int64_t> order;
  order.reserve(positions.size());
  int64_t share = 0;  // num_mixed * how many there are in order, modulo size
  for (int64_t i = 0; i < size; ++i) {
    share += num_mixed;
    order.push_back(share >= size ? *from_everywhere++ : *of_communities++);
    if (share >= size) share -= size;
  }
  return order;
}

std::vector<int64_t> order_of_epoch(const std::vector<int64_t>& starts, std::shared_ptr<const Communities> communities,
                                    double mix, uint64_t seed, uint64_t epoch, const std::stop_token& stop) {
  std::vector<int64_t> order, turn;
  order.reserve(static_cast<std::size_t>(starts.back()));
  if (communities) turn = shuffled(communities->count, seed, epoch, kTurnsOfCommunities, stop);
  for (std::size_t group = 0; group + 1 < starts.size(); ++group) {
    const int64_t first = starts[group];
    std::vector<int64_t> own = shuffled(starts[group + 1] - first, seed, epoch, group, stop);
    for (int64_t& position : own) position += first;
    if (communities) own = mixed(own, mix, *communities, turn);
    order.insert(order.end(), own.begin(), own.end());
  }
  return order;
}

void check_times(std::span<const int64_t> order, std::span<const int64_t> times, const std::string& place) {
  const auto refuse = [&](const std::string& found) {
    throw base::Error({place, "[2, nodes]: nodes by ascending time, and the time of each", found, ""});
  };
  if (order.empty()) refuse("none");
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || order[i] >= std::ssize(times)) refuse(base::format("node {}", order[i]));
    const auto time_at = [&](std::size_t rank) { return times[static_cast<std::size_t>(order[rank])]; };
    if (i > 0 && time_at(i) < time_at(i - 1)) refuse(base::format("{} after {}", time_at(i), time_at(i - 1)));
  }
}

void check_sums(std::span<const int64_t> sums, const std::string& place) {
  const auto refuse = [&](const std::string& found) {
    throw base::Error({place, "sums of weights, ascending from at least 0 to at least 1", found, ""});
  };
  if (sums.empty()) refuse("none");
  if (sums.front() < 0) refuse(std::to_string(sums.front()));
  const auto below = std::ranges::adjacent_find(sums, std::ranges::greater());
  if (below != sums.end()) refuse(base::format("{} after {}", below[1], below[0]));
  if (sums.back() < 1) refuse(std::to_string(sums.back()));
}

}  // namespace

NodeWeights::NodeWeights(std::vector<int64_t> sums, const std::string& place) {
  auto owner = std::make_shared<const std::vector<int64_t>>(std::move(sums));
  sums_ = *owner;
  owner_ = std::move(owner);
  check_sums(sums_, place);
}

NodeTimes::NodeTimes(std::vector<int64_t> order_and_times, const std::string& place) {
  auto owner = std::make_shared<const std::vector<int64_t>>(std::move(order_and_times));
  order_ = std::span(*owner).first(owner->size() / 2);
  times_ = std::span(*owner).subspan(owner->size() / 2);
  owner_ = std::move(owner);
  check_times(order_, times_, place);
}

NodeTimes::NodeTimes(const std::filesystem::path& path) {
  const dataset::NpyDemand demand{{dataset::DType::int64}, {2, -1}};
  auto owner = std::make_shared<const dataset::MappedArray>(dataset::map_npy(path, demand));
  const std::span<const int64_t> both = owner->as<int64_t>();
  order_ = both.first(both.size() / 2);
  times_ = both.subspan(both.size() / 2);
  owner_ = std::move(owner);
  check_times(order_, times_, path.string());
}

int64_t NodeTimes::count_until(int64_t time) const {
  return std::ranges::upper_bound(order_, time, {}, [&](int64_t node) { return time_of(node); }) - order_.begin();
}

NodeWeights::NodeWeights(const std::filesystem::path& path) {
  const dataset::NpyDemand demand{{dataset::DType::int64}, {-1}};
  auto owner = std::make_shared<const dataset::MappedArray>(dataset::map_npy(path, demand));
  sums_ = owner->as<int64_t>();
  owner_ = std::move(owner);
  check_sums(sums_, path.string());
}

int64_t NodeWeights::node_of(int64_t number) const { return std::ranges::upper_bound(sums_, number) - sums_.begin(); }

NodeCommunities::NodeCommunities(const std::filesystem::path& path, int64_t num_nodes)
    : file_(std::make_shared<const dataset::MappedArray>(dataset::map_npy(path))) {
  const bool are_numbers = file_->dtype() == dataset::DType::int32 || file_->dtype() == dataset::DType::int64;
  if (are_numbers && file_->shape() == std::vector<int64_t>{num_nodes}) return;
  throw base::Error({path.string(), base::format("the community of each node: int32 or int64 [{}]", num_nodes),
                     base::format("{} [{}]", name_of(file_->dtype()), base::joined(file_->shape())),
                     "of several node types, the nodes of all are numbered through; cohort dataset partition writes "
                     "such a file"});
}

std::shared_ptr<const Communities> NodeCommunities::of(std::span<const int64_t> nodes) const {
  if (!file_) return nullptr;
  auto found = std::make_shared<Communities>();
  const auto look_up = [&](auto numbers) {
    for (const int64_t node : nodes) found->of_seed.push_back(numbers[static_cast<std::size_t>(node)]);
  };
  file_->dtype() == dataset::DType::int32 ? look_up(file_->as<int32_t>()) : look_up(file_->as<int64_t>());
  std::vector<int64_t> known = found->of_seed;
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  for (int64_t& community : found->of_seed) community = std::ranges::lower_bound(known, community) - known.begin();
  found->count = std::ssize(known);
  return found;
}

SeedSet SeedSet::of_pairs(std::vector<int64_t> ids) {
  SeedSet set;
  set.seeds = std::move(ids);
  set.are_pairs = true;
  set.starts = {0, set.size()};
  return set;
}

std::vector<int64_t> shuffled(int64_t size, uint64_t seed, uint64_t epoch, uint64_t group,
                              const std::stop_token& stop) {
  std::vector<int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  const base::PhiloxKey key = base::derive_key(base::key_of(seed), epoch, kShuffleStream - group);
  constexpr uint64_t kLookEvery = uint64_t{1} << 16;
  for (uint64_t i = static_cast<uint64_t>(size); i > 1; --i) {
    if (i % kLookEvery == 0 && stop.stop_requested()) break;
    std::swap(order[i - 1], order[base::random_below(i, key, i, 0)]);
  }
  return order;
}

Schedule::Schedule(const SeedSet& set, uint32_t batch_size, std::vector<int64_t> order)
    : set_(set), batch_size_(batch_size), order_(std::move(order)) {
  if (batch_size_ == 0) throw base::Error({"batch size", "at least 1", "0", ""});
  const std::size_t num_groups = set.starts.size() - 1;
  for (std::size_t group = 0; group < num_groups; ++group) {
    const auto size = static_cast<uint64_t>(set.starts[group + 1] - set.starts[group]);
    num_steps_ = std::max(num_steps_, (size + batch_size_ - 1) / batch_size_ * num_groups);
  }
}

std::vector<int64_t> EpochOrders::of(const SeedSet& set, const channel::Request& request) {
  if (!request.shuffle) {
    std::vector<int64_t> order(static_cast<std::size_t>(set.size()));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  const bool is_next = next_.valid() && next_starts_ == set.starts && next_communities_ == set.communities &&
                       next_epoch_ == request.epoch;
  std::vector<int64_t> order =
      is_next ? next_.get() : order_of_epoch(set.starts, set.communities, mix_, seed_, request.epoch, {});
  next_starts_ = set.starts;
  next_communities_ = set.communities;
  next_epoch_ = request.epoch + 1;
  unwanted_.request_stop();
  unwanted_ = {};
  next_ = std::async(std::launch::async, order_of_epoch, set.starts, set.communities, mix_, seed_, next_epoch_,
                     unwanted_.get_token());
  return order;
}

std::span<const int64_t> Schedule::positions(uint64_t step) const {
  const std::size_t num_groups = set_.starts.size() - 1, group = step % num_groups;
  const auto begin = static_cast<std::size_t>(set_.starts[group]),
             end = static_cast<std::size_t>(set_.starts[group + 1]);
  const std::size_t first = std::min(end, begin + step / num_groups * batch_size_);
  return std::span(order_).subspan(first, std::min<std::size_t>(batch_size_, end - first));
}

std::span<const int64_t> Schedule::of_batch(std::span<const int64_t> values, uint64_t step,
                                            std::vector<int64_t>& out) const {
  out.clear();
  if (values.empty()) return out;
  for (int64_t position : positions(step)) out.push_back(values[static_cast<std::size_t>(position)]);
  return out;
}

std::vector<int64_t> read_seeds(const std::filesystem::path& path, int64_t num_nodes, bool may_repeat) {
  std::vector<int64_t> seeds = read_numbers(path);
  check_seeds(seeds, num_nodes, path.string(), may_repeat);
  return seeds;
}

std::vector<int64_t> read_times(const std::filesystem::path& path, int64_t num_seeds) {
  return read_numbers(path, {num_seeds});
}

std::vector<int64_t> read_pairs(const std::filesystem::path& path, int64_t num_nodes) {
  std::vector<int64_t> ids = read_numbers(path, {-1, 2});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (in_range(ids[i], num_nodes)) continue;
    refuse_id(base::format("{}[{}, {}]", path.string(), i / 2, i % 2), num_nodes, ids[i]);
  }
  return ids;
}

std::filesystem::path SeedSets::file_of(uint32_t number, bool are_pairs) const {
  return folder_ / base::format("{}-{}.npy", are_pairs ? "pairs" : "seeds", number);
}

const SeedSet& SeedSets::get(uint32_t number, bool may_repeat) {
  std::erase_if(
      sets_, [&](const auto& known) { return !std::filesystem::exists(file_of(known.first, known.second.are_pairs)); });
  if (const auto known = sets_.find(number); known != sets_.end()) return known->second;
  const std::filesystem::path pairs = file_of(number, true);
  SeedSet set = std::filesystem::exists(pairs) ? SeedSet::of_pairs(read_pairs(pairs, num_nodes_))
                                               : read_seeds(file_of(number, false), num_nodes_, may_repeat);
  if (!set.are_pairs) set.communities = communities_.of(set.seeds);
  const std::filesystem::path times = folder_ / base::format("seeds-{}-times.npy", number);
  if (std::filesystem::exists(times)) set.times = read_times(times, set.size());
  const auto read_weights = [&](const char* end, NodeWeights& weights) {
    const std::filesystem::path path = folder_ / base::format("weights-{}-{}.npy", number, end);
    if (std::filesystem::exists(path)) weights = NodeWeights(path);
  };
  read_weights("source", set.source_weights);
  read_weights("target", set.target_weights);
  const auto read_times = [&](const char* end, NodeTimes& of_nodes) {
    const std::filesystem::path path = folder_ / base::format("node-times-{}-{}.npy", number, end);
    if (std::filesystem::exists(path)) of_nodes = NodeTimes(path);
  };
  read_times("source", set.source_times);
  read_times("target", set.target_times);
  const std::filesystem::path starts = folder_ / base::format("seeds-{}-starts.npy", number);
  if (std::filesystem::exists(starts)) {
    set.starts = read_numbers(starts);
    check_starts(set, starts.string());
  }
  return sets_.emplace(number, std::move(set)).first->second;
}

const SeedSet* SeedSets::of(const channel::Request& request, const std::function<bool()>& is_wanted) {
  try {
    return &get(request.seed_set, request.disjoint);
  } catch (const base::Error&) {
    if (is_wanted()) throw;
    return nullptr;
  }
}

}  // namespace cohort::sampler
