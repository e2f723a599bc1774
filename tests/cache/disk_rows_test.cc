#include "cache/disk_rows.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <latch>

#include "base/check.h"
#include "tests/base/fails.h"
#include "tests/cache/file_of_rows.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

struct DiskCase {
  const char* codec;
  ibp::LayoutChoice layout;
};

class DiskFileOfRows : public FileOfRows, public testing::WithParamInterface<DiskCase> {
 protected:
  DiskFileOfRows() : FileOfRows(GetParam().codec, GetParam().layout) {}

  std::shared_ptr<const DiskRows> open(ReadFunction read = ::pread, std::chrono::milliseconds patience = 60s) {
    return std::make_shared<const DiskRows>(std::make_shared<const RowFile>(map()), threads_, std::move(read),
                                            patience);
  }
  // Every third row is in memory.
  static RowBits some_in_memory() {
    RowBits bits(kNumRows);
    for (int64_t row = 0; row < kNumRows; row += 3) bits.choose(row);
    bits.count();
    return bits;
  }

  std::shared_ptr<ReadThreads> threads_ = std::make_shared<ReadThreads>(8);
};

TEST_P(DiskFileOfRows, GivesTheRowsBackBitForBit) {
  const TieredRows rows(open(), some_in_memory());
  for (const std::size_t count : {std::size_t{1}, std::size_t{700}, std::size_t{kNumRows}}) {
    const std::vector<int64_t> ids = random_ids(count);
    EXPECT_EQ(fetched(rows, ids), expected(ids));
    EXPECT_EQ(use_.rows(), std::ranges::count_if(ids, [](int64_t id) { return id % 3 != 0; }));
    EXPECT_EQ(use_.rows() + host_.rows, std::ssize(ids));
    EXPECT_LE(use_.reads, 2 * use_.rows());
    EXPECT_GE(use_.read_bytes, use_.reads * 4096);
  }
  EXPECT_TRUE(fetched(rows, {}).empty());
}

TEST_P(DiskFileOfRows, CountsBytesAsHostRowsDo) {
  RowBits none(kNumRows);
  none.count();
  const TieredRows rows(open(), none);
  const auto mapped = map(true);
  const std::vector<int64_t> ids = random_ids(300);
  fetched(rows, ids);
  EXPECT_EQ(use_.tiers[kDiskTier].bytes, mapped->stored_bytes(ids));
  EXPECT_EQ(host_.bytes, 0);
  fetched(rows, ids, true);
  EXPECT_EQ(use_.tiers[kDiskTier].bytes, mapped->stored_bytes(ids, true));
  fetched(TieredRows(open(), some_in_memory()), ids);
  EXPECT_EQ(use_.tiers[kDiskTier].bytes + host_.bytes, mapped->stored_bytes(ids));
}

// All rows in order: neighbours come together, in blocks of which each is read once or twice.
TEST_P(DiskFileOfRows, ReadsNeighboursTogether) {
  RowBits none(kNumRows);
  none.count();
  const TieredRows rows(open(), none);
  std::vector<int64_t> ids = random_ids(kNumRows);
  std::ranges::sort(ids);
  EXPECT_EQ(fetched(rows, ids), expected(ids));
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(file_));
  EXPECT_LE(use_.read_bytes, file_bytes + file_bytes / 4);
  EXPECT_LE(use_.reads, kNumRows / 20);
}

TEST_P(DiskFileOfRows, FetchesSideBySide) {
  const TieredRows rows(open(), some_in_memory());
  const std::vector<int64_t> first = random_ids(2000), second = random_ids(4000);
  std::vector<std::byte> a = room_for(first), b = room_for(second);
  TieredFetch fetch_a = rows.fetch(first, a.data()), fetch_b = rows.fetch(second, b.data());
  fetch_b.far.finish();
  EXPECT_TRUE(fetch_b.far.done());
  fetch_a.far.finish();
  EXPECT_EQ(a, expected(first));
  EXPECT_EQ(b, expected(second));
}

TEST_P(DiskFileOfRows, NamesFileAndOffsetOfAFailedRead) {
  std::atomic<int> reads = 0;
  const TieredRows rows(open([&](int file, void* to, std::size_t bytes, off_t offset) -> ssize_t {
                          if (++reads != 5) return ::pread(file, to, bytes, offset);
                          errno = EIO;
                          return -1;
                        }),
                        some_in_memory());
  EXPECT_TRUE(base::fails_with([&] { fetched(rows, random_ids(3000)); }, {file_ + ", offset ", "Input/output error"}));
  const std::vector<int64_t> ids = random_ids(3000);
  EXPECT_EQ(fetched(rows, ids), expected(ids));  // the threads go on
}

