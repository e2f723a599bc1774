// What holds for every input: budgets, single copies, more budget, and sums that agree.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "cache/plan/plan.h"
#include "tests/cache/brute_force.h"
#include "tests/cache/small_graph.h"

namespace cohort::cache {
namespace {

constexpr std::array<std::size_t, 2> kBothKinds = {0, 1};

struct PlanCase {
  std::string cliques;
  int num_gpus;
  bool equal_sizes;
  bool counts_per_clique;
  int64_t host_row_bytes = 0;
  bool has_lists = true;
};

class PlanProperty : public testing::TestWithParam<PlanCase> {
 protected:
  SmallInput random(uint64_t seed, int64_t num_nodes = 120) const {
    const PlanCase& c = GetParam();
    std::vector<int64_t> budgets;
    for (int gpu = 0; gpu < c.num_gpus; ++gpu) {
      budgets.push_back(
          static_cast<int64_t>(base::random_below(9000, base::key_of(seed), 77, static_cast<uint64_t>(gpu))));
    }
    SmallInput small = random_input(seed, {num_nodes, c.equal_sizes, c.equal_sizes, c.counts_per_clique},
                                    cliques_named(c.cliques, c.num_gpus), budgets);
    small.input.index = {{bitmap_bytes(num_nodes), bitmap_bytes(num_nodes)}, 8, 100};
    small.table().host_rows.bytes = c.host_row_bytes;
    small.has_lists = c.has_lists;
    return small;
  }
};

TEST_P(PlanProperty, BudgetsHoldAndBytesAddUp) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SmallInput small = random(seed);
    const Plan plan = make_plan(small.view());
    const Costs costs(small.input.sizes, small.input.links);
    for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu) {
      const GpuPlan& at = plan.gpus[gpu];
      EXPECT_LE(at.used_bytes(), small.input.budget_bytes[gpu]);
      EXPECT_EQ(at.budget_bytes, small.input.budget_bytes[gpu]);
      int64_t entries = 0, bitmaps = 0;
      for (std::size_t kind : kBothKinds) {
        int64_t bytes = 0;
        for (uint32_t node : at.slabs[kind].nodes) bytes += costs.stored_bytes(static_cast<Kind>(kind), node);
        EXPECT_EQ(bytes, at.slabs[kind].bytes);
        entries += at.slabs[kind].num_entries;
        bitmaps += at.slabs[kind].num_entries > 0 ? small.input.index.bitmap_bytes[kind] : 0;
      }
      EXPECT_GE(at.index_bytes, entries > 0 ? 8 * entries + bitmaps + 100 : 0);
    }
  }
}

// Every row of a clique stands in it once, its owner holds it, and no GPU holds one twice or one that is not listed.
TEST_P(PlanProperty, RowsAreListedOnceAndHeldByTheirOwner) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SmallInput small = random(seed);
    const Plan plan = make_plan(small.view());
    for (const CliquePlan& clique : plan.cliques) {
      for (std::size_t kind : kBothKinds) {
        std::vector<std::set<uint32_t>> held;
        for (int gpu : clique.gpus) {
          const auto& nodes = plan.gpus[static_cast<std::size_t>(gpu)].slabs[kind].nodes;
          held.emplace_back(nodes.begin(), nodes.end());
          EXPECT_EQ(held.back().size(), nodes.size());
        }
        const CliqueRows& rows = clique.rows[kind];
        const std::set<uint32_t> listed(rows.nodes.begin(), rows.nodes.end());
        EXPECT_EQ(listed.size(), rows.nodes.size());
        for (std::size_t i = 0; i < rows.nodes.size(); ++i) EXPECT_TRUE(held[rows.owners[i]].contains(rows.nodes[i]));
        for (const auto& of_gpu : held) {
          EXPECT_TRUE(std::includes(listed.begin(), listed.end(), of_gpu.begin(), of_gpu.end()));
        }
      }
    }
  }
}

