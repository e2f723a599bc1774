#include "cache/plan/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "base/random.h"
#include "cache/plan/row_owner.h"
#include "tests/cache/host_pool.h"
#include "tests/cache/small_graph.h"

namespace cohort::cache {
namespace {

// Lines counted one by one over every place where a read can begin.
double counted_lines(int64_t bytes, int64_t align) {
  int64_t lines = 0, places = 0;
  for (int64_t begin = 0; begin < 128; begin += align, ++places) {
    lines += (begin + bytes - 1) / 128 - begin / 128 + 1;
  }
  return static_cast<double>(lines) / static_cast<double>(places);
}

TEST(Cost, MeanLinesEqualsCounting) {
  for (int64_t align : {1, 4, 8, 16, 64, 128}) {
    for (int64_t bytes : {1, 4, 16, 100, 127, 128, 129, 400, 512, 2048}) {
      if (bytes % align != 0) continue;  // elsewhere the bytes up to the next multiple count as read
      EXPECT_DOUBLE_EQ(mean_lines(bytes, align), counted_lines(bytes, align)) << bytes << " at " << align;
    }
  }
  EXPECT_EQ(mean_lines(0, 4), 0);
  EXPECT_EQ(mean_lines(130, 128), 2);
}

// Draws without replacement, counted.
double counted_drawn_lines(int64_t picks, int64_t degree) {
  constexpr int kTrials = 4000;
  int64_t lines = 0;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    const uint64_t shift = base::random_below(32, base::key_of(5), trial, 0);
    std::set<uint64_t> taken, touched;
    for (uint64_t n = 1; taken.size() < static_cast<std::size_t>(picks); ++n) {
      taken.insert(base::random_below(static_cast<uint64_t>(degree), base::key_of(5), trial, n));
    }
    for (uint64_t position : taken) touched.insert((position + shift) / 32);
    lines += static_cast<int64_t>(touched.size());
  }
  return static_cast<double>(lines) / kTrials;
}

TEST(Cost, DrawnLinesAreNearToDrawing) {
  for (const auto& [picks, degree] : {std::pair{10, 50}, {25, 64}, {10, 1000}, {25, 100000}, {5, 11}}) {
    EXPECT_NEAR(drawn_lines(picks, degree, 4) / counted_drawn_lines(picks, degree), 1.0, 0.1) << picks << " " << degree;
  }
}

TEST(Cost, DrawnLinesAtTheEnds) {
  EXPECT_EQ(drawn_lines(0, 10, 4), 0);
  EXPECT_EQ(drawn_lines(3, 0, 4), 0);
  EXPECT_NEAR(drawn_lines(1, 1'000'000, 4), 1, 1e-9);
  EXPECT_DOUBLE_EQ(drawn_lines(96, 96, 4), mean_lines(96 * 4, 4));
}

TEST(Cost, AListIsItsLengthAndItsNeighboursInWords) {
  const std::vector<int64_t> indptr = {0, 0, 1, 4};
  GraphSizes sizes{{{3, {100}}}, {{{3, 4, indptr.data(), nullptr, 4}}}};
  const Costs narrow(sizes, measured_links());
  EXPECT_EQ(narrow.stored_bytes(Kind::kTopology, 0), 8);
  EXPECT_EQ(narrow.stored_bytes(Kind::kTopology, 1), 16);
  EXPECT_EQ(narrow.stored_bytes(Kind::kTopology, 2), 24);
  EXPECT_EQ(narrow.stored_bytes(Kind::kFeature, 2), 100);
  sizes.relations[0].lists.index_bytes = 8;
  EXPECT_EQ(Costs(sizes, measured_links()).stored_bytes(Kind::kTopology, 2), 32);
}

// Node 1 is read four times in two batches; the numbers are by hand.
TEST(Cost, UseIsPerBatch) {
  const std::vector<int64_t> indptr = {0, 2, 4};
  const std::vector<uint32_t> reads = {0, 4}, expansions = {0, 2};
  const std::vector<uint64_t> edges = {0, 4};
  const Counts counts{2, reads.data(), expansions.data(), edges.data()};
  const Links links = {Link{1280, 0}, Link{128, 0}, Link{128, 1}};  // seconds a line: 0.1, 1, 2
  const Costs costs({{{2, {256}}}, {{{2, 4, indptr.data(), nullptr, 4}}}}, links);
  const Use row = costs.uses(Kind::kFeature, counts, 1)[kHostTier];
  EXPECT_DOUBLE_EQ(row.reads, 2);
  EXPECT_DOUBLE_EQ(row.bytes, 512);
  EXPECT_DOUBLE_EQ(row.lines, 4);
  EXPECT_DOUBLE_EQ(row.seconds, 8);
  const Use list = costs.uses(Kind::kTopology, counts, 1)[static_cast<std::size_t>(Tier::kPeer)];
  EXPECT_DOUBLE_EQ(list.reads, 1);
  EXPECT_DOUBLE_EQ(list.bytes, 8 + 8);
  EXPECT_DOUBLE_EQ(list.lines, 1 + (1 + 4 / 128.0));
  const Costs::Saved saved = costs.saved(Kind::kFeature, counts, 1);
  EXPECT_DOUBLE_EQ(saved.host_to_peer, 4);
  EXPECT_DOUBLE_EQ(saved.peer_to_local, 3.6);
  EXPECT_EQ(costs.uses(Kind::kTopology, counts, 0)[kHostTier].seconds, 0);
}

// A row of another machine crosses the network, and then the link from host memory.
TEST(Cost, ARowOfAnotherMachineTakesTheNetworkToo) {
  const std::vector<uint32_t> reads(256, 4);
  const std::vector<uint64_t> edges(256, 0);
  const Counts counts{2, reads.data(), reads.data(), edges.data()};
  const Links links = {Link{1280, 0}, Link{128, 0}, Link{128, 1}};  // seconds a line: 0.1, 1, 2
  GraphSizes sizes{{{256, {256}}}, {}};
  sizes.parts = {2, 1};
  const Costs costs(sizes, links, 64);
  int64_t num_own = 0;
  for (int64_t row = 0; row < 256; ++row) {
    const bool is_own = owner_of(row, 2) == 1;
    num_own += is_own;
    const UseByTier uses = costs.uses(Kind::kFeature, counts, row);
    const Use &read = uses[is_own ? kHostTier : kRemoteTier], &none = uses[is_own ? kRemoteTier : kHostTier];
    EXPECT_DOUBLE_EQ(read.bytes, 512);
    EXPECT_DOUBLE_EQ(read.lines, 4);
    EXPECT_DOUBLE_EQ(read.seconds, is_own ? 8 : 8 + 512 / 64.0);
    EXPECT_EQ(none.reads + none.bytes + none.lines + none.seconds, 0);
    EXPECT_DOUBLE_EQ(costs.saved(Kind::kFeature, counts, row).host_to_peer, read.seconds - 4);
  }
  EXPECT_TRUE(num_own > 0 && num_own < 256);
}

// In host memory 400 bytes that begin at multiples of 16, in a slab 96 bytes at multiples of 32; then lengths of their
// own, at multiples of 4.
TEST(Cost, HostRowsOfAnotherLength) {
  const std::vector<uint32_t> reads = {0, 4}, host_bytes = {12, 40};
  const std::vector<uint64_t> edges = {0, 0};
  const Counts counts{2, reads.data(), reads.data(), edges.data()};
  GraphSizes sizes{{{2, {96}, {400}}}, {}};
  const auto lines = [&](Tier tier) {
    return Costs(sizes, measured_links()).uses(Kind::kFeature, counts, 1)[static_cast<std::size_t>(tier)].lines;
  };
  EXPECT_DOUBLE_EQ(lines(Tier::kHost), 2 * counted_lines(400, 16));
  EXPECT_DOUBLE_EQ(lines(Tier::kPeer), 2 * counted_lines(96, 32));
  EXPECT_EQ(Costs(sizes, measured_links()).stored_bytes(Kind::kFeature, 1), 96);
  sizes.tables[0].host_rows.each = host_bytes.data();
  EXPECT_DOUBLE_EQ(lines(Tier::kHost), 2 * counted_lines(40, 4));
  EXPECT_DOUBLE_EQ(Costs(sizes, measured_links()).uses(Kind::kFeature, counts, 1)[kHostTier].bytes, 80);
  EXPECT_DOUBLE_EQ(lines(Tier::kLocal), 2 * counted_lines(96, 32));
}

// Counts 0 and 1 have promises; 4 is above their end.
TEST(Cost, ReadsArePromisedOrCounted) {
  const std::vector<uint32_t> reads = {0, 1, 4};
  const std::vector<double> promised = {0.1, 0.5};
  Counts counts{2, reads.data(), reads.data(), nullptr, {promised, {}}};
  EXPECT_DOUBLE_EQ(mean_reads(Kind::kFeature, counts, 0), 0.05);
  EXPECT_DOUBLE_EQ(mean_reads(Kind::kFeature, counts, 1), 0.25);
  EXPECT_DOUBLE_EQ(mean_reads(Kind::kFeature, counts, 2), (0.5 + 3) / 2) << "one read more for each count";
  EXPECT_DOUBLE_EQ(mean_reads(Kind::kTopology, counts, 1), 0.5);
}

// A row that half of all batches read stays 4 T batches and is away for 2.
TEST(Cost, RowsOfAPoolCostNothing) {
  EXPECT_DOUBLE_EQ(share_found(0.5, 3), 12.0 / 14);
  EXPECT_EQ(share_found(0.5, 0), 0);
  EXPECT_EQ(share_found(1, 3), 1);
  EXPECT_EQ(share_found(0, std::numeric_limits<double>::infinity()), 0);
  EXPECT_EQ(share_found(0.1, std::numeric_limits<double>::infinity()), 1);
  const std::vector<uint32_t> reads = {1};
  const std::vector<uint64_t> edges = {0};
  Counts counts{2, reads.data(), reads.data(), edges.data()};
  const Costs costs({{{1, {128}}}, {}}, measured_links());
  const double host_seconds = costs.uses(Kind::kFeature, counts, 0)[kHostTier].seconds;
  counts.pool_batches = {3};
  const auto use = costs.uses(Kind::kFeature, counts, 0);
  for (const std::size_t tier : {kLocalTier, kHostTier}) EXPECT_DOUBLE_EQ(use[tier].reads, 0.5 * 2 / 14);
  EXPECT_DOUBLE_EQ(use[kHostTier].seconds, host_seconds * 2 / 14);
  EXPECT_DOUBLE_EQ(use[kRecentTier].reads, 0.5 * 12 / 14);
  EXPECT_EQ(use[kRecentTier].bytes + use[kRecentTier].seconds, 0);
}

// 1000 rows, of which each batch reads all of the first 20 and half of the next 40; those after have counts of 1 in
// 100.
TEST(Cost, APoolHasAsManyRowsAsPlaces) {
  std::vector<uint32_t> reads(1000, 1);
  std::fill_n(reads.begin(), 20, 100);
  std::fill_n(reads.begin() + 20, 40, 50);
  const Counts counts{100, reads.data(), reads.data(), nullptr};
  double last = 0;
  for (const int num_slots : {2, 4, 8}) {
    const double turn = pool_batches({{{1000, {128}}}, {}, num_slots}, counts)[0];
    double rows = 0;
    for (const uint32_t count : reads) rows += share_found(count / 100.0, turn);
    EXPECT_NEAR(rows, num_slots * (49 + 49 / 4), 1e-6) << "20 + 20 + 9 rows a batch, and a quarter more";
    EXPECT_GT(turn, last);
    last = turn;
  }
  EXPECT_TRUE(std::isinf(pool_batches({{{1000, {128}}}, {}, 20}, counts)[0])) << "room for all";
  EXPECT_EQ(pool_batches({{{1000, {128}}}, {}, 0}, counts), std::vector<double>{0});
}

// The same as pools do by their rules, with independent batches.
TEST(Cost, APoolFindsAsManyRowsAsItsTurnSays) {
  constexpr int64_t kRows = 2000;
  constexpr int kSlots = 3;
  std::mt19937_64 random(4);
  std::vector<uint32_t> reads(kRows);
  for (std::size_t row = 0; row < reads.size(); ++row) reads[row] = static_cast<uint32_t>(1000 / (1 + row / 10));
  const Counts counts{1000, reads.data(), reads.data(), nullptr};
  const double turn = pool_batches({{{kRows, {128}}}, {}, kSlots}, counts)[0];
  double rows = 0, expected = 0;
  for (const uint32_t count : reads) {
    rows += count / 1000.0;
    expected += count / 1000.0 * share_found(count / 1000.0, turn);
  }
  HostPool pool(kRows, kSlots * (static_cast<int64_t>(rows) + static_cast<int64_t>(rows) / 4), true);
  int64_t read = 0, missing = 0;
  for (uint32_t number = 0; number < 3000; ++number) {
    std::vector<int64_t> batch;
    for (int64_t row = 0; row < kRows; ++row) {
      if (random() % 1000 < reads[static_cast<std::size_t>(row)]) batch.push_back(row);
    }
    const int64_t before = pool.num_missing;
    pool.assign(batch, {number, number == 0 ? 0 : number - 1});
    if (number < 500) continue;  // until the pool is full
    read += std::ssize(batch);
    missing += pool.num_missing - before;
  }
  EXPECT_EQ(pool.num_without_row, 0);
  EXPECT_NEAR(1 - static_cast<double>(missing) / static_cast<double>(read), expected / rows, 0.01);
}

}  // namespace
}  // namespace cohort::cache
