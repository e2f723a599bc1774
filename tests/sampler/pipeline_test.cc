#include "sampler/pipeline.h"

#include <gtest/gtest.h>

namespace cohort::sampler {
namespace {

channel::Request request(uint32_t batch_size, std::initializer_list<int32_t> fanout) {
  channel::Request request{};
  request.batch_size = batch_size;
  request.num_hops = static_cast<int32_t>(fanout.size());
  std::copy(fanout.begin(), fanout.end(), request.fanout);
  return request;
}

TEST(WorstCase, MultipliesFanouts) {
  const WorstCase bound = worst_case(request(10, {5, 3}), 1'000'000);
  EXPECT_EQ(bound.num_nodes, 10 + 50 + 150);
  EXPECT_EQ(bound.num_edges, 50 + 150);
  EXPECT_EQ(bound.num_targets, 10 + 50);
}

TEST(WorstCase, StopsAtTheGraph) {
  const WorstCase bound = worst_case(request(10, {5, 3}), 40);
  EXPECT_EQ(bound.num_nodes, 40);
  EXPECT_EQ(bound.num_edges, 50 + 30 * 3);
  EXPECT_EQ(bound.num_targets, 40);
}

TEST(WorstCase, AllNeighboursHaveNoBoundOnEdges) {
  const WorstCase bound = worst_case(request(10, {5, -1}), 40);
  EXPECT_EQ(bound.num_nodes, 40);
  EXPECT_EQ(bound.num_edges, -1);
}

}  // namespace
}  // namespace cohort::sampler
