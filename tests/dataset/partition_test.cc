#include "dataset/partitioning/partition.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <set>

#include "dataset/generating/generate.h"
#include "dataset/partitioning/undirected.h"
#include "temporary_folder.h"
#include "tests/base/fails.h"

namespace cohort::dataset {
namespace {

using Method = PartitionMethod;

// Communities in which 4 of 5 edges stay; every edge in both directions.
Dataset communities(const TemporaryFolder& folder, int64_t num_communities) {
  generate(folder / "graph",
           {GraphKind::sbm, 4000, 40000, 1, DType::uint8, num_communities, 7, {0.2, 0.1, 0.1}, false, true});
  return Dataset::open(folder / "graph");
}

// Types A = {0, 1}, B = {2, 3, 4}: edges B0 -> A1, B2 -> A1; A0 -> B1, A0 -> B1; A1 -> A0.
TEST(WithoutDirections, JoinsTheRelationsOfSeveralTypes) {
  const std::vector<int64_t> to_a = {0, 0, 2}, to_b = {0, 0, 2, 2}, of_a = {0, 1, 1};
  const std::vector<int32_t> from_b = {0, 2};
  const std::vector<int64_t> from_a = {0, 0}, in_a = {1};
  const std::vector<NumberedLists> relations = {{{2, 2, to_a.data(), from_b.data(), 4}, 2, 0},
                                                {{3, 2, to_b.data(), from_a.data(), 8}, 0, 2},
                                                {{2, 1, of_a.data(), in_a.data(), 8}, 0, 0}};
  const auto graph = without_directions<int32_t>(relations, 5, {});
  EXPECT_EQ(graph.starts, (std::vector<int32_t>{0, 2, 5, 6, 7, 8}));
  EXPECT_EQ(graph.lists, (std::vector<int32_t>{1, 3, 0, 2, 4, 1, 0, 1}));
}

TEST(WithoutDirections, IsSymmetricOnADirectedGraph) {
  const TemporaryFolder folder;
  generate(folder / "graph", {GraphKind::rmat, 500, 6000, 1, DType::uint8, 2, 3, {0.2, 0.1, 0.1}});
  const Dataset data = Dataset::open(folder / "graph");
  const auto graph = without_directions<int64_t>(numbered_lists(data), data.num_nodes(), {});
  std::set<std::pair<int64_t, int64_t>> expected, found;
  for (int64_t v = 0; v < 500; ++v) {
    for (int64_t i = data.indptr_of(0)[v]; i < data.indptr_of(0)[v + 1]; ++i) {
      const int64_t u = data.indices_of(0).as<int32_t>()[i];
      if (u != v) expected.insert({{u, v}, {v, u}});
    }
    for (int64_t i = graph.starts[v]; i < graph.starts[v + 1]; ++i) found.insert({graph.lists[i], v});
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(graph.lists.size(), expected.size());
}

class Partition : public testing::TestWithParam<Method> {
 protected:
  void SetUp() override {
    if (GetParam() == Method::metis && !has_metis()) GTEST_SKIP() << "this build has no METIS (libmetis-dev)";
  }
};

TEST_P(Partition, IsTheSameAgainAndForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  const Dataset data = communities(folder, 8);
  const PartitionOptions options{GetParam(), 4, 11};
  const int num_threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto alone = partition(data, options);
  omp_set_num_threads(3);
  EXPECT_EQ(partition(data, options), alone);
  EXPECT_EQ(partition(data, options), alone);
  omp_set_num_threads(num_threads);
}

TEST_P(Partition, KeepsItsBounds) {
  const TemporaryFolder folder;
  const Dataset data = communities(folder, 7);  // which do not fit into the parts
  for (const int64_t num_parts : {2, 5}) {
    const auto parts = partition(data, {GetParam(), num_parts, 0});
    std::vector<int64_t> nodes(static_cast<std::size_t>(num_parts)), train_nodes(nodes);
    for (const int32_t part : parts) ++nodes[static_cast<std::size_t>(part)];
    for (const int64_t node : data.train_ids())
      ++train_nodes[static_cast<std::size_t>(parts[static_cast<std::size_t>(node)])];
    const double most = GetParam() == Method::random ? 1.25 : kMostOfMean + 0.02;  // METIS may pass it by a few nodes
    const double mean = 4000.0 / static_cast<double>(num_parts), train_mean = 800.0 / static_cast<double>(num_parts);
    EXPECT_LE(static_cast<double>(*std::max_element(nodes.begin(), nodes.end())), mean * most);
    EXPECT_LE(static_cast<double>(*std::max_element(train_nodes.begin(), train_nodes.end())), train_mean * most);
  }
}

TEST_P(Partition, TakesAGraphWithoutEdgesAndWithoutTrainingNodes) {
  const TemporaryFolder folder;
  generate(folder / "graph", {GraphKind::sbm, 50, 0, 1, DType::uint8, 2, 3, {0, 0.1, 0.1}});
  const Dataset data = Dataset::open(folder / "graph");
  const auto parts = partition(data, {GetParam(), 3, 0});
  EXPECT_EQ(parts.size(), 50u);
  EXPECT_EQ(std::set<int32_t>(parts.begin(), parts.end()), (std::set<int32_t>{0, 1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Methods, Partition, testing::Values(Method::metis, Method::streaming, Method::random));

TEST(PartitionErrors, RefusesWhatItCannotDo) {
  const TemporaryFolder folder;
  const Dataset data = communities(folder, 4);
  for (const int64_t parts : {0, 1, 4001, 5000}) EXPECT_THROW(partition(data, {Method::random, parts}), base::Error);
  const auto without_memory = [&] { partition(data, {Method::metis, 2, 0, 1000}); };
  EXPECT_TRUE(base::fails_with(without_memory, {"--method streaming"}));  // also in a build without METIS
}

}  // namespace
}  // namespace cohort::dataset
