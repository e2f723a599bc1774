#include "cache/staged_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "cache/disk_rows.h"
#include "tests/base/fails.h"
#include "tests/cache/file_of_rows.h"

namespace cohort::cache {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kRowsOfBuffer = 40;

// Bytes of the longest of these rows in a buffer.
uint32_t staged_longest(const ibp::EncodedRef& encoded, const std::vector<uint32_t>& rows) {
  uint32_t longest = 0;
  for (const uint32_t row : rows) longest = std::max(longest, staged_bytes(encoded, ibp::locate(encoded, row)));
  return longest;
}

// Stands for a GPU, which decodes from a buffer some time after it was told to.
struct LateDecoder final : StagedReader::Decoder {
  bool is_free(std::size_t buffer) override {
    if (looks_left[buffer] > 0 && !is_busy) --looks_left[buffer];
    return looks_left[buffer] == 0;
  }
  std::vector<int> looks_left;
  std::atomic<bool> is_busy = false;  // with other things: no buffer comes free
};

struct ReaderCase {
  const char* codec;
  std::size_t num_buffers;
};

class Staged : public FileOfRows, public testing::WithParamInterface<ReaderCase> {
 protected:
  // Rows as the batch wants them, decoded from the buffers.
  class Batch final : public StagedBatch {
   public:
    Batch(Staged& test, std::vector<uint32_t> rows, bool plane_a = false, bool known = true)
        : StagedBatch(plane_a), test_(test), rows_(std::move(rows)), known_(known) {
      out = test.room_for(rows_);
    }
    void tell() { known_ = true; }
    const std::vector<uint32_t>& wanted() const { return rows_; }
    std::vector<std::byte> out;
    std::atomic<int> num_ends = 0;
    std::atomic<int64_t> num_decoded = 0;

   protected:
    std::optional<std::span<const uint32_t>> rows() override {
      return known_ ? std::optional(std::span<const uint32_t>(rows_)) : std::nullopt;
    }
    void decode(const StagedRows& staged) override {
      EXPECT_EQ(staged.first, next_);
      next_ += staged.count;
      num_decoded += staged.count;
      const StageBuffer& buffer = test_.buffers_[staged.buffer];
      ibp::decode_stored(test_.profile_, std::span(buffer.entries, static_cast<std::size_t>(staged.count)),
                         {buffer.rows, static_cast<std::size_t>(buffer.row_bytes)},
                         out.data() + static_cast<std::size_t>(staged.first) * test_.rows_.table.row_bytes());
      test_.decoder_.looks_left[staged.buffer] = 3;
    }
    void end() override {
      EXPECT_EQ(next_, std::ssize(rows_));
      ++num_ends;
    }

   private:
    Staged& test_;
    std::vector<uint32_t> rows_;
    std::atomic<bool> known_;
    int64_t next_ = 0;
  };

  Staged() : FileOfRows(GetParam().codec, ibp::LayoutChoice::kAuto) {
    decoder_.looks_left.resize(GetParam().num_buffers);
    for (std::size_t i = 0; i < GetParam().num_buffers; ++i) {
      memory_.emplace_back(16 << 10);
      entries_.emplace_back(kRowsOfBuffer);
      auto* begin = reinterpret_cast<std::byte*>(memory_[i].data());
      buffers_.push_back({begin, std::ssize(memory_[i]) * 8, entries_[i].data(), kRowsOfBuffer});
    }
  }

  std::shared_ptr<const DiskRows> open(ReadFunction read = ::pread) {
    return std::make_shared<const DiskRows>(std::make_shared<const RowFile>(map()), threads_, std::move(read));
  }
  static std::vector<uint32_t> some_rows(std::size_t count, uint64_t seed) { return random_ids<uint32_t>(count, seed); }
  void check(const Batch& batch) const {
    ASSERT_EQ(batch.use().rows(), std::ssize(batch.wanted()));
    EXPECT_EQ(batch.out, expected(batch.wanted()));
    EXPECT_EQ(batch.num_ends, 1);
  }
  static void wait_for(const StagedBatch& batch) {
    while (!batch.ended()) std::this_thread::sleep_for(1ms);
  }

