// Rows that a GPU gets from a disk, beside those from slabs and from host memory.
#include "cache/far_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "cache/disk_rows.h"
#include "tests/base/fails.h"
#include "tests/cache/fetched_rows.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kFarRows = 6000;

struct FarCase {
  const char* codec;
  int64_t staging_bytes;
  int64_t buffer_bytes;
};

class GpuFarFetch : public testing::TestWithParam<FarCase> {
 protected:
  void SetUp() override {
    table_.encode(GetParam().codec);
    ibp::save(table_.rows.encoded->encoded(), file_);
    for (int64_t row = 0; row < kFarRows; ++row) {
      if (row % 4 == 1) in_memory_.choose(row);
    }
    in_memory_.count();
  }
  void TearDown() override { std::filesystem::remove(file_); }

  std::unique_ptr<FeatureFetch> open(std::size_t num_fetches = 2, ReadFunction read = ::pread) {
    const auto mapped = std::make_shared<const HostRows>(HostRows::open(file_, table_.rows.shape, false));
    disk_ = std::make_shared<const DiskRows>(std::make_shared<const RowFile>(mapped), threads_, std::move(read));
    auto rows = std::make_unique<FeatureFetch>(std::make_shared<const HostFeatures>(*disk_, in_memory_),
                                               table_.rows.row_bytes, FetchSettings{.num_fetches = num_fetches});
    rows->set_far({disk_, &in_memory_, GetParam().staging_bytes, GetParam().buffer_bytes});
    return rows;
  }
  static void wait_for(const FeatureFetch& rows) {
    while (!rows.far_ended()) std::this_thread::sleep_for(1ms);
  }
  // What comes of a fetch of one batch after the other.
  TierUses expect_fetched(FeatureFetch& rows, const Table& table, const std::vector<int64_t>& nodes,
                          bool plane_a = false) {
    const base::DeviceArray<int64_t> on_gpu = base::upload(nodes);
    const base::DeviceBytes out(nodes.size() * static_cast<std::size_t>(table.rows.row_bytes));
    const base::Stream stream;
    rows.fetch(on_gpu.data(), std::ssize(nodes), {.rows = out.data(), .plane_a = plane_a}, stream);
    stream.synchronize();
    wait_for(rows);
    const TierUses uses = rows.use();
    expect_rows(table, nodes, base::download(out));
    return uses;
  }

  Table table_{"float32", kFarRows, 100, 4};
  RowBits in_memory_{kFarRows};
  std::string file_ = testing::TempDir() + "far_gather.ibp";
  std::shared_ptr<ReadThreads> threads_ = std::make_shared<ReadThreads>(8);
  std::shared_ptr<const DiskRows> disk_;
};

TEST_P(GpuFarFetch, GivesEachRowFromItsTier) {
  const auto rows = open();
  const std::vector<int> gpus = {0};
  const SlabRows slab_rows(table_.rows, true);
  rows->set_slabs(std::move(fill_row_slabs(plan_of(table_, slab_rows, 1, 0), gpus, slab_rows, kFarRows)[0]));
  for (const int64_t count : {kFarRows, int64_t{1}, int64_t{700}, int64_t{0}, int64_t{3000}}) {
    SCOPED_TRACE(count);
    const std::vector<int64_t> nodes = random_nodes(kFarRows, count);
    const TierUses uses = expect_fetched(*rows, table_, nodes);
    const auto counted = [&](auto in_tier) { return std::ranges::count_if(nodes, in_tier); };
    EXPECT_EQ(uses[0].rows, counted([](int64_t row) { return row % 3 == 0; }));
    EXPECT_EQ(uses[kHostTier].rows, counted([](int64_t row) { return row % 3 != 0 && row % 4 == 1; }));
    EXPECT_EQ(uses[kDiskTier].rows, counted([](int64_t row) { return row % 3 != 0 && row % 4 != 1; }));
  }
}