// A second copy only of what saves more there, per byte, than anything that found no place in the clique.
TEST_P(PlanProperty, ReplicasPay) {
  if (!GetParam().equal_sizes) return;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    SmallInput small = random(seed);
    small.input.index = {{0, 0}, 0, 0};
    const Plan plan = make_plan(small.view());
    const Costs costs(small.input.sizes, small.input.links);
    for (std::size_t c = 0; c < plan.cliques.size(); ++c) {
      const CliquePlan& clique = plan.cliques[c];
      const Counts& counts = counts_of(small.input, c);
      double left_out = 0, least_replica = 1;
      for (std::size_t kind : kBothKinds) {
        std::map<uint32_t, std::size_t> owner;
        for (std::size_t i = 0; i < clique.rows[kind].nodes.size(); ++i) {
          owner[clique.rows[kind].nodes[i]] = clique.rows[kind].owners[i];
        }
        for (int64_t node = 0; node < small.num_nodes(); ++node) {
          const double first =
              static_cast<double>(clique.gpus.size()) * costs.saved(static_cast<Kind>(kind), counts, node).host_to_peer;
          if (!owner.contains(static_cast<uint32_t>(node))) left_out = std::max(left_out, first);
        }
        for (std::size_t i = 0; i < clique.gpus.size(); ++i) {
          for (uint32_t node : plan.gpus[static_cast<std::size_t>(clique.gpus[i])].slabs[kind].nodes) {
            if (owner.at(node) == i) continue;
            const auto saved = costs.saved(static_cast<Kind>(kind), counts, node);
            least_replica = std::min(least_replica, saved.peer_to_local);
          }
        }
      }
      EXPECT_GE(least_replica, left_out * (1 - 1e-6)) << "seed " << seed;
    }
  }
}

// Exactly for GPUs alone; in a clique, items of different sizes may pack worse by one item a GPU.
TEST_P(PlanProperty, MoreBudgetNeverPredictsMoreSeconds) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SmallInput small = random(seed);
    double before = make_plan(small.view()).seconds();
    const bool alone = small.input.cliques.size() == small.input.budget_bytes.size();
    const double slack = alone ? 0 : small.num_gpus() * most_saved_by_one_item(small);
    for (uint64_t step = 0; step < 25; ++step) {
      const uint64_t gpu = base::random_below(static_cast<uint64_t>(small.num_gpus()), base::key_of(seed), step, 0);
      small.input.budget_bytes[gpu] += static_cast<int64_t>(base::random_below(900, base::key_of(seed), step, 1));
      const double now = make_plan(small.view()).seconds();
      EXPECT_LE(now, before * (1 + 1e-6) + slack) << "seed " << seed << " step " << step;
      before = now;
    }
  }
}

// Reads do not depend on where rows are, and hits add up to them.
TEST_P(PlanProperty, ReadsAreAllAccountedFor) {
  SmallInput small = random(3);
  const Plan plan = make_plan(small.view());
  for (std::size_t c = 0; c < plan.cliques.size(); ++c) {
    const OwnedCounts& counts = small.counts[GetParam().counts_per_clique ? c : 0];
    const std::array<const std::vector<uint32_t>*, 2> read = {&counts.node_reads, &counts.expansions};
    for (std::size_t kind : kBothKinds) {
      double all = 0;
      for (uint32_t count : *read[kind]) all += kind == 0 || small.has_lists ? count / 10.0 : 0;
      for (int gpu : plan.cliques[c].gpus) {
        double by_tier = 0;
        for (const Use& use : plan.gpus[static_cast<std::size_t>(gpu)].use[kind]) by_tier += use.reads;
        EXPECT_NEAR(by_tier, all, 1e-9);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PlanProperty,
    testing::Values(PlanCase{"none", 1, true, false}, PlanCase{"none", 8, false, true}, PlanCase{"1x8", 8, true, false},
                    PlanCase{"1x8", 8, false, true}, PlanCase{"2x4", 8, true, true}, PlanCase{"2x4", 8, false, false},
                    PlanCase{"4x2", 8, false, true}, PlanCase{"3+5", 8, true, true}, PlanCase{"3+5", 8, false, false},
                    PlanCase{"all", 8, false, true}, PlanCase{"2x2", 4, false, true, 256},
                    PlanCase{"1x4", 4, true, false, 16}, PlanCase{"2x2", 4, true, true, 0, false},
                    PlanCase{"none", 2, false, true, 300, false}),
    [](const auto& test) {
      std::string name = test.param.cliques + "_" + std::to_string(test.param.num_gpus);
      std::replace(name.begin(), name.end(), '+', 'p');
      name += test.param.host_row_bytes > 0 ? "_host" + std::to_string(test.param.host_row_bytes) : "";
      name += test.param.has_lists ? "" : "_rows_only";
      name += test.param.equal_sizes ? "_equal" : "_any";
      return name + (test.param.counts_per_clique ? "_per_clique" : "_shared");
    });

}  // namespace
}  // namespace cohort::cache