TEST_P(DiskFileOfRows, RefusesAFileThatWasCutShort) {
  const TieredRows rows(open(), some_in_memory());
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) / 2);
  EXPECT_TRUE(base::fails_with([&] { fetched(rows, random_ids(3000)); }, {"with which the run began"}));
}

// Bytes that end early although the file's size is as before, as over a network.
TEST_P(DiskFileOfRows, RefusesAReadThatEndsEarly) {
  const TieredRows rows(open([](int, void*, std::size_t, off_t) -> ssize_t { return 0; }), some_in_memory());
  EXPECT_TRUE(base::fails_with([&] { fetched(rows, {1}); }, {"the end of the file"}));
}

TEST_P(DiskFileOfRows, RefusesAFileThatWasWrittenTo) {
  const TieredRows rows(open(), some_in_memory());
  const timespec times[2] = {{0, UTIME_OMIT}, {12345, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file_.c_str(), times, 0), 0);
  EXPECT_THROW(fetched(rows, {1}), base::Error);
}

// Of the same size: its rows would be taken for those that the mapped file describes.
TEST_P(DiskFileOfRows, RefusesAFileThatWasReplacedAfterItWasMapped) {
  const auto mapped = map();
  std::filesystem::copy_file(file_, file_ + ".new");
  std::filesystem::last_write_time(file_ + ".new", std::filesystem::last_write_time(file_) + 1s);
  std::filesystem::rename(file_ + ".new", file_);
  EXPECT_THROW(DiskRows(std::make_shared<const RowFile>(mapped), threads_), base::Error);
}

// A read that does not end: the wait does, and what the caller had is not written to any more.
TEST_P(DiskFileOfRows, DoesNotWaitForeverForADisk) {
  std::latch stuck(1);
  {
    const TieredRows rows(open(
                              [&](int file, void* to, std::size_t bytes, off_t offset) {
                                stuck.wait();
                                return ::pread(file, to, bytes, offset);
                              },
                              50ms),
                          some_in_memory());
    std::vector<std::byte> out(rows_.table.row_bytes());
    TieredFetch fetch = rows.fetch(std::vector<int64_t>{1}, out.data());
    EXPECT_FALSE(fetch.far.done());
    EXPECT_TRUE(base::fails_with([&] { fetch.far.finish(); }, {file_ + ": expected ", "within 0.05 s"}));
    stuck.count_down();
    threads_ = std::make_shared<ReadThreads>(1);  // the others have ended
    EXPECT_EQ(out, std::vector<std::byte>(out.size()));
  }
}

TEST_P(DiskFileOfRows, RefusesDamagedRows) {
  if (std::string(GetParam().codec) != "sparse") GTEST_SKIP() << "any bytes are rows of this codec";
  const TieredRows rows(open([](int file, void* to, std::size_t bytes, off_t offset) {
                          const ssize_t got = ::pread(file, to, bytes, offset);
                          std::memset(to, 0xff, bytes);
                          return got;
                        }),
                        some_in_memory());
  std::vector<int64_t> coded;
  for (const int64_t id : random_ids(3000)) {
    if (!ibp::locate(rows.far().encoded().ref, id).raw) coded.push_back(id);
  }
  EXPECT_THROW(fetched(rows, coded), base::Error);
}

INSTANTIATE_TEST_SUITE_P(Layouts, DiskFileOfRows,
                         testing::Values(DiskCase{"sparse", ibp::LayoutChoice::kPacked},
                                         DiskCase{"exponent", ibp::LayoutChoice::kSlots},
                                         DiskCase{"planes", ibp::LayoutChoice::kSlots}),
                         [](const auto& test) { return std::string(test.param.codec); });

TEST(DiskFile, ReadsThroughThePageCacheWhereTheFileSystemRefusesOtherReads) {
  const std::filesystem::path folder = "/dev/shm";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no tmpfs";
  const std::string path = folder / ("cohort-disk-file-" + std::to_string(getpid()));
  std::ofstream(path, std::ios::binary) << std::string(5000, 'x');
  {
    const DiskFile file(path);
    BlockBuffer buffer;
    const auto to = buffer.reserve(8192);
    file.read(0, to.first(8192), 5000);
    EXPECT_EQ(to[4999], std::byte{'x'});
    EXPECT_THROW(file.read(4096, to.first(4096), 2000), base::Error);
    const FileState state = state_of(path);
    EXPECT_EQ(state.bytes, 5000);
    file.demand(state);
    EXPECT_THROW(file.demand({5001, state.changed_ns}), base::Error);
  }
  std::filesystem::remove(path);
  EXPECT_THROW(DiskFile{path}, base::Error);
}

}  // namespace
}  // namespace cohort::cache
