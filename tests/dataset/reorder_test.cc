#include "dataset/reorder.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <set>

#include "dataset/check.h"
#include "dataset/generating/features.h"
#include "dataset/generating/generate.h"
#include "temporary_folder.h"

namespace cohort::dataset {
namespace {

std::vector<int64_t> indptr_of(const std::vector<int64_t>& degrees) {
  std::vector<int64_t> indptr = {0};
  for (const int64_t degree : degrees) indptr.push_back(indptr.back() + degree);
  return indptr;
}

TEST(DegreeOrder, IsLargestFirstAndTiesByNumber) {
  EXPECT_EQ(degree_order(indptr_of({2, 0, 3, 2, 0, 3, 1})), (std::vector<int64_t>{2, 5, 0, 3, 6, 1, 4}));
}

TEST(DegreeOrder, HoldsForHubsAndBeyond31Bits) {
  constexpr int64_t kHub = int64_t{1} << 20;
  const auto order = degree_order(indptr_of({7, kHub, 3'000'000'000, 0, kHub + 1, kHub, 3'000'000'000, kHub - 1}));
  EXPECT_EQ(order, (std::vector<int64_t>{2, 6, 4, 1, 5, 7, 0, 3}));
}

using Edges = std::multiset<std::pair<int64_t, int64_t>>;

// Edges (source, destination), each end through `name`.
template <typename Name>
Edges edges_of(const Dataset& data, Name name) {
  Edges edges;
  const auto indices = data.indices().as<int32_t>();
  for (int64_t v = 0; v < data.num_nodes(); ++v) {
    for (int64_t i = data.indptr()[v]; i < data.indptr()[v + 1]; ++i) edges.emplace(name(indices[i]), name(v));
  }
  return edges;
}

TEST(WriteRenumbered, IsTheSameGraphUnderItsMap) {
  const TemporaryFolder folder;
  generate(folder / "graph", {GraphKind::powerlaw, 300, 4000, 4, DType::float32, 5, 42, {0.5, 0.2, 0.2}, false});
  const Dataset old = Dataset::open(folder / "graph");
  std::filesystem::create_directory(folder / "new");
  write_renumbered(folder / "new", old, degree_order(old.indptr()));
  write_bytes(folder / "new/features.npy", read_bytes(folder / "graph/features.npy"));  // any will do
  EXPECT_TRUE(check(folder / "new").empty());
  const Dataset renumbered = Dataset::open(folder / "new");
  const MappedArray map = map_npy(folder / "new" / kOldOfNewFile, {{DType::int64}, {300}});
  const auto old_of_new = map.as<int64_t>();
  const auto old_name = [&](int64_t v) { return old_of_new[static_cast<std::size_t>(v)]; };
  EXPECT_EQ(edges_of(old, [](int64_t v) { return v; }), edges_of(renumbered, old_name));
  for (int64_t v = 0; v < 300; ++v) EXPECT_EQ(renumbered.labels()[v], old.labels()[old_name(v)]);
  for (std::size_t split = 0; split < 3; ++split) {
    const auto before = old.split_arrays()[split].as<int64_t>(), after = renumbered.split_arrays()[split].as<int64_t>();
    EXPECT_TRUE(std::is_sorted(after.begin(), after.end()));
    std::vector<int64_t> named;
    std::transform(after.begin(), after.end(), std::back_inserter(named), old_name);
    std::sort(named.begin(), named.end());
    EXPECT_TRUE(std::equal(named.begin(), named.end(), before.begin(), before.end()));
  }
  const auto indptr = renumbered.indptr();
  for (std::size_t v = 1; v < 300; ++v) EXPECT_LE(indptr[v + 1] - indptr[v], indptr[v] - indptr[v - 1]);
}

TEST(TakeRows, ReachesBeyond32Bits) {
  constexpr std::size_t kRowBytes = 1 << 16, kRows = 100'000;  // 6.5 GB of address space, a few pages of memory
  void* memory =
      mmap(nullptr, kRowBytes * kRows, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* rows = static_cast<std::byte*>(memory);
  const std::vector<int64_t> ids = {99'999, 0, 40'000};  // offsets above 2^32, 0, above 2^31
  for (std::size_t i = 0; i < ids.size(); ++i)
    rows[static_cast<std::size_t>(ids[i]) * kRowBytes + 5] = std::byte(i + 1);
  std::vector<std::byte> out(ids.size() * kRowBytes);
  take_rows(rows, kRowBytes, ids, out.data());
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(out[i * kRowBytes + 5], std::byte(i + 1));
  munmap(memory, kRowBytes * kRows);
}

TEST(FeatureGenerator, GivesAnyRowsInAnyOrder) {
  const TemporaryFolder folder;
  const GenerateOptions options{GraphKind::sbm, 200, 400, 7, DType::bfloat16, 5, 42, {0.5, 0.2, 0.2}, false};
  generate(folder / "graph", options);
  const Dataset data = Dataset::open(folder / "graph");
  const FeatureGenerator generator(options);
  const std::vector<int64_t> nodes = {199, 3, 3, 0, 77};
  std::vector<std::byte> expected(nodes.size() * generator.row_bytes()), found(expected.size());
  take_rows(data.features().data(), data.feature_row_bytes(), nodes, expected.data());
  generator.take(data.labels(), nodes, found.data(), {});
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace cohort::dataset
