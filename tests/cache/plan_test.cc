#include "cache/plan/plan.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "base/check.h"
#include "cache/plan/row_owner.h"
#include "tests/cache/brute_force.h"
#include "tests/cache/small_graph.h"

namespace cohort::cache {
namespace {

Plan plan_of(SmallInput& small) { return make_plan(small.view()); }

// A GPU alone, items of one size (rows and lists of 64 bytes): the plan is an optimum, at every budget.
TEST(PlanBruteForce, OneGpuEqualSizes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (int64_t budget = 0; budget <= 10 * 64; budget += 32) {
      SmallInput small = random_input(seed, {.equal_degrees = true}, {{0}}, {budget});
      EXPECT_NEAR(plan_of(small).seconds(), BruteForce(small).least_seconds(), 1e-15) << seed << " " << budget;
    }
  }
}

// The same with rows of 64 and lists of 64 bytes, entries and bitmaps charged.
TEST(PlanBruteForce, OneGpuWithIndexCosts) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (int64_t items = 1; items <= 10; ++items) {
      SmallInput small = random_input(seed, {.equal_degrees = true}, {{0}}, {2 * 16 + 8 + items * 72});
      small.input.index = {{16, 16}, 8, 8};
      EXPECT_LE(plan_of(small).seconds(), BruteForce(small).least_seconds() + 1e-15) << seed << " " << items;
    }
  }
}

// One GPU and rows alone: the order of a plan with room for all, less what finds no room on the way.
TEST(Plan, RowsGoInOneOrderWhateverRoomThereIs) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SmallInput small = random_input(seed, {.num_nodes = 12, .equal_rows = seed % 2 == 0}, {{0}}, {1 << 20});
    small.has_lists = false;
    small.input.index = {{16, 16}, 8, 8};
    const std::vector<uint32_t> all = plan_of(small).gpus[0].slabs[kF].nodes;
    ASSERT_EQ(all.size(), 12u);
    for (int64_t budget = 0; budget <= 14 * 72; budget += 31) {
      small.input.budget_bytes = {budget};
      std::vector<uint32_t> expected;
      int64_t room = budget - 16 - 8;
      for (const uint32_t node : all) {
        const int64_t bytes = 8 + (small.row_bytes.empty() ? 64 : small.row_bytes[node]);
        if (bytes > room) continue;
        room -= bytes;
        expected.push_back(node);
      }
      const GpuPlan gpu = plan_of(small).gpus[0];
      EXPECT_EQ(gpu.slabs[kF].nodes, expected) << seed << " " << budget;
      EXPECT_EQ(gpu.slabs[kF].num_entries, std::ssize(expected));
      EXPECT_EQ(gpu.used_bytes(), room < 0 ? 0 : budget - room);
    }
  }
}

// Any sizes: at most one item worse, and never better than possible.
TEST(PlanBruteForce, OneGpuAnySizesIsWithinOneItem) {
  double gap = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (int64_t budget : {0, 50, 150, 300, 450, 700}) {
      SmallInput small = random_input(seed, {.equal_rows = false}, {{0}}, {budget});
      const double best = BruteForce(small).least_seconds(), planned = plan_of(small).seconds();
      EXPECT_GE(planned, best - 1e-15);
      EXPECT_LE(planned, best + most_saved_by_one_item(small));
      gap = std::max(gap, planned / best - 1);
    }
  }
  EXPECT_GT(gap, 0) << "the sizes do not differ enough to test anything";
}

// Peers as fast as local memory: replicas never pay, and any way to put the best items once is an optimum.
TEST(PlanBruteForce, CliquesWithoutUseForReplicas) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    for (const auto& budgets : {std::vector<int64_t>{0, 64}, {64, 64}, {128, 64}, {0, 256}, {320, 320}}) {
      SmallInput small = random_input(seed, {.num_nodes = 4, .equal_degrees = true}, {{0, 1}}, budgets);
      small.input.links[1] = small.input.links[0];
      // A GPU without a budget has no directory; the enumeration gives it one.
      if (budgets[0] == 0) small.input.budget_bytes[0] = 1;
      EXPECT_NEAR(plan_of(small).seconds(), BruteForce(small).least_seconds(), 1e-15) << seed << " " << budgets[0];
    }
  }
}

