#include <gtest/gtest.h>

#include <numeric>

#include "tests/trainer/nn/native/learned_tables.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kLearnedRows = 200, kLearnedDim = 5, kCount = 300;

TEST(LearnedRows, AnIdOutOfRangeIsToldAndItsRowIsZeros) {
  RandomTable table(kLearnedRows, kLearnedDim, HotIndex(kLearnedRows, 0), 1);
  for (const int64_t id : {int64_t{-1}, kLearnedRows, INT64_MAX, INT64_MIN}) {
    std::vector<float> out(kLearnedDim, 7.0f);
    int64_t bad = 0;
    run_on_host(TakeRowsCall{
        table.ref(HotIndex(kLearnedRows, 0)), kLearnedRows, kLearnedDim, 1, &id, nullptr, out.data(), &bad, {}});
    EXPECT_EQ(bad, id);
    EXPECT_EQ(out, std::vector<float>(kLearnedDim, 0.0f));
  }
}

class UpdateRows : public ::testing::TestWithParam<std::tuple<RowRule, bool>> {};

TEST_P(UpdateRows, RowsMayReachTheTableLater) {
  const auto [rule, has_before] = GetParam();
  const HotIndex index(kLearnedRows, 3);
  const RandomLookups lookups(kCount, kLearnedRows);
  std::vector<float> grads = random_elements<float>(kCount * kLearnedDim, 4), before(kCount * kLearnedDim);
  RandomTable table(kLearnedRows, kLearnedDim, index, 1), first(kLearnedRows, kLearnedDim, index, 2, true),
      second(kLearnedRows, kLearnedDim, index, 3, true);
  RandomTable wanted = table, same_first = first, same_second = second;
  int64_t bad = 0;
  TakeRowsCall take{table.ref(index),         kLearnedRows,  kLearnedDim, kCount, lookups.ids.data(),
                    lookups.row_index.data(), before.data(), &bad,        {}};
  run_on_host(take);
  UpdateRowsCall call = update_call(rule, kLearnedRows, kLearnedDim, lookups);
  call.grads = grads.data(), call.before = has_before ? before.data() : nullptr;
  call.table = wanted.ref(index), call.first = same_first.ref(index), call.second = same_second.ref(index);
  run_on_host(call);
  call.table = table.ref(index), call.first = first.ref(index), call.second = second.ref(index);
  call.changed = grads.data();
  const auto rows = table.rows;
  run_on_host(call);
  EXPECT_TRUE(same_bits(table.rows, rows)) << "of hot rows alone does the step write to the table";
  EXPECT_TRUE(same_bits(table.hot, wanted.hot));
  EXPECT_TRUE(same_bits(first.rows, same_first.rows) && same_bits(second.hot, same_second.hot));

  std::vector<int64_t> all(kLearnedRows);
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto taken = [&](const LearnedRows& of, const ChangedRows& changed) {
    std::vector<float> out(kLearnedRows * kLearnedDim);
    run_on_host(
        TakeRowsCall{of, kLearnedRows, kLearnedDim, kLearnedRows, all.data(), nullptr, out.data(), &bad, changed});
    return out;
  };
  const ChangedRows changed{kCount, lookups.ids.data(), lookups.row_index.data(), grads.data()};
  EXPECT_FALSE(same_bits(taken(table.ref(index), {}), taken(wanted.ref(index), {})));
  EXPECT_TRUE(same_bits(taken(table.ref(index), changed), taken(wanted.ref(index), {})));
  run_on_host(PutRowsCall{table.ref(index), kLearnedRows, kLearnedDim, changed});
  EXPECT_TRUE(same_bits(table.rows, wanted.rows));
  EXPECT_TRUE(same_bits(table.hot, wanted.hot));
}

INSTANTIATE_TEST_SUITE_P(All, UpdateRows,
                         ::testing::Combine(::testing::Values(RowRule::kAdagrad, RowRule::kAdam), ::testing::Bool()));

}  // namespace
}  // namespace cohort::trainer
