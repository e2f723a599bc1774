#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/trainer/nn/native/learned_tables.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kRows = 200, kDim = 5, kCount = 300;

TEST(LearnedRows, HotRowsAndOthersAreTaken) {
  const HotIndex index(kRows, 3);
  RandomTable table(kRows, kDim, index, 1);
  const auto wanted = random_elements<float>(kRows * kDim, 1);
  std::vector<int64_t> ids(kRows), row_index(kRows);
  for (int64_t i = 0; i < kRows; ++i) ids[i] = i, row_index[i] = kRows - 1 - i;
  std::vector<float> out(kRows * kDim);
  int64_t bad = 0;
  run_on_host(TakeRowsCall{table.ref(index), kRows, kDim, kRows, ids.data(), nullptr, out.data(), &bad, {}});
  EXPECT_TRUE(same_bits(out, wanted));
  run_on_host(TakeRowsCall{table.ref(index), kRows, kDim, kRows, ids.data(), row_index.data(), out.data(), &bad, {}});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t c = 0; c < kDim; ++c) ASSERT_EQ(out[row_index[i] * kDim + c], wanted[i * kDim + c]);
  }
  EXPECT_EQ(bad, 0);
}

TEST(LearnedRows, AnIdOutOfRangeIsToldAndItsRowIsZeros) {
  RandomTable table(kRows, kDim, HotIndex(kRows, 0), 1);
  for (const int64_t id : {int64_t{-1}, kRows, INT64_MAX, INT64_MIN}) {
    std::vector<float> out(kDim, 7.0f);
    int64_t bad = 0;
    run_on_host(TakeRowsCall{table.ref(HotIndex(kRows, 0)), kRows, kDim, 1, &id, nullptr, out.data(), &bad, {}});
    EXPECT_EQ(bad, id);
    EXPECT_EQ(out, std::vector<float>(kDim, 0.0f));
  }
}

// The step of one element by the formulas, in float64.
void step_element(const UpdateRowsCall& call, double grad, double& w, double& first, double& second) {
  grad += call.weight_decay * w;
  if (call.rule == RowRule::kAdagrad) {
    first += grad * grad;
    w -= call.rate * grad / (std::sqrt(first) + call.eps);
  } else {
    first += call.share1 * (grad - first);
    second += call.share2 * (grad * grad - second);
    w -= call.rate * first / (std::sqrt(second) + call.eps);
  }
}

class UpdateRows : public ::testing::TestWithParam<std::tuple<RowRule, bool>> {};

TEST_P(UpdateRows, EachIdOnceByTheSumOfItsGradients) {
  const auto [rule, has_before] = GetParam();
  const HotIndex index(kRows, 3), none(kRows, 0);
  const RandomLookups lookups(kCount, kRows);
  const auto grads = random_elements<float>(kCount * kDim, 4);
  RandomTable plain(kRows, kDim, none, 1), plain_first(kRows, kDim, none, 2, true),
      plain_second(kRows, kDim, none, 3, true);
  RandomTable table(kRows, kDim, index, 1), first(kRows, kDim, index, 2, true), second(kRows, kDim, index, 3, true);
  std::vector<float> before(kCount * kDim);
  for (int64_t i = 1; i + 1 < kCount; ++i) {
    std::copy_n(plain.rows.data() + lookups.ids[i] * kDim, kDim, before.data() + lookups.row_index[i] * kDim);
  }
  UpdateRowsCall call = update_call(rule, kRows, kDim, lookups);
  call.grads = grads.data();
  call.before = has_before ? before.data() : nullptr;
  call.table = table.ref(index), call.first = first.ref(index), call.second = second.ref(index);
  run_on_host(call);

  std::map<int64_t, std::vector<double>> sums;
  for (int64_t i = 1; i + 1 < kCount; ++i) {
    auto& sum = sums.try_emplace(lookups.ids[i], kDim).first->second;
    for (int64_t c = 0; c < kDim; ++c) sum[c] += grads[lookups.row_index[i] * kDim + c];
  }
  ASSERT_LT(sums.size(), kRows) << "some rows are not read";
  for (int64_t id = 0; id < kRows; ++id) {
    for (int64_t c = 0; c < kDim; ++c) {
      const auto at = id * kDim + c;
      double w = plain.rows[at], s = plain_first.rows[at], v = plain_second.rows[at];
      if (sums.contains(id)) step_element(call, sums[id][c], w, s, v);
      ASSERT_NEAR(call.table.row(id, kDim)[c], w, 1e-5) << "row " << id;
      ASSERT_NEAR(call.first.row(id, kDim)[c], s, 1e-4 * (1 + std::abs(s)));
      if (rule == RowRule::kAdam) {
        ASSERT_NEAR(call.second.row(id, kDim)[c], v, 1e-4 * (1 + std::abs(v)));
      }
    }
  }
  for (const int64_t id : index.ids) ASSERT_EQ(table.rows[id * kDim], 1e9f) << "hot rows stay away from the table";
}

TEST_P(UpdateRows, RowsMayReachTheTableLater) {
  const auto [rule, has_before] = GetParam();
  const HotIndex index(kRows, 3);
  const RandomLookups lookups(kCount, kRows);
  std::vector<float> grads = random_elements<float>(kCount * kDim, 4), before(kCount * kDim);
  RandomTable table(kRows, kDim, index, 1), first(kRows, kDim, index, 2, true), second(kRows, kDim, index, 3, true);
  RandomTable wanted = table, same_first = first, same_second = second;
  int64_t bad = 0;
  TakeRowsCall take{table.ref(index),         kRows,         kDim, kCount, lookups.ids.data(),
                    lookups.row_index.data(), before.data(), &bad, {}};
  run_on_host(take);
  UpdateRowsCall call = update_call(rule, kRows, kDim, lookups);
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

  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto taken = [&](const LearnedRows& of, const ChangedRows& changed) {
    std::vector<float> out(kRows * kDim);
    run_on_host(TakeRowsCall{of, kRows, kDim, kRows, all.data(), nullptr, out.data(), &bad, changed});
    return out;
  };
  const ChangedRows changed{kCount, lookups.ids.data(), lookups.row_index.data(), grads.data()};
  EXPECT_FALSE(same_bits(taken(table.ref(index), {}), taken(wanted.ref(index), {})));
  EXPECT_TRUE(same_bits(taken(table.ref(index), changed), taken(wanted.ref(index), {})));
  run_on_host(PutRowsCall{table.ref(index), kRows, kDim, changed});
  EXPECT_TRUE(same_bits(table.rows, wanted.rows));
  EXPECT_TRUE(same_bits(table.hot, wanted.hot));
}

INSTANTIATE_TEST_SUITE_P(All, UpdateRows,
                         ::testing::Combine(::testing::Values(RowRule::kAdagrad, RowRule::kAdam), ::testing::Bool()));

}  // namespace
}  // namespace cohort::trainer
