#include "base/check.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/base/fails.h"

namespace cohort::base {
namespace {

TEST(Error, SaysPlaceExpectedFoundAndHint) {
  const Error error({"x.npy", "int64", "int32", "convert it"});
  EXPECT_STREQ(error.what(), "x.npy: expected int64, found int32\n  hint: convert it");
  EXPECT_EQ(error.parts().found, "int32");
}

TEST(Error, LeavesOutAnEmptyHint) { EXPECT_STREQ(Error({"a", "b", "c", ""}).what(), "a: expected b, found c"); }

TEST(Error, OfALimitOfTheShellNamesTheLimit) {
  EXPECT_TRUE(fails_with([] { fail_errno("a", "b", EMFILE, "ls -l"); }, {"Too many open files", "hint: raise", "-n"}));
  EXPECT_TRUE(fails_with([] { fail_errno("a", "b", EFBIG, "c"); }, {"File too large", "hint: raise", "ulimit -f"}));
  EXPECT_TRUE(fails_with([] { fail_errno("a", "b", ENOMEM); }, {"Cannot allocate memory", "hint: free", "ulimit -v"}));
}

TEST(Require, NamesItsLine) {
  EXPECT_NO_THROW(require(true, "fine"));
  EXPECT_TRUE(fails_with([&] { require(false, "slots in order"); }, {"check_test.cc:", "slots in order"}));
}

TEST(FormatBytes, UsesDecimalUnits) {
  EXPECT_EQ(format_bytes(312), "312 B");
  EXPECT_EQ(format_bytes(1.5e9), "1.50 GB");
}

}  // namespace
}  // namespace cohort::base