TEST_P(GpuFarFetch, CountsStoredBytes) {
  const auto rows = open();
  const std::vector<int64_t> nodes = random_nodes(kFarRows, 2000);
  const TierUses uses = expect_fetched(*rows, table_, nodes);
  EXPECT_EQ(uses[kHostTier].bytes + uses[kDiskTier].bytes, table_.rows.encoded->stored_bytes(nodes));
  EXPECT_GT(uses[kDiskTier].us, 0);
}

TEST_P(GpuFarFetch, GivesPlaneAAlone) {
  const auto rows = open();
  Table coarse = table_;
  std::vector<int64_t> all(kFarRows);
  std::iota(all.begin(), all.end(), 0);
  table_.rows.encoded->fetch(all, coarse.bytes.data(), true);
  for (const bool plane_a : {true, false, true}) {
    expect_fetched(*rows, plane_a ? coarse : table_, random_nodes(kFarRows, 1000), plane_a);
  }
}

// Several batches under way, some of them empty, into a pool: a row that an earlier one waits for is not read again.
TEST_P(GpuFarFetch, FetchesBatchesSideBySideIntoAPool) {
  const auto rows = open(3);
  rows->use_pool(kFarRows, true);
  const base::Stream growing;
  rows->grow_pool(kFarRows, growing);
  const base::DeviceBytes pool(static_cast<std::size_t>(kFarRows * table_.rows.row_bytes));
  struct Under {
    PooledBatch batch;
    base::Stream stream;
  };
  std::deque<Under> under;
  int64_t from_disk = 0;
  const auto expect_oldest = [&] {
    under.front().stream.synchronize();
    wait_for(*rows);
    from_disk += rows->use()[kDiskTier].rows;
    expect_rows_in_pool(table_, pool, under.front().batch);
    under.pop_front();
  };
  for (uint32_t number = 0; number < 8; ++number) {
    if (under.size() == 3) expect_oldest();
    under.push_back({PooledBatch(random_nodes(kFarRows, number % 3 == 1 ? 0 : 1500, number)), base::Stream()});
    const auto& [batch, stream] = under.back();
    rows->fetch(batch.on_gpu.data(), std::ssize(batch.nodes),
                {.rows = pool.data(),
                 .row_index = batch.row_index.data(),
                 .batch = {.number = number, .oldest_in_use = 0},
                 .poison = true},
                stream);
  }
  while (!under.empty()) expect_oldest();
  EXPECT_LE(from_disk, kFarRows * 3 / 4);  // each at most once
}

TEST_P(GpuFarFetch, SaysWhatADiskHasSaid) {
  const auto rows = open(2, [](int, void*, std::size_t, off_t) -> ssize_t {
    errno = EIO;
    return -1;
  });
  const std::vector<int64_t> nodes = {0, 1, 2};
  const base::DeviceArray<int64_t> on_gpu = base::upload(nodes);
  const base::DeviceBytes out(3 * static_cast<std::size_t>(table_.rows.row_bytes));
  const base::Stream stream;
  rows->fetch(on_gpu.data(), 3, {.rows = out.data()}, stream);
  stream.synchronize();
  wait_for(*rows);
  EXPECT_TRUE(base::fails_with([&] { rows->use(); }, {file_}));
}

INSTANTIATE_TEST_SUITE_P(Codecs, GpuFarFetch,
                         testing::Values(FarCase{"exponent", 1 << 17, 1 << 20}, FarCase{"exponent", 8 << 20, 4 << 20},
                                         FarCase{"exponent", 1 << 19, 1 << 16}, FarCase{"exponent", 4 << 20, 1 << 16},
                                         FarCase{"planes", 4 << 20, 1 << 16}, FarCase{"sparse", 1 << 17, 1 << 20},
                                         FarCase{"planes", 1 << 17, 1 << 20}));

}  // namespace
}  // namespace cohort::cache
