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
  const int64_t num_nodes = 10 + 20 + 60, num_edges = 20 + 60;
  Batch unused{};
  const BatchShape worst{
      .num_nodes = num_nodes, .num_edges = num_edges, .num_seeds = 10, .num_offsets = 31, .row_bytes = 100};
  EXPECT_EQ(slot_bytes({.row_bytes = 100}, 10, std::vector{2, 3}, 1000, 1), lay_out(worst, unused));
  EXPECT_EQ(slot_bytes({.row_bytes = int64_t{1} << 26}, 10, std::vector{2, 3}, 1000, 1000), 1250u);
  EXPECT_EQ(slot_bytes({.row_bytes = 100}, 10, std::vector{-1}, 1000, 1000), 1250u);
}

}  // namespace
}  // namespace cohort::channel