// Cliques in which replicas pay, and several cliques: within one item a GPU.
TEST(PlanBruteForce, CliquesAreWithinOneItemAGpu) {
  const std::vector<std::vector<std::vector<int>>> shapes = {{{0, 1}}, {{0, 1, 2}}, {{0}, {1, 2}}, {{0}, {1}}};
  for (uint64_t seed = 0; seed < 6; ++seed) {
    for (const auto& cliques : shapes) {
      for (bool per_clique : {false, true}) {
        std::size_t num_gpus = 0;
        for (const auto& clique : cliques) num_gpus += clique.size();
        std::vector<int64_t> budgets;
        for (std::size_t gpu = 0; gpu < num_gpus; ++gpu)
          budgets.push_back(64 * static_cast<int64_t>(1 + (gpu + seed) % 3));
        SmallInput small = random_input(seed, {.num_nodes = 3, .equal_degrees = true, .counts_per_clique = per_clique},
                                        cliques, budgets);
        small.input.links[1] = Link{100e9};  // replicas pay early
        const double best = BruteForce(small).least_seconds(), planned = plan_of(small).seconds();
        EXPECT_GE(planned, best - 1e-15);
        EXPECT_LE(planned, best + static_cast<double>(num_gpus) * most_saved_by_one_item(small));
      }
    }
  }
}

// Rows that take other bytes in host memory: a line there, or four; each its own. Slab rows of 64 bytes.
TEST(PlanBruteForce, HostRowsOfAnotherLength) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int64_t host_row_bytes : {16, 400, 512}) {
      for (int64_t budget = 0; budget <= 10 * 64; budget += 96) {
        SmallInput small = random_input(seed, {.equal_degrees = true}, {{0}}, {budget});
        small.table().host_rows.bytes = host_row_bytes;
        EXPECT_NEAR(plan_of(small).seconds(), BruteForce(small).least_seconds(), 1e-15) << seed << " " << budget;
        small.host_row_bytes = {16, 400, 128, 2000, 4};
        EXPECT_NEAR(plan_of(small).seconds(), BruteForce(small).least_seconds(), 1e-15) << seed << " " << budget;
      }
    }
  }
}

// Encoded in host memory a row is a line, raw in a slab it is 64 of them: reading it there saves nothing.
TEST(PlanBruteForce, RowsThatTheHostServesFasterStayThere) {
  const std::vector<std::vector<std::vector<int>>> shapes = {{{0}}, {{0, 1}}, {{0}, {1}}};
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const auto& cliques : shapes) {
      const std::vector<int64_t> budgets(cliques.size() == 1 ? cliques[0].size() : 2, 1 << 20);
      SmallInput small = random_input(seed, {.num_nodes = 4}, cliques, budgets);
      small.table().slab_rows.bytes = 8192;
      small.table().host_rows.bytes = 128;
      small.counts[0].node_reads = {9, 8, 7, 6};
      const Plan plan = plan_of(small);
      EXPECT_NEAR(plan.seconds(), BruteForce(small).least_seconds(), 1e-15) << seed;
      EXPECT_EQ(plan.gpus[0].slabs[kF].nodes.size(), 0u);
      EXPECT_EQ(plan.cliques[0].rows[kT].nodes.size(), 4u) << "lists do pay";
    }
  }
}

TEST(PlanBruteForce, ListsThatAreReadElsewhere) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const auto& cliques : {std::vector<std::vector<int>>{{0}}, {{0, 1}}}) {
      const std::vector<int64_t> budgets(cliques[0].size(), 16 + 8 + 3 * 80);
      SmallInput small = random_input(seed, {.num_nodes = 4}, cliques, budgets);
      small.input.index = {{16, 16}, 8, 8};
      small.has_lists = false;
      const Plan plan = plan_of(small);
      const double slack = cliques[0].size() == 1 ? 1e-15 : most_saved_by_one_item(small);
      EXPECT_LE(plan.seconds(), BruteForce(small).least_seconds() + slack) << seed;
      EXPECT_EQ(plan.gpus[0].slabs[kT].nodes.size(), 0u);
      EXPECT_EQ(plan.gpus[0].use[kT][2].reads, 0);
      EXPECT_EQ(plan.gpus[0].alpha(), 0);
      EXPECT_EQ(plan.cliques[0].rows[kT].nodes.size(), 0u);
      EXPECT_EQ(plan.gpus[0].index_bytes, 16 + 8 + 8 * plan.gpus[0].slabs[kF].num_entries) << "one bitmap";
    }
  }
}

