#include "cache/plan/hotness.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <iterator>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "tests/base/fails.h"
#include "tests/dataset/temporary_folder.h"

namespace cohort::cache {
namespace {

namespace fs = std::filesystem;

HotnessKey some_key() { return {11, 22, {25, 10}, 1024}; }

// Five nodes, seven lists (two of them of other relations), two batches; the numbers are by hand.
Hotness two_batches() {
  Hotness hotness(some_key(), 5, 7, 7);
  const std::vector<int64_t> first = {4, 0, 2}, lists = {6, 0}, picks = {2, 1}, second = {4, 1}, none = {0};
  hotness.add({first, lists, picks});
  hotness.add({second, std::span(lists).first(1), none});
  return hotness;
}

template <typename T>
std::vector<T> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}

TEST(Hotness, CountsRowsListsAndEdges) {
  const Hotness hotness = two_batches();
  EXPECT_EQ(hotness.num_batches(), 2);
  EXPECT_EQ(list(hotness.node_reads()), (std::vector<uint32_t>{1, 1, 1, 0, 2}));
  EXPECT_EQ(list(hotness.expansions()), (std::vector<uint32_t>{1, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(list(hotness.edges_read()), (std::vector<uint64_t>{1, 0, 0, 0, 0, 0, 2}));
  EXPECT_EQ(hotness.max_batch_nodes(), 3);
  EXPECT_EQ(hotness.max_batch_edges(), 3);
}

TEST(Hotness, ListsThatAreLookedAtWholeCountSo) {
  Hotness hotness(some_key(), 5, 5, 7);
  const std::vector<int64_t> nodes = {4, 0, 2}, lists = {4, 0}, picks = {2, 1}, looked_at = {30, 1};
  hotness.add({nodes, lists, picks, looked_at});
  EXPECT_EQ(list(hotness.edges_read()), (std::vector<uint64_t>{1, 0, 0, 0, 30}));
  EXPECT_EQ(hotness.max_batch_edges(), 3) << "edges of the batch are those drawn";
}

constexpr int64_t kManyNodes = 40'000;
constexpr int kHalf = 10;  // batches

// Batches of a half in which node v is read as often as reads(v, batch) says: true or false.
template <typename Reads>
void add_half(Hotness& hotness, Reads reads) {
  for (int batch = 0; batch < kHalf; ++batch) {
    std::vector<int64_t> nodes;
    for (int64_t node = 0; node < kManyNodes; ++node) {
      if (reads(node, batch)) nodes.push_back(node);
    }
    hotness.add({nodes, {}, {}});
  }
}

// All epochs read a node equally often, as when few seeds come again in every one.
TEST(Hotness, CountsThatComeAgainPromiseWhatTheySay) {
  Hotness hotness({}, kManyNodes, kManyNodes, 0);
  const auto reads = [](int64_t node, int batch) { return batch < node % 5; };
  add_half(hotness, reads);
  add_half(hotness, reads);
  hotness.begin_trial();
  add_half(hotness, reads);
  hotness.end_trial();
  EXPECT_EQ(hotness.num_batches(), 2 * kHalf) << "the trial is not counted";
  ASSERT_EQ(hotness.promises().reads.size(), 9u) << "counts 0, 2, 4, 6, 8";
  for (std::size_t count = 0; count < 9; ++count) {
    EXPECT_NEAR(hotness.promises().reads[count], static_cast<double>(count), 1e-9);
  }
}

// Nodes with rates of their own: batches of a half read each by chance.
auto by_chance(uint64_t half) {
  return [half](int64_t node, int batch) {
    const base::PhiloxKey key = base::key_of(5);
    const auto at = static_cast<uint64_t>(node);
    const uint64_t rate = 1 + base::random_below(300, key, at, 0);  // of 1000
    return base::random_below(1000, key, at, 1 + half * kHalf + static_cast<uint64_t>(batch)) < rate;
  };
}

TEST(Hotness, CountsByChancePromiseWhatOtherBatchesBring) {
  Hotness hotness({}, kManyNodes, kManyNodes, 0);
  add_half(hotness, by_chance(0));
  add_half(hotness, by_chance(1));
  hotness.begin_trial();
  add_half(hotness, by_chance(2));
  hotness.end_trial();
  Hotness others({}, kManyNodes, kManyNodes, 0);
  for (uint64_t half = 3; half < 7; ++half) add_half(others, by_chance(half));
  const auto promised = hotness.promises().reads;
  ASSERT_GE(promised.size(), 7u);
  for (uint32_t count = 0; count < promised.size(); ++count) {
    double sum = 0, nodes = 0;
    for (std::size_t node = 0; node < kManyNodes; ++node) {
      if (hotness.node_reads()[node] == count) sum += others.node_reads()[node], ++nodes;
    }
    EXPECT_NEAR(promised[count], sum / nodes / 2, 0.05 * sum / nodes / 2 + 0.05) << count;
  }
}

class HotnessFile : public testing::Test {
 protected:
  std::string image() const { return dataset::read_bytes(path_); }
  void write(const std::string& bytes) const { dataset::write_bytes(path_, bytes); }
  std::string refusal() const {
    const HotnessKey key = some_key();
    return base::error_of([&] { Hotness::load(path_, &key); });
  }
  dataset::TemporaryFolder folder_;
  fs::path path_ = hotness_path(folder_.path(), some_key());
};

TEST_F(HotnessFile, ComesBackAsItWas) {
  const Hotness saved = two_batches();
  saved.save(path_);
  EXPECT_EQ(fs::file_size(path_), 200u + 5 * 4 + 7 * 12);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "a temporary file is left";
  const HotnessKey key = some_key();
  const Hotness loaded = Hotness::load(path_, &key);
  EXPECT_EQ(loaded.key(), key);
  EXPECT_EQ(loaded.seed(), 7u);
  EXPECT_EQ(loaded.num_batches(), 2);
  EXPECT_EQ(loaded.max_batch_nodes(), 3);
  EXPECT_EQ(loaded.max_batch_edges(), 3);
  EXPECT_EQ(list(loaded.node_reads()), list(saved.node_reads()));
  EXPECT_EQ(list(loaded.expansions()), list(saved.expansions()));
  EXPECT_EQ(list(loaded.edges_read()), list(saved.edges_read()));
}

// Files of earlier versions have a third table of what counts promise.
TEST_F(HotnessFile, AThirdTableIsReadAndLeftOut) {
  two_batches().save(path_);
  std::string bytes = image();
  const auto put = [&](std::size_t at, uint32_t value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  const double share = 0.5;
  bytes.append(reinterpret_cast<const char*>(&share), sizeof share);
  put(152, 1);
  put(76, base::crc32c(std::as_bytes(std::span(bytes)).subspan(200)));
  put(196, base::crc32c(std::as_bytes(std::span(bytes)).first(196)));
  write(bytes);
  const Hotness loaded = Hotness::load(path_);
  EXPECT_EQ(list(loaded.node_reads()), list(two_batches().node_reads()));
  EXPECT_TRUE(loaded.promises().reads.empty() && loaded.promises().expansions.empty());
}

// The totals, which the header has, are there without the counts.
TEST_F(HotnessFile, EveryDamagedByteIsFound) {
  two_batches().save(path_);
  const HotnessKey key = some_key();
  const HotnessTotals totals = Hotness::load_totals(path_, &key);
  EXPECT_EQ(totals.num_batches, 2);
  EXPECT_EQ(totals.max_batch_nodes, 3);
  EXPECT_EQ(totals.max_batch_edges, 3);
  const auto totals_are_there = [&] {
    return base::error_of([&] { Hotness::load_totals(path_, &key); }) == "no error";
  };
  const std::string good = image();
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    write(bad);
    EXPECT_NE(refusal().find("remove the file"), std::string::npos) << "byte " << i;
    EXPECT_EQ(totals_are_there(), i >= 200) << "byte " << i;
  }
  for (const std::string& bad :
       {good.substr(0, 0), good.substr(0, 199), good.substr(0, 200), good.substr(0, good.size() - 1), good + "x"}) {
    write(bad);
    EXPECT_NE(refusal(), "no error") << "length " << bad.size();
    EXPECT_FALSE(totals_are_there()) << "length " << bad.size();
  }
  HotnessKey other = key;
  other.batch_size += 1;
  write(good);
  EXPECT_EQ(refusal(), "no error");
  EXPECT_THROW(Hotness::load_totals(path_, &other), base::Error);
}

TEST_F(HotnessFile, CountsThatNoSignedIntegerHoldsAreRefused) {
  two_batches().save(path_);
  std::string bad = image();
  bad[55] = '\x80';  // the highest byte of num_batches
  const uint32_t crc = base::crc32c(std::as_bytes(std::span(bad)).first(196));
  std::memcpy(bad.data() + 196, &crc, sizeof crc);
  write(bad);
  EXPECT_NE(refusal().find("counts of less than 2^63"), std::string::npos) << refusal();
}

TEST_F(HotnessFile, CountsOfAnotherKeyAreRefused) {
  HotnessKey other = some_key();
  other.fanout = {10, 25};
  Hotness(other, 5, 5, 7).save(path_);
  EXPECT_NE(refusal().find("fanout"), std::string::npos);
  EXPECT_THROW(Hotness::load(folder_ / "none"), base::Error);
  EXPECT_THROW(two_batches().save(folder_ / "none" / "file"), base::Error);
}

TEST(HotnessKey, EveryPartCounts) {
  const uint64_t digest = some_key().digest();
  EXPECT_EQ(digest, some_key().digest());
  for (const HotnessKey& other :
       {HotnessKey{12, 22, {25, 10}, 1024}, HotnessKey{11, 23, {25, 10}, 1024}, HotnessKey{11, 22, {10, 25}, 1024},
        HotnessKey{11, 22, {25, 10, 5}, 1024}, HotnessKey{11, 22, {25, 10}, 1000}}) {
    EXPECT_NE(other.digest(), digest);
  }
  EXPECT_NE(hash_words(std::vector<int64_t>{0}), hash_words(std::vector<int64_t>{0, 0}));
  EXPECT_NE(hash_words(std::vector<int64_t>{1, 2}), hash_words(std::vector<int64_t>{2, 1}));
}

}  // namespace
}  // namespace cohort::cache
