#include "dataset/generating/generate.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "dataset/check.h"
#include "dataset/generating/edges.h"
#include "dataset/generating/features.h"
#include "dataset/generating/permutation.h"
#include "dataset/parallel.h"
#include "temporary_folder.h"

namespace cohort::dataset {
namespace {

GenerateOptions small(GraphKind kind, DType dtype = DType::float32) {
  return {kind, 3000, 40000, 10, dtype, 5, 42, {0.6, 0.2, 0.2}};
}

// Edges before renaming: position i is node i. Index [E] of sources and their destinations.
std::vector<Edge> positions(const GenerateOptions& options) {
  std::vector<int32_t> names(static_cast<std::size_t>(options.num_nodes));
  std::iota(names.begin(), names.end(), 0);
  std::vector<int64_t> indptr(names.size() + 1);
  std::vector<int32_t> indices(static_cast<std::size_t>(options.stored_edges()));
  generate_csc<int32_t>(options, names, indptr, indices, {});
  std::vector<Edge> edges;
  for (std::size_t v = 0; v < names.size(); ++v) {
    for (int64_t i = indptr[v]; i < indptr[v + 1]; ++i) {
      edges.push_back({indices[static_cast<std::size_t>(i)], static_cast<int64_t>(v)});
    }
  }
  return edges;
}

// Asserts that `hits` of `draws` fits probability p within 5 standard deviations.
void expect_share(int64_t hits, std::size_t draws, double p) {
  const double mean = p * static_cast<double>(draws), deviation = std::sqrt(mean * (1 - p));
  EXPECT_NEAR(static_cast<double>(hits), mean, 5 * deviation);
}

TEST(Permutation, IsABijection) {
  for (const int64_t count : {1, 2, 3, 5, 64, 65, 1000, 4097}) {
    const Permutation permutation(count, base::key_of(9));
    std::set<int64_t> seen;
    for (int64_t i = 0; i < count; ++i) seen.insert(permutation(i));
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
  }
}

TEST(Permutation, MovesEveryNodeAnywhere) {
  std::vector<int> first(8, 0);
  for (uint64_t seed = 0; seed < 4000; ++seed) ++first[static_cast<std::size_t>(Permutation(8, base::key_of(seed))(0))];
  for (const int hits : first) expect_share(hits, 4000, 1.0 / 8);
}

TEST(Blocks, CoverAllPositionsInOrder) {
  for (int64_t v = 0; v < 23; ++v) {
    const int64_t block = block_of(v, 23, 5);
    EXPECT_LE(block_start(block, 23, 5), v);
    EXPECT_GT(block_start(block + 1, 23, 5), v);
  }
  EXPECT_EQ(block_start(5, 23, 5), 23);
}

TEST(Powerlaw, BothEndsFollowTheSquare) {
  const auto edges = positions(small(GraphKind::powerlaw));
  for (const int64_t below : {1, 30, 750, 1500}) {  // P(floor(V u^2) < k) = sqrt(k / V)
    const double p = std::sqrt(static_cast<double>(below) / 3000.0);
    const auto count = [&](auto end) { return std::count_if(edges.begin(), edges.end(), end); };
    expect_share(count([=](const Edge& e) { return e.source < below; }), edges.size(), p);
    expect_share(count([=](const Edge& e) { return e.destination < below; }), edges.size(), p);
  }
}

TEST(Rmat, QuadrantsHaveTheirShares) {
  GenerateOptions options = small(GraphKind::rmat);
  options.num_nodes = 1024;
  const auto edges = positions(options);
  const double shares[2][2] = {{.57, .19}, {.19, .05}};
  for (const int bit : {9, 4, 0}) {
    for (const int64_t row : {0, 1}) {
      for (const int64_t column : {0, 1}) {
        const auto hits = std::count_if(edges.begin(), edges.end(), [=](const Edge& e) {
          return (e.source >> bit & 1) == row && (e.destination >> bit & 1) == column;
        });
        expect_share(hits, edges.size(), shares[row][column]);
      }
    }
  }
}

TEST(Sbm, FourOfFiveEdgesStayAtHome) {
  const auto edges = positions(small(GraphKind::sbm));
  const auto home = std::count_if(edges.begin(), edges.end(), [](const Edge& e) {
    return block_of(e.source, 3000, 5) == block_of(e.destination, 3000, 5);
  });
  expect_share(home, edges.size(), 0.8 + 0.2 / 5);
}

TEST(NormalTable, HasMean0AndDeviation1) {
  const NormalTable table;
  double sum = 0, squares = 0;
  constexpr uint32_t kStep = 1u << 12;
  for (uint32_t i = 0; i < (1u << 20); ++i) {
    const double x = table(i * kStep + kStep / 2);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / (1u << 20), 0.0, 1e-4);
  EXPECT_NEAR(squares / (1u << 20), 1.0, 2e-3);
  EXPECT_NEAR(table(0xC0000000u), 0.67449, 1e-4);  // the quantile of 3/4
}

class Generate : public testing::TestWithParam<std::tuple<GraphKind, DType>> {};

TEST_P(Generate, WritesTheSameFilesForAnyNumberOfThreadsAndPassesTheCheck) {
  const TemporaryFolder folder;
  const GenerateOptions options = small(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  generate(folder / "one/graph", options);
  omp_set_num_threads(5);
  generate(folder / "five/graph", options);
  omp_set_num_threads(threads);
  EXPECT_TRUE(check(folder / "one/graph").empty());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "one/graph")) {
    EXPECT_EQ(read_bytes(entry.path()), read_bytes(folder / "five/graph" / entry.path().filename())) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 8);
}

INSTANTIATE_TEST_SUITE_P(All, Generate,
                         testing::Combine(testing::Values(GraphKind::sbm, GraphKind::powerlaw, GraphKind::rmat),
                                          testing::Values(DType::float32, DType::float16, DType::bfloat16,
                                                          DType::uint8)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  name_of(std::get<1>(test.param));
                         });

TEST(GenerateCsc, Int64IndicesAreTheSameGraph) {
  const GenerateOptions options = small(GraphKind::powerlaw);
  std::vector<int32_t> names(3000), indices(40000);
  std::iota(names.rbegin(), names.rend(), 0);
  std::vector<int64_t> names64(names.begin(), names.end()), indices64(40000), indptr(3001), indptr64(3001);
  generate_csc<int32_t>(options, names, indptr, indices, {});
  generate_csc<int64_t>(options, names64, indptr64, indices64, {});
  EXPECT_EQ(indptr, indptr64);
  EXPECT_TRUE(std::equal(indices.begin(), indices.end(), indices64.begin(), indices64.end()));
}

TEST(GenerateCsc, UndirectedIsEveryEdgeInBothDirections) {
  GenerateOptions options = small(GraphKind::powerlaw);
  const auto pair_of = [](const Edge& edge) { return std::pair(edge.source, edge.destination); };
  std::multiset<std::pair<int64_t, int64_t>> expected, found;
  for (const Edge& edge : positions(options)) {
    expected.insert(pair_of(edge));
    expected.emplace(edge.destination, edge.source);
  }
  options.undirected = true;
  for (const Edge& edge : positions(options)) found.insert(pair_of(edge));
  EXPECT_EQ(found, expected);
}

TEST(GenerateFolder, AnotherSeedIsAnotherGraph) {
  const TemporaryFolder folder;
  GenerateOptions options = small(GraphKind::powerlaw);
  generate(folder / "a", options);
  ++options.seed;
  generate(folder / "b", options);
  for (const char* file : {"indices.npy", "features.npy", "labels.npy", "train_ids.npy"}) {
    EXPECT_NE(read_bytes(folder / "a" / file), read_bytes(folder / "b" / file)) << file;
  }
}

}  // namespace
}  // namespace cohort::dataset
