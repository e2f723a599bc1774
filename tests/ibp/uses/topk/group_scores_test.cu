// The best scores of groups and the products of pairs on the GPU: within the bound of float32 sums of what the host
// computes in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "base/random.h"
#include "ibp/profile_ref.h"
#include "ibp/uses/topk/group_scores.h"
#include "tests/base/on_gpu.h"

namespace cohort::ibp {
namespace {

double value_of(uint16_t bits) {
  const int exponent = bits >> 7 & 0xff, mantissa = bits & 0x7f;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 0xff) return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -133);
  return sign * std::ldexp(128 + mantissa, exponent - 134);
}

// Numbers of -1 to 1.
std::vector<uint16_t> random_table(int64_t rows, uint32_t columns, uint64_t seed) {
  std::vector<uint16_t> table(static_cast<std::size_t>(rows) * columns);
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto part = static_cast<float>(base::random_below(20001, base::key_of(seed), i, 0)) / 10000.0f - 1.0f;
    table[i] = bfloat16_of(std::bit_cast<uint32_t>(part));
  }
  return table;
}

double product_of(const uint16_t* a, const uint16_t* b, uint32_t columns) {
  double sum = 0;
  for (uint32_t i = 0; i < columns; ++i) sum += value_of(a[i]) * value_of(b[i]);
  return sum;
}

using base::download;

struct Tables {
  Tables(int64_t num_rows, int64_t num_queries, uint32_t num_columns)
      : rows(random_table(num_rows, num_columns, 1)), queries(random_table(num_queries, num_columns, 2)) {
    for (uint32_t i = 0; i < num_columns; ++i) rows[7 * num_columns + i] = i % 2 ? 0x8000 : 0;  // a row of zeros
    rows[8 * num_columns] = 0x7fff;                                                             // a NaN
    device_rows = base::upload(rows);
    device_queries = base::upload(queries);
    given = {device_rows.data(), device_queries.data(), num_rows, num_queries, num_columns};
  }
  const uint16_t* row(int64_t i) const { return rows.data() + i * given.num_columns; }
  const uint16_t* query(int64_t i) const { return queries.data() + i * given.num_columns; }
  std::vector<uint16_t> rows, queries;
  base::DeviceArray<uint16_t> device_rows, device_queries;
  RowsAndQueries given;
};

struct Scores {
  explicit Scores(const RowsAndQueries& given)
      : num_groups(given.num_rows / kScoreRows),
        best(static_cast<std::size_t>(num_groups * given.num_queries)),
        lengths(static_cast<std::size_t>(given.num_rows)),
        widest(static_cast<std::size_t>(num_groups)) {}
  GroupScoresRef ref() const { return {best.data(), lengths.data(), widest.data()}; }
  int64_t num_groups;
  base::DeviceArray<float> best, lengths, widest;
};

class GpuGroupScores : public testing::TestWithParam<std::tuple<uint32_t, int64_t, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GpuGroupScores,
                         testing::Combine(testing::Values(8u, 64u, 72u, 128u, 200u),
                                          testing::Values<int64_t>(32, 96, 128, 4128),
                                          testing::Values<int64_t>(1, 5, 64, 65, 130)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::to_string(std::get<1>(test.param)) + "_" +
                                  std::to_string(std::get<2>(test.param));
                         });

TEST_P(GpuGroupScores, AreThoseOfTheHost) {
  const auto [num_columns, num_rows, num_queries] = GetParam();
  const Tables tables(num_rows, num_queries, num_columns);
  const auto num_groups = static_cast<std::size_t>(num_rows / kScoreRows);
  std::vector<float> factors;
  for (int64_t q = 0; q < num_queries; ++q) factors.push_back(1.0f + static_cast<float>(q % 3));
  const base::DeviceArray<float> device_factors = base::upload(factors);
  const Scores scores(tables.given);
  const base::DeviceArray<float>&best = scores.best, &lengths = scores.lengths;
  const double sums = (num_columns + 8) * std::ldexp(1, -22);
  for (const Measure measure : {Measure::kDot, Measure::kCosine, Measure::kL2}) {
    score_groups(tables.given, {.measure = measure, .factors = device_factors.data()}, scores.ref(), nullptr);
    base::cuda_check(cudaDeviceSynchronize());
    const std::vector<float> found = download(best), lengths_found = download(lengths);
    std::vector<double> length_of;
    for (int64_t row = 0; row < num_rows; ++row) {
      const double length = std::sqrt(product_of(tables.row(row), tables.row(row), num_columns));
      length_of.push_back(measure == Measure::kCosine && row == 7 ? 1.0 : length);
      const float length_found = lengths_found[static_cast<std::size_t>(row)];
      if (row == 8) {
        EXPECT_TRUE(std::isnan(length_found));
      } else {
        EXPECT_NEAR(length_found, length_of.back(), sums * length_of.back()) << "row " << row;
      }
    }
    for (int64_t q = 0; q < num_queries; ++q) {
      const double factor = factors[static_cast<std::size_t>(q)];
      const double query = std::sqrt(product_of(tables.query(q), tables.query(q), num_columns));
      for (std::size_t group = 0; group < num_groups; ++group) {
        const float score = found[group * factors.size() + static_cast<std::size_t>(q)];
        if (group == 0) {  // that of the NaN
          EXPECT_TRUE(std::isnan(score));
          continue;
        }
        double expected = -INFINITY, margin = 0;
        for (int64_t j = 0; j < kScoreRows; ++j) {
          const int64_t row = static_cast<int64_t>(group) * kScoreRows + j;
          const double length = length_of[static_cast<std::size_t>(row)];
          double of_row = factor * product_of(tables.row(row), tables.query(q), num_columns);
          if (measure == Measure::kCosine) of_row /= length;
          if (measure == Measure::kL2) of_row -= length * length;
          expected = std::max(expected, of_row);
          const double most = measure == Measure::kCosine ? 1.0 : length;
          margin = std::max(margin, sums * (factor * most * query + (measure == Measure::kL2 ? length * length : 0)));
        }
        EXPECT_NEAR(score, expected, margin) << "group " << group << " query " << q;
      }
    }
  }
}

