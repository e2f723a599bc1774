// The orders of a clique, and what a placement promises.
#include <algorithm>

#include "cache/plan/sweep.h"

namespace cohort::cache {
namespace {

constexpr int64_t kChunk = 1 << 16;  // sums are taken over these first, so that they do not depend on threads

std::size_t at(Kind kind) { return static_cast<std::size_t>(kind); }
std::size_t at(Tier tier) { return static_cast<std::size_t>(tier); }

// Seconds that the first copy saves per byte, entries included: on the member that reads it most, all others beside.
float first_density(const Costs& costs, const IndexCost& index, const Members& members, Kind kind, int64_t node) {
  double host_to_peer = 0, peer_to_local = 0;
  if (members.shared_counts) {
    const Costs::Saved saved = costs.saved(kind, members.counts[0], node);
    host_to_peer = members.size() * saved.host_to_peer;
    peer_to_local = saved.peer_to_local;
  } else {
    for (const Counts& counts : members.counts) {
      const Costs::Saved saved = costs.saved(kind, counts, node);
      host_to_peer += saved.host_to_peer;
      peer_to_local = std::max(peer_to_local, saved.peer_to_local);
    }
  }
  const int64_t bytes = costs.stored_bytes(kind, node) + members.size() * index.entry_bytes;
  return static_cast<float>((host_to_peer + peer_to_local) / static_cast<double>(bytes));
}

// Which of the clique's rows a directory that ends early still has: bool [V]; empty: all.
std::vector<bool> known_nodes(const CliqueRows& rows, int64_t num_entries, int64_t num_nodes) {
  if (num_entries == static_cast<int64_t>(rows.nodes.size())) return {};
  std::vector<bool> known(static_cast<std::size_t>(num_nodes));
  for (int64_t i = 0; i < num_entries; ++i) known[rows.nodes[static_cast<std::size_t>(i)]] = true;
  return known;
}

void add(Use& sum, const Use& use) {
  sum.reads += use.reads;
  sum.bytes += use.bytes;
  sum.lines += use.lines;
  sum.seconds += use.seconds;
}

// What each member reads from each tier, [n]. `tier_of(member, node)` is called in parallel.
template <typename TierOf>
std::vector<UseByTier> sum_use(const Costs& costs, Kind kind, const Members& members, TierOf tier_of) {
  const int64_t num_nodes = costs.num_nodes(), num_chunks = (num_nodes + kChunk - 1) / kChunk;
  const auto num_members = static_cast<std::size_t>(members.size());
  std::vector<UseByTier> chunks(static_cast<std::size_t>(num_chunks) * num_members);
#pragma omp parallel for schedule(dynamic) if (num_chunks > 1)
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
    UseByTier* sums = chunks.data() + static_cast<std::size_t>(chunk) * num_members;
    for (int64_t node = chunk * kChunk; node < std::min(num_nodes, (chunk + 1) * kChunk); ++node) {
      UseByTier use = costs.uses(kind, members.counts[0], node);
      for (std::size_t member = 0; member < num_members; ++member) {
        if (member > 0 && !members.shared_counts) use = costs.uses(kind, members.counts[member], node);
        const Tier tier = tier_of(member, node);
        add(sums[member][at(tier)], use[at(tier)]);
        if (tier != Tier::kLocal) add(sums[member][at(Tier::kRecent)], use[at(Tier::kRecent)]);
      }
    }
  }
  std::vector<UseByTier> total(num_members);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    for (std::size_t tier = 0; tier < kNumTiers; ++tier) add(total[i % num_members][tier], chunks[i][tier]);
  }
  return total;
}

void predict(const Costs& costs, const Members& members, const std::vector<Holders>& holders, Placement& placement) {
  for (Kind kind : kKinds) {
    if (costs.num_items(kind) == 0) continue;
    const Holders& holds = holders[at(kind)];
    std::vector<std::vector<bool>> known;
    for (const GpuPlan& gpu : placement.gpus) {
      known.push_back(known_nodes(placement.rows[at(kind)], gpu.slabs[at(kind)].num_entries, costs.num_nodes()));
    }
    const auto tier_of = [&](std::size_t member, int64_t node) {
      if (holds.holds(node, static_cast<int>(member))) return Tier::kLocal;
      if (!holds.held(node)) return Tier::kHost;
      const bool is_known = known[member].empty() || known[member][static_cast<std::size_t>(node)];
      return is_known ? Tier::kPeer : Tier::kHost;
    };
    const std::vector<UseByTier> use = sum_use(costs, kind, members, tier_of);
    for (std::size_t member = 0; member < use.size(); ++member) placement.gpus[member].use[at(kind)] = use[member];
  }
}

}  // namespace

Orders::Orders(const Costs& costs, const IndexCost& index, const Members& members) {
  for (Kind kind : kKinds) {
    if (costs.num_items(kind) == 0) continue;
    int64_t most = kMaxMisses;
    for (const int64_t bytes : members.budget_bytes) most += bytes / costs.least_stored_bytes(kind);
    first_[at(kind)] = order_by(costs.num_items(kind), most,
                                [&](int64_t node) { return first_density(costs, index, members, kind, node); });
    const int num_orders = members.size() == 1 ? 0 : members.shared_counts ? 1 : members.size();
    for (int member = 0; member < num_orders; ++member) {
      const Counts& counts = members.counts[static_cast<std::size_t>(member)];
      replicas_[at(kind)].push_back(order_again(first_[at(kind)], costs.num_items(kind), [&](int64_t node) {
        return static_cast<float>(costs.saved(kind, counts, node).peer_to_local /
                                  static_cast<double>(costs.stored_bytes(kind, node)));
      }));
    }
  }
}

Placement place(const Costs& costs, const IndexCost& index, const Members& members) {
  Swept swept = sweep(costs, index, members, Orders(costs, index, members));
  predict(costs, members, swept.holders, swept.placement);
  return std::move(swept.placement);
}

}  // namespace cohort::cache
