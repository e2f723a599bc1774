#include "cache/clique_directory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ibp/encoded_ref.h"
#include "tests/cache/small_graph.h"

namespace cohort::cache {
namespace {

// A clique that was filled at random: node by node, each member has it or not.
struct RandomClique {
  struct Member {
    std::vector<uint32_t> nodes;
    std::vector<uint64_t> entries;
    std::map<int64_t, uint64_t> entry_of;  // the same
  };
  CliqueRows rows;
  std::vector<Member> members;

  RandomClique(uint64_t seed, std::size_t num_members, int64_t num_nodes) : members(num_members) {
    uint64_t drawn = 0;
    const auto draw = [&](uint64_t bound) { return base::random_below(bound, base::key_of(seed), drawn++, 0); };
    std::vector<uint32_t> order(static_cast<std::size_t>(num_nodes));
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<uint32_t>(i);
      std::swap(order[i], order[draw(i + 1)]);
    }
    for (const uint32_t node : order) {
      const uint64_t owner = draw(2 * num_members);  // every other node is cached nowhere
      if (owner >= num_members) continue;
      rows.nodes.push_back(node);
      rows.owners.push_back(static_cast<uint16_t>(owner));
      for (std::size_t member = 0; member < num_members; ++member) {
        if (member != owner && draw(3) > 0) continue;  // a third of the others have a replica
        Member& to = members[member];
        const uint64_t at = draw(to.nodes.size() + 1);
        const uint64_t entry =
            ibp::make_entry(4 * draw(uint64_t{1} << 40), static_cast<uint32_t>(4 * draw(1 << 16)), draw(2) == 0);
        to.nodes.insert(to.nodes.begin() + static_cast<std::ptrdiff_t>(at), node);
        to.entries.insert(to.entries.begin() + static_cast<std::ptrdiff_t>(at), entry);
        to.entry_of[node] = entry;
      }
    }
  }
  std::vector<FilledSlab> slabs() const {
    std::vector<FilledSlab> filled;
    for (const Member& member : members) filled.push_back({member.nodes, member.entries});
    return filled;
  }
  // One node, one GPU, looked up from the definition.
  uint64_t expected(std::size_t member, int64_t num_entries, int64_t node) const {
    const auto& own = members[member].entry_of;
    if (own.contains(node)) return own.at(node) | (uint64_t{member} << 56);
    const auto known_end = rows.nodes.begin() + num_entries;
    const auto row = std::find(rows.nodes.begin(), known_end, node);
    if (row == known_end) return kNoEntry;
    const uint64_t owner = rows.owners[static_cast<std::size_t>(row - rows.nodes.begin())];
    return members[owner].entry_of.at(node) | (owner << 56);
  }
};

void expect_as_defined(const RandomClique& clique, int64_t num_entries, int64_t num_nodes) {
  for (std::size_t member = 0; member < clique.members.size(); ++member) {
    const auto entry_of =
        entries_seen_by(static_cast<int>(member), clique.rows, num_entries, clique.slabs(), num_nodes);
    const DirectoryArrays arrays(entry_of);
    ASSERT_EQ(entry_of.size(), static_cast<std::size_t>(num_nodes));
    for (int64_t node = 0; node < num_nodes; ++node) {
      const uint64_t expected = clique.expected(member, num_entries, node);
      ASSERT_EQ(entry_of[static_cast<std::size_t>(node)], expected) << node << " from " << member;
      ASSERT_EQ(arrays.ref().find(node), expected) << node << " from " << member;
    }
  }
}

TEST(CliqueDirectory, FindsTheOwnCopyElseTheFirst) {
  for (const int64_t num_nodes : {1, 31, 32, 33, 64, 77, 500}) {
    for (const std::size_t num_members : {1, 2, 3, 8}) {
      const RandomClique clique(static_cast<uint64_t>(num_nodes) * 10 + num_members, num_members, num_nodes);
      const auto num_rows = static_cast<int64_t>(clique.rows.nodes.size());
      for (const int64_t num_entries : {int64_t{0}, std::min<int64_t>(1, num_rows), num_rows / 2, num_rows}) {
        expect_as_defined(clique, num_entries, num_nodes);
      }
    }
  }
}

TEST(CliqueDirectory, RefusesWhatContradictsItself) {
  RandomClique clique(3, 3, 50);
  EXPECT_THROW(entries_seen_by(3, clique.rows, 0, clique.slabs(), 50), base::Error);
  EXPECT_THROW(entries_seen_by(0, clique.rows, 51, clique.slabs(), 50), base::Error);
  EXPECT_THROW(entries_seen_by(0, RandomClique(3, 9, 50).rows, 0, RandomClique(3, 9, 50).slabs(), 50), base::Error);
  const auto num_rows = static_cast<int64_t>(clique.rows.nodes.size());
  clique.members[clique.rows.owners[0]].entries.pop_back();
  EXPECT_THROW(entries_seen_by(0, clique.rows, num_rows, clique.slabs(), 50), base::Error);
}

TEST(CliqueDirectory, RefusesARowThatItsOwnerDoesNotHave) {
  RandomClique clique(4, 2, 50);
  const auto row = std::find(clique.rows.owners.begin(), clique.rows.owners.end(), 1) - clique.rows.owners.begin();
  auto& owner = clique.members[1];
  const auto at = std::find(owner.nodes.begin(), owner.nodes.end(), clique.rows.nodes[static_cast<std::size_t>(row)]) -
                  owner.nodes.begin();
  owner.nodes.erase(owner.nodes.begin() + at);
  owner.entries.erase(owner.entries.begin() + at);
  const auto num_rows = static_cast<int64_t>(clique.rows.nodes.size());
  EXPECT_THROW(entries_seen_by(1, clique.rows, num_rows, clique.slabs(), 50), base::Error);
}

// Entries of a slab that holds its rows 8 bytes apart.
std::vector<uint64_t> entries_of(const Slab& slab) {
  std::vector<uint64_t> entries;
  for (std::size_t i = 0; i < slab.nodes.size(); ++i) entries.push_back(ibp::make_entry(8 * i, 0, false));
  return entries;
}

// Reads a batch that a directory sends to each tier.
std::array<double, kNumTiers> reads_by_tier(const DirectoryRef& directory, uint32_t member, Kind kind,
                                            const SmallInput& small) {
  std::array<double, kNumTiers> reads{};
  for (int64_t node = 0; node < small.num_nodes(); ++node) {
    const uint64_t entry = directory.find(node);
    Tier tier = Tier::kHost;
    if (entry != kNoEntry) tier = ibp::entry_region(entry) == member ? Tier::kLocal : Tier::kPeer;
    reads[static_cast<std::size_t>(tier)] += mean_reads(kind, small.input.counts[0], node);
  }
  return reads;
}

// The reads that directories of a plan send to each tier are those that the plan predicts. Returns how many of the
// directories know only a part of the clique's rows.
int expect_planned_reads(const SmallInput& small, const Plan& plan, Kind kind) {
  const auto at_kind = static_cast<std::size_t>(kind);
  int num_partly_known = 0;
  for (std::size_t c = 0; c < plan.cliques.size(); ++c) {
    const CliquePlan& clique = plan.cliques[c];
    const auto plan_of = [&](std::size_t member) { return plan.gpus[static_cast<std::size_t>(clique.gpus[member])]; };
    std::vector<std::vector<uint64_t>> entries;
    for (std::size_t i = 0; i < clique.gpus.size(); ++i) entries.push_back(entries_of(plan_of(i).slabs[at_kind]));
    const std::vector<std::span<const uint64_t>> views(entries.begin(), entries.end());
    for (uint32_t member = 0; member < views.size(); ++member) {
      const GpuPlan gpu = plan_of(member);
      num_partly_known += std::cmp_less(gpu.slabs[at_kind].num_entries, clique.rows[at_kind].nodes.size());
      const DirectoryArrays arrays =
          directory_seen_by(static_cast<int>(member), plan, c, kind, views, small.num_nodes());
      const auto reads = reads_by_tier(arrays.ref(), member, kind, small);
      for (std::size_t tier = 0; tier < kNumTiers; ++tier) {
        EXPECT_NEAR(reads[tier], gpu.use[at_kind][tier].reads, 1e-9) << "tier " << tier << " of member " << member;
      }
    }
  }
  return num_partly_known;
}

TEST(CliqueDirectory, SendsReadsWhereThePlanPredictsThem) {
  int num_partly_known = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const Kind kind : {Kind::kFeature, Kind::kTopology}) {
      SmallInput small = random_input(seed, {.num_nodes = 70}, {{0, 2, 3}, {1}}, {4000, 3000, 1500, 300});
      small.input.index = {{64, 64}, 8, 0};
      const Plan plan = make_plan(small.view());
      num_partly_known += expect_planned_reads(small, plan, kind);
    }
  }
  EXPECT_GT(num_partly_known, 0);
}

}  // namespace
}  // namespace cohort::cache
