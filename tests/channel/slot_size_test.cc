#include "channel/slot_size.h"

#include <gtest/gtest.h>

#include <vector>

namespace cohort::channel {
namespace {

TEST(WorstCase, MultipliesFanouts) {
  const WorstCase bound = worst_case(10, std::vector{5, 3}, 1'000'000);
  EXPECT_EQ(bound.num_nodes, 10 + 50 + 150);
  EXPECT_EQ(bound.num_edges, 50 + 150);
  EXPECT_EQ(bound.num_targets, 10 + 50);
}

TEST(WorstCase, StopsAtTheGraph) {
  const WorstCase bound = worst_case(10, std::vector{5, 3}, 40);
  EXPECT_EQ(bound.num_nodes, 40);
  EXPECT_EQ(bound.num_edges, 50 + 30 * 3);
  EXPECT_EQ(bound.num_targets, 40);
}

TEST(WorstCase, AllNeighboursHaveNoBoundOnEdges) {
  const WorstCase bound = worst_case(10, std::vector{5, -1}, 40);
  EXPECT_EQ(bound.num_nodes, 40);
  EXPECT_EQ(bound.num_edges, -1);
}

TEST(WorstCase, OfTreesIsThatOfOneForEachSeed) {
  const WorstCase bound = worst_case(10, std::vector{5, 3}, 8, true);
  EXPECT_EQ(bound.num_nodes, 10 * 8);
  EXPECT_EQ(bound.num_edges, 10 * (5 + 5 * 3));
  EXPECT_EQ(bound.num_targets, 10 * 6);
  EXPECT_EQ(worst_case(10, std::vector{5, -1}, 40, true).num_edges, -1);
  EXPECT_EQ(worst_case(1 << 20, std::vector{1 << 30, 1 << 30}, int64_t{1} << 31, true).num_edges, -1);
}

TEST(SlotBytes, AreOfTheWorstCaseUpToTwoGibibytes) {
  Batch worst{};
  worst.num_hops = 2;
  worst.num_nodes = worst.num_labels = 10 + 20 + 60;
  worst.num_edges = worst.num_local_edges = 20 + 60;
  worst.num_seeds = worst.nodes[0].per_hop[0] = 10;
  worst.nodes[0].per_hop[1] = worst.edges[0].per_hop[0] = 20;
  worst.nodes[0].per_hop[2] = worst.edges[0].per_hop[1] = 60;
  const std::vector<int32_t> fanout = {2, 3}, all = {-1};
  const BatchBounds bounds{.num_nodes = 1000, .fanout = fanout, .num_seeds = 10};
  const std::size_t bytes = lay_out({.row_bytes = {100}, .edge_row_bytes = {8}}, worst);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100}, .edge_row_bytes = {8}}, bounds), bytes);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {int64_t{1} << 26}}, bounds), 0u);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100}}, {.num_nodes = 1000, .fanout = all, .num_seeds = 10}), 0u);
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100, 100}}, bounds), 0u) << "of several types";
  EXPECT_EQ(most_slot_bytes({.row_bytes = {100}, .target_types = {0, 0}}, bounds), 0u) << "of several relations";
  EXPECT_EQ(slot_bytes(bytes, 1000), bytes);
  EXPECT_EQ(slot_bytes(bytes, 2 * bytes), 2 * bytes);
  EXPECT_EQ(slot_bytes(0, 1000), 1250u);
}

TEST(PoolSizes, HaveRoomForTheBatchesOfAllSlotsWhereThereIsMemory) {
  using Sizes = std::pair<int64_t, int64_t>;
  constexpr double kAny = 1e9;
  const auto sizes = [](int64_t slots, int64_t nodes, double most_batches, bool reuse = true) {
    const PoolSizes found = pool_sizes(slots, nodes, 1600, reuse, most_batches);
    return Sizes(found.needed, found.preferred);
  };
  EXPECT_EQ(sizes(4, 160, kAny), Sizes(640, 800));
  EXPECT_EQ(sizes(4, 800, kAny), Sizes(1600, 1600));
  EXPECT_EQ(sizes(4, 800, kAny, false), Sizes(3200, 4000));
  EXPECT_EQ(sizes(4, 160, 4.5), Sizes(630, 720));
  EXPECT_EQ(sizes(4, 160, 3), Sizes(420, 480));
  EXPECT_EQ(sizes(4, 160, 1), Sizes(320, 340)) << "of a batch and the next";
  EXPECT_EQ(sizes(4, 1600, 0), Sizes(1600, 1600));
  EXPECT_EQ(sizes(1, 160, 0), Sizes(160, 170));
  EXPECT_EQ(sizes(4, 0, kAny), Sizes(0, 0));
}

}  // namespace
}  // namespace cohort::channel
