// Plans of graphs of several node types and relations.
#include <gtest/gtest.h>

#include <utility>

#include "cache/plan/plan.h"
#include "tests/cache/small_graph.h"

namespace cohort::cache {
namespace {

// The same rows and lists, as those of several node types and relations: nodes from `cuts[i]` on are of type i + 1.
struct InParts {
  SmallInput whole;
  std::vector<std::vector<int64_t>> indptrs;
  PlanInput input;

  InParts(SmallInput small, const std::vector<int64_t>& cuts) : whole(std::move(small)) {
    input = whole.view();
    input.sizes = {};
    int64_t first = 0;
    for (std::size_t part = 0; part <= cuts.size(); ++part) {
      const int64_t end = part < cuts.size() ? cuts[part] : whole.num_nodes();
      input.sizes.tables.push_back({end - first, {0, whole.row_bytes.data() + first}});
      std::vector<int64_t>& indptr = indptrs.emplace_back();
      for (int64_t i = first; i <= end; ++i) {
        indptr.push_back(whole.indptr[static_cast<std::size_t>(i)] - whole.indptr[static_cast<std::size_t>(first)]);
      }
      input.sizes.relations.push_back({{end - first, indptr.back(), nullptr, nullptr, 4}, first});
      first = end;
    }
    for (std::size_t i = 0; i < indptrs.size(); ++i) input.sizes.relations[i].lists.indptr = indptrs[i].data();
  }
};

// One order over the rows of all types, and the lists of all relations: who has them does not matter.
TEST(PlanOfTypes, RowsAndListsOfAllTypesGoInOneOrder) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const InParts parts(random_input(seed, {.num_nodes = 90, .equal_rows = false}, {{0, 1}, {2}}, {3000, 4000, 2000}),
                        {20, 20, 57});
    SmallInput small = parts.whole;
    const Plan one = make_plan(small.view()), several = make_plan(parts.input);
    EXPECT_EQ(one.seconds(), several.seconds());
    for (std::size_t gpu = 0; gpu < 3; ++gpu) {
      for (const std::size_t kind : {kF, kT}) {
        EXPECT_EQ(one.gpus[gpu].slabs[kind].nodes, several.gpus[gpu].slabs[kind].nodes);
        EXPECT_EQ(one.gpus[gpu].slabs[kind].bytes, several.gpus[gpu].slabs[kind].bytes);
      }
      EXPECT_GT(several.gpus[gpu].slabs[kT].nodes.size(), 0u);
    }
  }
}

// Types of 64 and of 256 bytes a row, one without features between them: wide rows save more each, and not more a byte.
TEST(PlanOfTypes, RowsOfEachTypeCompeteByWhatTheySaveAByte) {
  SmallInput small = random_input(1, {.num_nodes = 6}, {{0}}, {64 + 256});
  small.counts[0].node_reads = {5, 4, 90, 90, 9, 3};
  small.has_lists = false;
  PlanInput input = small.view();
  input.sizes.tables = {{2, {64}}, {2, {0}}, {2, {256}}};
  const Plan plan = make_plan(input);
  EXPECT_EQ(plan.gpus[0].slabs[kF].nodes, (std::vector<uint32_t>{0, 4})) << "5 x 1 line / 64, 9 x 2 lines / 256";
  EXPECT_EQ(plan.gpus[0].slabs[kF].bytes, 64 + 256);
  const UseByTier& use = plan.gpus[0].use[kF];
  EXPECT_DOUBLE_EQ(10 * (use[0].reads + use[2].reads), 5 + 4 + 9 + 3);
  EXPECT_EQ(index_cost(input.sizes).bitmap_bytes[kF], 2 * bitmap_bytes(2)) << "of types with features";
}

TEST(PlanOfTypes, DividesIntoThePlansOfItsTables) {
  const std::vector<int64_t> first = {0, 20, 57}, count = {20, 37, 33};
  const InParts parts(random_input(3, {.num_nodes = 90, .equal_rows = false}, {{0, 1}}, {5000, 900}), {20, 57});
  PlanInput input = parts.input;
  input.index = index_cost(input.sizes);
  const Plan whole = make_plan(input);
  int64_t bytes = 0, rows = 0, entries = 0;
  for (std::size_t t = 0; t < 3; ++t) {
    const RowBytes& each = input.sizes.tables[t].slab_rows;
    const Plan part = plan_of_table(whole, first[t], count[t], each);
    for (std::size_t gpu = 0; gpu < 2; ++gpu) {
      const Slab& slab = part.gpus[gpu].slabs[kF];
      std::vector<uint32_t> expected;
      for (const uint32_t row : whole.gpus[gpu].slabs[kF].nodes) {
        if (row >= first[t] && row < first[t] + count[t]) expected.push_back(static_cast<uint32_t>(row - first[t]));
      }
      EXPECT_EQ(slab.nodes, expected);
      bytes += slab.bytes;
      rows += std::ssize(slab.nodes);
      entries += slab.num_entries;
      EXPECT_EQ(part.gpus[gpu].index_bytes, bitmap_bytes(count[t]) + 8 * slab.num_entries);
    }
    EXPECT_EQ(part.cliques[0].gpus, (std::vector<int>{0, 1}));
    EXPECT_GE(std::ssize(part.cliques[0].rows[kF].nodes), part.gpus[1].slabs[kF].num_entries);
  }
  const auto sum = [&](auto value) { return value(whole.gpus[0].slabs[kF]) + value(whole.gpus[1].slabs[kF]); };
  EXPECT_EQ(bytes, sum([](const Slab& slab) { return slab.bytes; }));
  EXPECT_EQ(rows, sum([](const Slab& slab) { return std::ssize(slab.nodes); }));
  EXPECT_EQ(entries, sum([](const Slab& slab) { return slab.num_entries; }));
}

}  // namespace
}  // namespace cohort::cache