TEST(Plan, AlphaReachesBothEnds) {
  SmallInput rows = random_input(1, {.num_nodes = 20}, {{0}}, {384});
  rows.counts[0].expansions.assign(20, 0);
  const Plan only_rows = plan_of(rows);
  EXPECT_EQ(only_rows.gpus[0].alpha(), 0);
  EXPECT_EQ(only_rows.gpus[0].slabs[kF].nodes.size(), 6u);
  SmallInput lists = random_input(1, {.num_nodes = 20}, {{0}}, {400});
  lists.counts[0].node_reads.assign(20, 0);
  const Plan only_lists = plan_of(lists);
  EXPECT_GT(only_lists.gpus[0].slabs[kT].nodes.size(), 0u);
  EXPECT_EQ(only_lists.gpus[0].alpha(), 1);
}

// The bitmap of a kind that is not worth it is not charged: here it leaves room for one row more.
TEST(Plan, OnlyKindsThatThereArePayForAnIndex) {
  SmallInput small = random_input(3, {.num_nodes = 6}, {{0}}, {264});
  small.input.index = {{100, 100}, 0, 0};
  EXPECT_EQ(plan_of(small).gpus[0].index_bytes, 200);
  small.has_lists = false;
  EXPECT_EQ(plan_of(small).gpus[0].index_bytes, 100);
  small.input.budget_bytes = {100};
  EXPECT_EQ(plan_of(small).gpus[0].used_bytes(), 0) << "no room beside the index";
}

TEST(Plan, ABudgetForEverythingHoldsEverythingEverywhere) {
  SmallInput small = random_input(2, {.num_nodes = 30}, {{0, 1}, {2}}, {1 << 20, 1 << 20, 1 << 20});
  small.input.index = {{64, 64}, 8, 0};
  const Plan plan = plan_of(small);
  for (const GpuPlan& gpu : plan.gpus) {
    for (std::size_t kind : {kF, kT}) {
      EXPECT_EQ(gpu.use[kind][1].reads + gpu.use[kind][2].reads, 0);
      EXPECT_GT(gpu.use[kind][0].reads, 0);
    }
  }
  EXPECT_EQ(plan.gpus[2].slabs[kF].nodes.size(), 30u) << "nodes that nobody read fill what is left";
  EXPECT_EQ(plan.cliques[0].rows[kF].nodes.size(), 30u);
}

TEST(Plan, HoldsAllRawRowsFromTheBudgetOnThatHasRoomForThem) {
  const int64_t num_nodes = 30, row_bytes = 52;
  SmallInput small = random_input(4, {.num_nodes = 30, .equal_rows = true}, {{0}}, {0});
  small.has_lists = false;
  small.table().slab_rows.bytes = 64;  // at multiples of 16
  small.input.index = {{bitmap_bytes(num_nodes), bitmap_bytes(num_nodes)}, kEntryBytes, 0};
  const int64_t needed = 8 + 30 * (64 + 8);
  for (const int64_t budget : {needed - 1, needed}) {
    small.input.budget_bytes = {budget};
    EXPECT_EQ(bytes_of_all_raw_rows(num_nodes, row_bytes) <= budget, budget == needed);
    EXPECT_EQ(plan_of(small).gpus[0].slabs[kF].nodes.size() == 30u, budget == needed);
  }
}

TEST(Plan, EqualCountsAreOrderedByNode) {
  SmallInput small = random_input(2, {.num_nodes = 10, .equal_degrees = true}, {{0}}, {256});
  small.counts[0].node_reads.assign(10, 7);
  small.counts[0].expansions.assign(10, 0);
  EXPECT_EQ(plan_of(small).gpus[0].slabs[kF].nodes, (std::vector<uint32_t>{0, 1, 2, 3}));
}

