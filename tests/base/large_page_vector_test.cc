#include "base/large_page_vector.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <numeric>
#include <string>

namespace cohort::base {
namespace {

// The flags of the mapping that has this address; "hg": large pages were asked for.
std::string flags_of_pages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto at = reinterpret_cast<uintptr_t>(address);
  bool is_in = false;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t dash = line.find('-'), space = line.find(' ');
    if (dash < space && line.find(':') > dash) {
      is_in = std::stoull(line.substr(0, dash), nullptr, 16) <= at &&
              at < std::stoull(line.substr(dash + 1, space - dash - 1), nullptr, 16);
    }
    if (is_in && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

TEST(LargePageVector, AsksForLargePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "a system without large pages";
  const LargePageVector<uint64_t> words(1 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(words.data()) % LargePageAllocator<uint64_t>::kPageBytes, 0);
  EXPECT_NE(flags_of_pages(words.data()).find(" hg"), std::string::npos) << flags_of_pages(words.data());
}

TEST(LargePageVector, IsAVector) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1000}, std::size_t{3'000'001}}) {
    LargePageVector<uint32_t> words(size);
    EXPECT_EQ(std::accumulate(words.begin(), words.end(), uint64_t{0}), 0);
    std::iota(words.begin(), words.end(), 7);
    LargePageVector<uint32_t> copy = words;
    copy.push_back(5);  // moves to other pages
    EXPECT_TRUE(std::equal(words.begin(), words.end(), copy.begin()));
    const LargePageVector<uint32_t> taken = std::move(copy);
    EXPECT_EQ(taken.size(), size + 1);
    EXPECT_EQ(taken.back(), 5);
  }
}

}  // namespace
}  // namespace cohort::base
