#include "dataset/csc.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <vector>

#include "base/random.h"

namespace cohort::dataset {
namespace {

std::vector<Edge> random_edges(int64_t num_nodes, int64_t num_edges, uint64_t seed) {
  std::vector<Edge> edges;
  const auto bound = static_cast<uint64_t>(num_nodes);
  for (int64_t i = 0; i < num_edges; ++i) {
    const auto draw = [&](uint64_t end) {
      return static_cast<int64_t>(base::random_below(bound, base::key_of(seed), static_cast<uint64_t>(i), end));
    };
    edges.push_back({draw(0), draw(1)});
  }
  return edges;
}

// Edges whose ends are nodes.
struct NamedByNodes {
  const std::vector<Edge>& edges;
  Edge at(int64_t i) const { return edges[static_cast<std::size_t>(i)]; }
  void prefetch(int64_t) const {}
  int64_t node(int64_t end) const { return end; }
};

template <typename Index>
struct Csc {
  std::vector<int64_t> indptr;
  std::vector<Index> indices;
  bool operator==(const Csc&) const = default;
};

template <typename Index>
Csc<Index> build(const std::vector<Edge>& edges, int64_t num_nodes, const std::stop_token& stop = {}) {
  Csc<Index> out{std::vector<int64_t>(static_cast<std::size_t>(num_nodes) + 1, -5), std::vector<Index>(edges.size())};
  build_csc(NamedByNodes{edges}, std::span<int64_t>(out.indptr), std::span<Index>(out.indices), stop);
  return out;
}

TEST(BuildCsc, IsTheSameForAnyNumberOfThreads) {
  const auto edges = random_edges(1000, 4 * kChunk, 5);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const auto one = build<int32_t>(edges, 1000);
  omp_set_num_threads(7);
  const auto seven = build<int32_t>(edges, 1000);
  omp_set_num_threads(threads);
  EXPECT_EQ(one, seven);
}

TEST(BuildCsc, EndsWhenAskedTo) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(build<int32_t>(random_edges(5, 9, 1), 5, stop.get_token()), Interrupted);
}

TEST(ForChunks, HandsOnAnException) {
  const auto fail_at_3 = [](int64_t begin, int64_t) {
    if (begin == 3) throw std::runtime_error("three");
  };
  EXPECT_THROW(for_chunks(100, {}, fail_at_3, 1), std::runtime_error);
}

TEST(Scan, FindsTheFirstAndTheNumber) {
  const auto is_bad = [](int64_t i) { return i > 100000 && i % 1000 == 7; };
  const Scan bad = scan(300000, {}, is_bad);
  EXPECT_EQ(bad.first, 100007);
  EXPECT_EQ(bad.count, 200);
  EXPECT_EQ(scan(1000, {}, is_bad).first, -1);
}

}  // namespace
}  // namespace cohort::dataset
