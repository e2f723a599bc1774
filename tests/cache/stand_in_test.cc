#include "cache/plan/stand_in.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/random.h"

namespace cohort::cache {
namespace {

struct Lists {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;

  explicit Lists(int64_t num_nodes) {
    for (int64_t node = 0; node < num_nodes; ++node) {
      const auto at = static_cast<uint64_t>(node);
      for (uint64_t j = base::random_below(30, base::key_of(1), at, 0); j > 0; --j) {
        const uint64_t from = base::random_below(static_cast<uint64_t>(num_nodes), base::key_of(1), at, j);
        indices.push_back(static_cast<int32_t>(from * from / static_cast<uint64_t>(num_nodes)));
      }
      indptr.push_back(static_cast<int64_t>(indices.size()));
    }
  }
  std::vector<RelationLists> view() const {
    return {{{num_nodes(), std::ssize(indices), indptr.data(), indices.data(), sizeof(int32_t)}}};
  }
  int64_t num_nodes() const { return std::ssize(indptr) - 1; }
};

TEST(StandIn, DrawsAllWithoutABound) {
  const Lists lists(100);
  const StandIn counts = counts_of_policy("degree", lists.view(), 100, -1);
  for (std::size_t node = 0; node < 100; ++node) {
    const auto in = static_cast<uint64_t>(lists.indptr[node + 1] - lists.indptr[node]);
    EXPECT_EQ(counts.edges_read[node], counts.reads[node] * in);
  }
}

// Two types: nodes 0 and 1, and nodes 2 to 4. Edges of type 0 into type 1 and back.
TEST(StandIn, CountsTheEdgesOfAllRelations) {
  const std::vector<int64_t> into_second = {0, 1, 1, 3}, into_first = {0, 2, 3};
  const std::vector<int32_t> firsts = {1, 0, 1};
  const std::vector<int64_t> seconds = {0, 2, 2};
  const std::vector<RelationLists> relations = {{{3, 3, into_second.data(), firsts.data(), 4}, 0, 0, 2},
                                                {{2, 3, into_first.data(), seconds.data(), 8}, 3, 2, 0}};
  const StandIn counts = counts_by_degree(relations, 5, 1);
  EXPECT_EQ(counts.reads, (std::vector<uint32_t>{1, 2, 1, 0, 2}));
  EXPECT_EQ(counts.expansions, (std::vector<uint32_t>{1, 0, 2, 1, 2})) << "of the nodes whose lists they are";
  EXPECT_EQ(counts.edges_read, (std::vector<uint64_t>{1, 0, 2, 1, 2}));
}

TEST(StandIn, RefusesAnIndexThatIsNoNode) {
  for (int32_t bad : {-1, 100}) {
    Lists lists(100);
    lists.indices[50] = bad;
    EXPECT_THROW(counts_by_degree(lists.view(), 100, 5), base::Error);
  }
}

// The same for any number of threads and in every run; another seed is another order.
TEST(StandIn, RandomIsAHashOfTheNode) {
  const Lists lists(20'000);
  const StandIn counts = counts_of_policy("random", lists.view(), 20'000, 5);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(3);
  EXPECT_EQ(counts_at_random(lists.view(), 20'000, 5).reads, counts.reads);
  omp_set_num_threads(threads);
  EXPECT_NE(counts_at_random(lists.view(), 20'000, 5, 1).reads, counts.reads);
  EXPECT_EQ(counts.reads[7], base::random_below(1 << 20, base::key_of(0), 7, 0));
  EXPECT_GT(std::set<uint32_t>(counts.reads.begin(), counts.reads.end()).size(), 19'000u);
  const double mean = std::accumulate(counts.reads.begin(), counts.reads.end(), 0.0) / 20'000;
  EXPECT_NEAR(mean / (1 << 20), 0.5, 0.01);
}

TEST(StandIn, RefusesOtherPolicies) { EXPECT_THROW(counts_of_policy("plan", Lists(3).view(), 3, 5), base::Error); }

}  // namespace
}  // namespace cohort::cache
