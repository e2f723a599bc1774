#include "dataset/sorting/edge_sorter.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "dataset/npy.h"
#include "temporary_folder.h"
#include "tests/base/fails.h"

namespace cohort::dataset {
namespace {

constexpr std::size_t kSmall = 16 << 10, kLarge = 16 << 20;  // bytes; 1024 keys and all

struct Pairs {
  std::vector<int64_t> src, dst;
};

Pairs random_pairs(int64_t num_nodes, int64_t count) {
  Pairs out;
  for (int64_t i = 0; i < count; ++i) {
    for (auto* ends : {&out.src, &out.dst}) {
      const uint64_t end = ends == &out.src ? 0 : 1;
      ends->push_back(static_cast<int64_t>(
          base::random_below(static_cast<uint64_t>(num_nodes), base::key_of(5), static_cast<uint64_t>(i), end)));
    }
  }
  return out;
}

void add(EdgeSorter& sorter, const Pairs& pairs) {
  sorter.add({pairs.src.data(), 1}, {pairs.dst.data(), 1}, static_cast<int64_t>(pairs.src.size()), nullptr, {});
}

// (destination, source) of the edges in a folder, in their order.
std::vector<std::pair<int64_t, int64_t>> edges_in(const std::filesystem::path& folder) {
  const auto indptr_file = map_npy(folder / "indptr.npy"), indices_file = map_npy(folder / "indices.npy");
  const auto indptr = indptr_file.as<int64_t>();
  const auto indices = indices_file.as<int32_t>();
  std::vector<std::pair<int64_t, int64_t>> out;
  for (std::size_t node = 0; node + 1 < indptr.size(); ++node) {
    for (int64_t i = indptr[node]; i < indptr[node + 1]; ++i) out.emplace_back(node, indices[i]);
  }
  return out;
}

// float32 [E]: few distinct ones, of both signs, so that equal edges have equal and other weights.
std::vector<float> random_weights(std::size_t count) {
  std::vector<float> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(static_cast<float>(base::random_below(7, base::key_of(6), i, 0)) * 0.3F - 0.8F);
  }
  return out;
}

using WeightedPair = std::tuple<int64_t, int64_t, float>;  // destination, source, weight

std::vector<WeightedPair> weighted_edges_in(const std::filesystem::path& folder) {
  const auto file = map_npy(folder / "edge_weights.npy");
  const auto weights = file.as<float>();
  std::vector<WeightedPair> out;
  for (const auto& [destination, source] : edges_in(folder)) {
    out.emplace_back(destination, source, weights[out.size()]);
  }
  return out;
}

// What the options say of weights: those of equal edges stand by their bits, or are one sum.
std::vector<WeightedPair> slow_weighted_twin(const Pairs& pairs, const std::vector<float>& weights,
                                             const EdgeOptions& options) {
  std::map<std::pair<int64_t, int64_t>, std::multiset<uint32_t>> all;
  const auto put = [&](int64_t source, int64_t destination, float weight) {
    all[{destination, source}].insert(std::bit_cast<uint32_t>(weight));
  };
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const bool turned = options.transpose;
    put(turned ? pairs.dst[i] : pairs.src[i], turned ? pairs.src[i] : pairs.dst[i], weights[i]);
    if (options.reverse) put(turned ? pairs.src[i] : pairs.dst[i], turned ? pairs.dst[i] : pairs.src[i], weights[i]);
  }
  for (int64_t v = 0; options.self_loops == SelfLoops::kAdd && v < options.num_nodes; ++v) {
    if (!all.contains({v, v})) put(v, v, 1);
  }
  std::vector<WeightedPair> out;
  for (const auto& [ends, bits] : all) {
    const bool loop = ends.first == ends.second;
    if (loop && options.self_loops == SelfLoops::kRemove) continue;
    double sum = 0;
    for (const uint32_t one : bits) sum += std::bit_cast<float>(one);
    if (options.dedupe || (loop && options.self_loops == SelfLoops::kAdd)) {
      out.emplace_back(ends.first, ends.second, static_cast<float>(sum));
    } else {
      for (const uint32_t one : bits) out.emplace_back(ends.first, ends.second, std::bit_cast<float>(one));
    }
  }
  return out;
}