// Two GPUs of the first of three machines. The network takes as long as 20 links from host memory.
TEST(Plan, RowsOfOtherMachinesGoFirst) {
  constexpr int64_t kRows = 1280;
  SmallInput small = random_input(2, {.num_nodes = kRows}, {{0}, {1}}, {100 * 64, 100 * 64});
  small.has_lists = false;
  small.counts[0].node_reads.assign(kRows, 7);
  const auto is_own = [](int64_t row) { return owner_of(row, 3) == 0; };
  std::vector<uint32_t> own;
  for (uint32_t row = 0; row < kRows; ++row) {
    if (is_own(row)) own.push_back(row);
  }
  ASSERT_GT(own.size(), 200u);
  for (std::size_t i = 0; i < 10; ++i) small.counts[0].node_reads[own[20 * i]] = 7 * 30;
  const double all_reads = std::reduce(small.counts[0].node_reads.begin(), small.counts[0].node_reads.end()) / 10.0;
  const std::vector<uint32_t> alone = plan_of(small).gpus[0].slabs[kF].nodes;
  EXPECT_TRUE(std::ranges::any_of(alone, [&](uint32_t row) { return is_own(row) && row < own[190]; }));
  small.input.sizes.parts = {3, 0};
  small.input.network_bytes_per_second = 2 * small.input.links[2].bytes_per_second / 20;
  for (const GpuPlan& gpu : plan_of(small).gpus) {
    const std::vector<uint32_t>& rows = gpu.slabs[kF].nodes;
    ASSERT_EQ(rows.size(), 100u);
    EXPECT_EQ(std::ranges::count_if(rows, is_own), 10) << "those that are read 30 times as often";
    EXPECT_TRUE(std::ranges::all_of(std::span(rows).first(10), is_own));
    EXPECT_NEAR(gpu.use[kF][kLocalTier].reads, (10 * 210 + 90 * 7) / 10.0, 1e-9);
    EXPECT_NEAR(gpu.use[kF][kHostTier].reads, static_cast<double>(7 * (own.size() - 10)) / 10, 1e-9);
    EXPECT_NEAR(gpu.use[kF][kLocalTier].reads + gpu.use[kF][kHostTier].reads + gpu.use[kF][kRemoteTier].reads,
                all_reads, 1e-9);
  }
}

