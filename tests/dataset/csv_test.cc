#include "dataset/importing/csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"

namespace cohort::dataset {
namespace {

template <typename T>
std::vector<T> parse(const std::string& text, CsvLayout layout, std::size_t block_bytes = 1 << 20) {
  CsvParser<T> parser("e.csv", std::move(layout), 0);
  std::vector<T> out;
  for (std::size_t at = 0;; at += block_bytes) {
    const bool last = at + block_bytes >= text.size();
    const auto block = text.substr(std::min(at, text.size()), block_bytes);
    const auto rows = parser.feed(block, last, {});
    out.insert(out.end(), rows.begin(), rows.end());
    if (last) return out;
  }
}

using Integers = std::vector<int64_t>;

CsvLayout columns(char separator, std::vector<int64_t> wanted, bool only_these = false) {
  return {separator, "#%", std::move(wanted), only_these};
}

TEST(Csv, ReadsTheColumnsAskedFor) {
  EXPECT_EQ(parse<int64_t>("1,2,3\n4,5,6\n", columns(',', {0, 2})), (Integers{1, 3, 4, 6}));
  EXPECT_EQ(parse<int64_t>("1,2,3\n4,5,6", columns(',', {2, 0})), (Integers{3, 1, 6, 4}));
  EXPECT_EQ(parse<int64_t>("", columns(',', {0})), Integers{});
}

TEST(Csv, SkipsCommentsEmptyLinesBlanksAndCarriageReturns) {
  const std::string text = "# a comment\r\n1 ,\t-2\r\n\r\n% another\n +3, 4 \n";
  EXPECT_EQ(parse<int64_t>(text, columns(',', {0, 1})), (Integers{1, -2, 3, 4}));
}

TEST(Csv, TakesAnySeparator) {
  EXPECT_EQ(parse<int64_t>("1\t2\n3\t4\n", columns('\t', {0, 1})), (Integers{1, 2, 3, 4}));
  EXPECT_EQ(parse<int64_t>("1;x;2\n", columns(';', {0, 2})), (Integers{1, 2}));
  EXPECT_EQ(parse<int64_t>("  1   2\n3 \t 4 \n", columns(' ', {0, 1})), (Integers{1, 2, 3, 4}));
}

TEST(Csv, BlocksMayEndAnywhere) {
  std::string text;
  Integers wanted;
  for (int64_t i = 0; i < 500; ++i) {
    text += std::to_string(i * i) + "," + std::to_string(-i) + "\n";
    wanted.insert(wanted.end(), {i * i, -i});
  }
  for (const std::size_t block_bytes : {1, 2, 7, 100, 5000}) {
    EXPECT_EQ(parse<int64_t>(text, columns(',', {0, 1}), block_bytes), wanted) << block_bytes;
  }
}

TEST(Csv, ReadsMoreThanOneThreadTakes) {
  std::string text;
  Integers wanted;
  for (int64_t i = 0; i < 300000; ++i) {
    text += std::to_string(1000000 + i) + "\n";
    wanted.push_back(1000000 + i);
  }
  EXPECT_EQ(parse<int64_t>(text, columns(',', {0}), 1 << 24), wanted);
}

TEST(Csv, ReadsFloats) {
  const auto found = parse<float>("1.5,-2e-3,\nnan,inf,+7\n", columns(',', {0, 1, 2}));
  ASSERT_EQ(found.size(), 6u);
  EXPECT_EQ(found[0], 1.5f);
  EXPECT_EQ(found[1], -2e-3f);
  EXPECT_TRUE(std::isnan(found[2]) && std::isnan(found[3]) && std::isinf(found[4]));
  EXPECT_EQ(found[5], 7.f);
  const auto quoted = parse<double>("\"\"\n\"2.5\"\n", columns(',', {0}));  // pandas writes a lone NaN so
  EXPECT_TRUE(quoted.size() == 2 && std::isnan(quoted[0]) && quoted[1] == 2.5);
  EXPECT_EQ(parse<float>("1e-60,1e60\n", columns(',', {0})), std::vector<float>{0.f});
}

std::string refusal(const std::string& text, CsvLayout layout, std::size_t block_bytes = 1 << 20) {
  try {
    parse<int64_t>(text, std::move(layout), block_bytes);
  } catch (const base::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Csv, ABadLineIsNamed) {
  for (const std::size_t block_bytes : {3, 1000}) {
    EXPECT_EQ(refusal("0,1\n#\n\n2,x3\n", columns(',', {0, 1}), block_bytes).substr(0, 57),
              "e.csv: line 4: expected an integer, found \"x3\"\n  hint: --");
  }
  EXPECT_NE(refusal("0,1\n2\n", columns(',', {0, 1})).find("line 2: expected at least 2 fields, found 1"),
            std::string::npos);
  EXPECT_NE(refusal("1.5,1\n", columns(',', {0, 1})).find("an integer, found \"1.5\""), std::string::npos);
  EXPECT_NE(refusal("99999999999999999999,1\n", columns(',', {0, 1})).find("found \"99999999999999999999\""),
            std::string::npos);
  EXPECT_NE(refusal("\"1,2\n", columns(',', {0, 1})).find("an integer, found \"\"1\""), std::string::npos);
  EXPECT_NE(refusal("\"\",2\n", columns(',', {0, 1})).find("an integer"), std::string::npos);
  EXPECT_NE(refusal(",1\n", columns(',', {0, 1})).find("an integer, found \"\""), std::string::npos);
  EXPECT_NE(refusal("0,1,2\n", columns(',', {0, 1}, true)).find("2 fields, as in the first line, found more"),
            std::string::npos);
}

}  // namespace
}  // namespace cohort::dataset