TEST(EdgeSorter, WeightsAgreeWithTheirSlowTwin) {
  const Pairs pairs = random_pairs(90, 5000);
  const std::vector<float> weights = random_weights(5000);
  for (const std::size_t memory_bytes : {kSmall, kLarge}) {
    for (int bits = 0; bits < 8; ++bits) {
      for (const SelfLoops loops : {SelfLoops::kKeep, SelfLoops::kRemove, SelfLoops::kAdd}) {
        const EdgeOptions options{"edges", 95, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, loops, true};
        const TemporaryFolder folder;
        EdgeSorter sorter(folder.path(), memory_bytes, options);
        sorter.add({pairs.src.data(), 1}, {pairs.dst.data(), 1}, 5000, nullptr, {}, weights.data());
        sorter.write(folder.path(), {});
        EXPECT_EQ(weighted_edges_in(folder.path()), slow_weighted_twin(pairs, weights, options)) << bits;
      }
    }
  }
}

TEST(EdgeSorter, EveryEdgeHasAWeightOrNone) {
  const TemporaryFolder folder;
  const float weight = 1;
  EdgeSorter plain(folder.path(), kSmall, {"edges"});
  const int64_t node = 0;
  EXPECT_ANY_THROW(plain.add({&node, 1}, {&node, 1}, 1, nullptr, {}, &weight));
  EdgeSorter weighted(folder.path(), kSmall, {"edges", -1, false, false, false, SelfLoops::kKeep, true});
  EXPECT_ANY_THROW(weighted.add({&node, 1}, {&node, 1}, 1, nullptr, {}));
}

TEST(EdgeSorter, BytesDependOnNeitherMemoryNorThreads) {
  const Pairs pairs = random_pairs(100000, 200000);
  std::set<std::string> files;
  const int threads = omp_get_max_threads();
  for (const int count : {1, 2, 7}) {
    omp_set_num_threads(count);
    for (const std::size_t memory_bytes : {kSmall, kLarge}) {
      const TemporaryFolder folder;
      EdgeSorter sorter(folder.path(), memory_bytes, {"edges"});
      add(sorter, pairs);
      sorter.write(folder.path(), {});
      files.insert(read_bytes(folder / "indptr.npy") + read_bytes(folder / "indices.npy"));
    }
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(files.size(), 1u);
}

TEST(EdgeSorter, AnEndThatIsNoNodeIsNamed) {
  const TemporaryFolder folder;
  const auto said = [&](EdgeOptions options, Pairs pairs) {
    EdgeSorter sorter(folder.path(), kSmall, std::move(options));
    add(sorter, {{0, 1}, {1, 0}});
    return base::error_of([&] { add(sorter, pairs); });
  };
  EXPECT_EQ(said({"e.npy", 5}, {{1, 2, 9}, {0, 5, 0}}).substr(0, 71),
            "e.npy: destination of edge 3: expected a node in [0, 5), found 5\n  hint");
  EXPECT_NE(said({"e.npy", 5}, {{1, -2}, {0, 4}}).find("source of edge 3: expected a node in [0, 5), found -2"),
            std::string::npos);
  EXPECT_NE(said({"e.npy", 5, true}, {{1, 7}, {0, 4}}).find("source of edge 3"), std::string::npos);
  EXPECT_NE(said({"e.npy"}, {{1, int64_t{1} << 32}, {0, 4}}).find("a node in [0, 4294967296)"), std::string::npos);
}

TEST(IdMap, FindsEveryIdAndNoOther) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  const std::vector<std::vector<int64_t>> lists = {
      {}, {7}, {-3, 4, 5, 1000000007}, {kMin, -1, 0, kMax}, {kMin, kMin + 1}, {kMax - 1, kMax}};
  for (const auto& ids : lists) {
    const IdMap map(ids, {});
    for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(map.node(ids[i]), static_cast<int64_t>(i));
    for (const int64_t other : {int64_t{6}, int64_t{-2}, int64_t{1} << 40}) EXPECT_EQ(map.node(other), -1);
  }
}

}  // namespace
}  // namespace cohort::dataset