TEST_P(GpuGroupScores, OfPairsAreThoseOfTheHost) {
  const auto [num_columns, num_rows, num_queries] = GetParam();
  const Tables tables(num_rows, num_queries, num_columns);
  const Scores scores(tables.given);
  const auto queries = static_cast<std::size_t>(num_queries);
  const base::DeviceArray<float> factors = base::upload(std::vector<float>(queries, 1.0f));
  const base::DeviceArray<double> least = base::upload(std::vector<double>(queries, -INFINITY));
  const ScoreBoundsRef bounds{.factors = factors.data(), .slope = 0.25f, .stretch = 1, .largest = 1e9f};
  const auto num_pairs = static_cast<std::size_t>(scores.num_groups) * queries;
  const std::size_t most = num_pairs * std::size_t{kScoreRows};
  const base::DeviceArray<int64_t> pairs(num_pairs), of_query(most), rows(most);
  const base::DeviceArray<float> high(most);
  score_groups(tables.given, bounds, scores.ref(), nullptr);
  for (const std::size_t missing : {std::size_t{1}, std::size_t{0}}) {  // room for the last
    const base::DeviceArray<int64_t> counts = base::upload(std::vector<int64_t>(2, 0));
    const auto room = static_cast<int64_t>(num_pairs - missing);
    find_pairs(tables.given, bounds, scores.ref(), least.data(), pairs.data(), {counts.data(), room}, nullptr);
    score_pairs(tables.given, bounds, scores.lengths.data(), least.data(), pairs.data(), {counts.data(), room},
                {of_query.data(), rows.data(), high.data()}, {counts.data() + 1, static_cast<int64_t>(most - missing)},
                nullptr);
    base::cuda_check(cudaDeviceSynchronize());
    const std::vector<int64_t> found = download(counts);
    EXPECT_EQ(found[0], static_cast<int64_t>(num_pairs)) << "all pairs are counted";
    EXPECT_EQ(found[1], room * kScoreRows);
  }
  const std::vector<int64_t> query_of = download(of_query), row_of = download(rows);
  const std::vector<float> found = download(high);
  std::vector<bool> seen(most);
  for (std::size_t i = 0; i < most; ++i) {
    const auto place = static_cast<std::size_t>(query_of[i] * num_rows + row_of[i]);
    ASSERT_LT(place, most);
    EXPECT_FALSE(seen[place]) << "found twice";
    seen[place] = true;
    if (place % 7 != 0) continue;  // the host takes its time
    const double length = std::sqrt(product_of(tables.row(row_of[i]), tables.row(row_of[i]), num_columns));
    const double expected = product_of(tables.row(row_of[i]), tables.query(query_of[i]), num_columns) + 0.25 * length;
    if (row_of[i] == 8) {
      EXPECT_TRUE(std::isinf(found[i])) << "nothing is known of a NaN";
    } else {
      EXPECT_NEAR(found[i], expected, (num_columns + 8) * std::ldexp(1, -22) * num_columns) << "row " << row_of[i];
    }
  }
}

TEST(GpuGroupScoresOf, SizesThatDoNotFitAreErrors) {
  const Tables tables(32, 1, 8);
  const Scores scores(tables.given);
  for (const int change : {0, 1, 2}) {
    RowsAndQueries given = tables.given;
    if (change == 0) given.num_rows = 31;
    if (change == 1) given.num_columns = 4;
    if (change == 2) given.rows += 1;
    EXPECT_THROW(score_groups(given, {}, scores.ref(), nullptr), base::Error);
    EXPECT_THROW(score_pairs(given, {}, scores.lengths.data(), nullptr, nullptr, {}, {}, {}, nullptr), base::Error);
  }
}

}  // namespace
}  // namespace cohort::ibp