  std::shared_ptr<ReadThreads> threads_ = std::make_shared<ReadThreads>(4);
  std::vector<std::vector<uint64_t>> memory_, entries_;
  std::vector<StageBuffer> buffers_;
  LateDecoder decoder_;
};

TEST_P(Staged, GivesEachBatchItsRows) {
  StagedReader reader(open(), buffers_, decoder_);
  std::vector<std::shared_ptr<Batch>> batches;
  for (const std::size_t count : {300, 1, 0, 40, 41, 80, 0, 999}) {
    batches.push_back(std::make_shared<Batch>(*this, some_rows(count, count)));
    reader.start(batches.back());
  }
  for (const auto& batch : batches) {
    wait_for(*batch);
    check(*batch);
  }
}

TEST_P(Staged, WaitsUntilTheRowsOfABatchAreKnown) {
  StagedReader reader(open(), buffers_, decoder_);
  const auto first = std::make_shared<Batch>(*this, some_rows(100, 1), false, false);
  const auto second = std::make_shared<Batch>(*this, some_rows(100, 2));
  reader.start(first);
  reader.start(second);
  EXPECT_FALSE(first->ended());
  EXPECT_FALSE(second->ended());
  first->tell();
  wait_for(*second);
  check(*first);
  check(*second);
}

// The reads do not wait for a GPU that is busy, as long as there are buffers, also with rows of the next batch.
TEST_P(Staged, FillsAllBuffersWhileNoneComesFree) {
  decoder_.is_busy = true;
  StagedReader reader(open(), buffers_, decoder_);
  const auto first = std::make_shared<Batch>(*this, some_rows(kRowsOfBuffer, 1));
  const auto second = std::make_shared<Batch>(*this, some_rows(10 * kRowsOfBuffer, 2));
  reader.start(first);
  reader.start(second);
  const int64_t expected = static_cast<int64_t>(buffers_.size() - 1) * kRowsOfBuffer;
  for (int i = 0; i < 60'000 && second->num_decoded < expected; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(first->num_decoded, kRowsOfBuffer);
  EXPECT_EQ(second->num_decoded, expected);
  EXPECT_FALSE(second->ended());
  decoder_.is_busy = false;
  wait_for(*second);
  check(*first);
  check(*second);
}

TEST(StageBuffers, AreTwoOrMore) {
  EXPECT_EQ(num_stage_buffers(256 << 20, 8 << 20), 32u);
  EXPECT_EQ(num_stage_buffers(64 << 20, kBufferBytesOfDisks), 2u);
  EXPECT_EQ(num_stage_buffers(1 << 17, 8 << 20), 2u);
}

// Buffers of each length, by the bytes between two rows: nothing is written behind their ends.
TEST_P(Staged, StaysWithinItsBuffer) {
  constexpr std::byte kUntouched{0xA5};
  constexpr std::size_t kBehind = 4096;
  const auto rows = open();
  const std::vector<uint32_t> wanted = some_rows(kRowsOfBuffer, 5);
  const std::vector<StageBuffer> whole = buffers_;
  const int64_t longest = static_cast<int64_t>(staged_longest(rows->encoded().ref, wanted));
  for (int64_t bytes = longest; bytes <= longest + 1024; bytes += kStagedAlign) {
    StageBuffer buffer = whole[0];
    buffer.row_bytes = bytes;
    std::fill_n(buffer.rows + bytes, kBehind, kUntouched);
    StagedFetch staged = rows->stage(wanted, false, buffer);
    staged.fetch.finish();
    ASSERT_GE(staged.count, 1);
    const auto behind = std::span(buffer.rows + bytes, kBehind);
    ASSERT_TRUE(std::ranges::all_of(behind, [&](std::byte each) { return each == kUntouched; })) << bytes;
    for (int64_t i = 0; i < staged.count; ++i) {
      const uint64_t entry = buffer.entries[i];
      const uint64_t end = ibp::entry_offset_bytes(entry) + ibp::entry_bytes(entry);
      ASSERT_LE(static_cast<int64_t>(end), bytes);
    }
  }
  StageBuffer few = whole[0];
  few.most_rows = 3;
  buffers_[0].entries[3] = 77;
  StagedFetch staged = rows->stage(wanted, false, few);
  staged.fetch.finish();
  EXPECT_EQ(staged.count, 3);
  EXPECT_EQ(few.entries[3], 77u);
}

TEST_P(Staged, FailsAllBatchesWhenAReadFails) {
  std::atomic<int> reads = 0;
  StagedReader reader(open([&](int file, void* to, std::size_t bytes, off_t offset) -> ssize_t {
                        if (++reads != 30) return ::pread(file, to, bytes, offset);
                        errno = EIO;
                        return -1;
                      }),
                      buffers_, decoder_);
  const auto first = std::make_shared<Batch>(*this, some_rows(500, 1));
  const auto second = std::make_shared<Batch>(*this, some_rows(500, 2));
  reader.start(first);
  reader.start(second);
  wait_for(*second);
  EXPECT_THROW(second->use(), base::Error);
  const auto third = std::make_shared<Batch>(*this, some_rows(1, 3));
  reader.start(third);
  wait_for(*third);
  EXPECT_TRUE(base::fails_with([&] { third->use(); }, {file_ + ", offset "}));
}

TEST_P(Staged, EndsWithBatchesUnderWay) {
  const auto never = std::make_shared<Batch>(*this, some_rows(10, 1), false, false);
  {
    StagedReader reader(open(), buffers_, decoder_);
    reader.start(std::make_shared<Batch>(*this, some_rows(900, 2)));
    reader.start(never);
  }
  EXPECT_FALSE(never->ended());
}

INSTANTIATE_TEST_SUITE_P(Codecs, Staged,
                         testing::Values(ReaderCase{"sparse", 2}, ReaderCase{"exponent", 2}, ReaderCase{"planes", 2},
                                         ReaderCase{"sparse", 7}, ReaderCase{"exponent", 3}),
                         [](const auto& test) {
                           return std::string(test.param.codec) + std::to_string(test.param.num_buffers);
                         });

}  // namespace
}  // namespace cohort::cache
