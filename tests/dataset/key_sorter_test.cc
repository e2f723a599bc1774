#include "dataset/sorting/key_sorter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "dataset/parallel.h"
#include "temporary_folder.h"

namespace cohort::dataset {
namespace {

std::vector<uint64_t> random_keys(std::size_t count, uint64_t bound) {
  std::vector<uint64_t> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = base::random_below(bound, base::key_of(3), i, 0) << 7;
  return keys;
}

void add(KeySorter& sorter, const std::vector<uint64_t>& keys) {
  for (std::size_t done = 0; done < keys.size();) {
    const auto room = sorter.room(keys.size() - done, 1, {});
    std::copy_n(keys.begin() + static_cast<std::ptrdiff_t>(done), room.size(), room.begin());
    sorter.added(room.size());
    done += room.size();
  }
}

std::vector<uint64_t> merged(KeySorter& sorter) {
  std::vector<uint64_t> out;
  sorter.merge([&](std::span<const uint64_t> keys) { out.insert(out.end(), keys.begin(), keys.end()); }, {});
  return out;
}

class Sorted : public testing::TestWithParam<std::tuple<std::size_t, bool>> {};

TEST_P(Sorted, RunsAreMerged) {
  const auto [memory_bytes, unique] = GetParam();
  const TemporaryFolder folder;
  auto keys = random_keys(200001, 90000);
  KeySorter sorter(folder.path(), memory_bytes, unique);
  add(sorter, keys);
  EXPECT_EQ(sorter.num_runs() > 1, memory_bytes < 1000000);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the temporary file has a name";
  const auto out = merged(sorter);
  std::sort(keys.begin(), keys.end());
  if (unique) keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  EXPECT_EQ(out, keys);
}

// 16 KB hold 1024 keys: 196 runs.
INSTANTIATE_TEST_SUITE_P(Memory, Sorted,
                         testing::Combine(testing::Values<std::size_t>(16 << 10, 100 << 10, 900 << 10, 64 << 20),
                                          testing::Bool()));

TEST(KeySorter, KeysThatAreFewDistinctOnesNeedNoFile) {
  const TemporaryFolder folder;
  KeySorter sorter(folder.path(), 16 << 10, true);
  add(sorter, random_keys(100000, 100));
  EXPECT_EQ(sorter.num_runs(), 0u);
  EXPECT_EQ(merged(sorter).size(), 100u);
}

TEST(KeySorter, EndsWhenAskedTo) {
  const TemporaryFolder folder;
  KeySorter sorter(folder.path(), 16 << 10, false);
  add(sorter, random_keys(5000, 100));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THROW(sorter.merge([](std::span<const uint64_t>) {}, stop.get_token()), Interrupted);
}

TEST(KeySorter, AFolderThatIsNotThereIsNamed) {
  KeySorter sorter("/nowhere/at/all", 16 << 10, false);
  EXPECT_THROW(add(sorter, random_keys(5000, 100)), base::Error);
}

}  // namespace
}  // namespace cohort::dataset