// Reads 100 : 1 : 1 and room for two rows on each of two GPUs: a second copy of the hot row saves 49 peer reads, which
// cost a seventh of the host's; the third row as a first copy would save two host reads.
TEST(Plan, AReplicaIsMadeWhereItPays) {
  SmallInput small = random_input(2, {.num_nodes = 3}, {{0, 1}}, {128, 64});
  small.counts[0].node_reads = {100, 1, 1};
  small.counts[0].expansions.assign(3, 0);
  const Plan plan = plan_of(small);
  EXPECT_EQ(plan.gpus[0].slabs[kF].nodes, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(plan.gpus[1].slabs[kF].nodes, (std::vector<uint32_t>{0}));
  EXPECT_EQ(plan.cliques[0].rows[kF].nodes, (std::vector<uint32_t>{0, 1}));
  small.counts[0].node_reads = {5, 4, 4};
  EXPECT_EQ(plan_of(small).cliques[0].rows[kF].nodes.size(), 3u) << "a replica would not pay here";
}

// Every GPU pays for entries of all rows of its clique; one too small for all keeps entries of the hottest.
TEST(Plan, ASmallGpuSpendsItsBudgetOnEntries) {
  SmallInput small = random_input(4, {.num_nodes = 40, .equal_degrees = true}, {{0, 1}}, {8000, 160});
  small.input.index = {{0, 0}, 8, 0};
  small.counts[0].expansions.assign(40, 0);
  const Plan plan = plan_of(small);
  EXPECT_LE(plan.gpus[1].used_bytes(), 160);
  EXPECT_EQ(plan.gpus[1].slabs[kF].num_entries, 20) << "of 40 rows";
  EXPECT_GT(plan.gpus[1].use[kF][1].reads, 2 * plan.gpus[1].use[kF][2].reads);
}

TEST(Plan, DoesNotDependOnThreads) {
  SmallInput small = random_input(5, {.num_nodes = 200'000, .equal_rows = false, .counts_per_clique = true},
                                  {{0, 1}, {2}}, {2'000'000, 3'000'000, 1'000'000});
  small.input.index = {{bitmap_bytes(200'000), bitmap_bytes(200'000)}, 8, 0};
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const Plan one = plan_of(small);
  omp_set_num_threads(4);
  const Plan four = plan_of(small);
  omp_set_num_threads(threads);
  EXPECT_EQ(one.seconds(), four.seconds());
  for (std::size_t gpu = 0; gpu < 3; ++gpu) {
    EXPECT_EQ(one.gpus[gpu].slabs[kF].nodes, four.gpus[gpu].slabs[kF].nodes);
    EXPECT_EQ(one.gpus[gpu].slabs[kT].nodes, four.gpus[gpu].slabs[kT].nodes);
  }
}

TEST(Plan, CliquesAsText) {
  using Cliques = std::vector<std::vector<int>>;
  EXPECT_EQ(cliques_named("2x2", 4), (Cliques{{0, 1}, {2, 3}}));
  EXPECT_EQ(cliques_named("3+5", 8), (Cliques{{0, 1, 2}, {3, 4, 5, 6, 7}}));
  EXPECT_EQ(cliques_named("2x1+2", 4), (Cliques{{0}, {1}, {2, 3}}));
  EXPECT_EQ(cliques_named("none", 2), (Cliques{{0}, {1}}));
  EXPECT_EQ(cliques_named("all", 3), (Cliques{{0, 1, 2}}));
  for (const char* bad : {"", "2x", "x4", "3+", "2x3", "four", "0x4", "-4", "4 "}) {
    EXPECT_THROW(cliques_named(bad, 4), base::Error) << bad;
  }
  EXPECT_EQ(cliques_named("2x8", 16).size(), 2u);
  EXPECT_EQ(cliques_named("none", 16).size(), 16u);
  for (const char* too_large : {"all", "1x16", "9+7"}) {
    EXPECT_THROW(cliques_named(too_large, 16), base::Error) << too_large;
  }
}

TEST(Plan, RefusesWhatContradictsItself) {
  const auto refuses = [](auto change) {
    SmallInput small = random_input(1, {}, {{0, 1}}, {10, 10});
    change(small.input);
    EXPECT_THROW(plan_of(small), base::Error);
  };
  refuses([](PlanInput& input) { input.cliques = {{0}, {0, 1}}; });
  refuses([](PlanInput& input) { input.cliques = {{0}}; });
  refuses([](PlanInput& input) { input.cliques = {{0, 1, 2}}; });
  refuses([](PlanInput& input) { input.cliques = {{0, 1}, {}}; });
  refuses([](PlanInput& input) {
    input.cliques = {{0, 1, 2, 3, 4, 5, 6, 7, 8}};
    input.budget_bytes.assign(9, 10);
  });
  refuses([](PlanInput& input) { input.budget_bytes = {10, -1}; });
  refuses([](PlanInput& input) { input.links[1] = Link{1e9}; });
  refuses([](PlanInput& input) { input.links[2] = Link{0}; });
  refuses([](PlanInput& input) { input.sizes.tables[0].slab_rows.bytes = 0; });
  refuses([](PlanInput& input) { input.sizes.tables[0].host_rows.bytes = -1; });
  refuses([](PlanInput& input) { input.index.entry_bytes = -8; });
  refuses([](PlanInput& input) { input.sizes.parts = {2, 2}; });
  refuses([](PlanInput& input) { input.sizes.parts = {0, 0}; });
  refuses([](PlanInput& input) { input.network_bytes_per_second = 0; });
  SmallInput small = random_input(1, {}, {{0}}, {10});
  small.counts[0].num_batches = 0;
  EXPECT_THROW(plan_of(small), base::Error);
  small = random_input(1, {}, {{0}}, {10});
  small.counts.resize(2, small.counts[0]);
  EXPECT_THROW(plan_of(small), base::Error) << "two counts for one clique";
  small = random_input(1, {}, {{0}}, {10});
  small.row_bytes = {16, 16, 16, 0, 16};
  EXPECT_THROW(plan_of(small), base::Error);
}

}  // namespace
}  // namespace cohort::cache
