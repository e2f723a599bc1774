#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "cache/disk_rows.h"
#include "cache/probe.h"

namespace cohort::cache {
namespace {

constexpr std::size_t kPieceReads = 64 * kReadThreads;  // that are started together
constexpr std::size_t kPiecesAtOnce = 2;
constexpr int kTurns = 4;

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Random blocks of a file.
class BlocksJob final : public ReadJob {
 public:
  BlocksJob(std::shared_ptr<const DiskFile> file, int64_t num_blocks, uint64_t piece)
      : ReadJob(kPieceReads), file_(std::move(file)), num_blocks_(num_blocks), piece_(piece) {}

 protected:
  void read(std::size_t i, BlockBuffer& buffer) override {
    const uint64_t block = base::random_below(static_cast<uint64_t>(num_blocks_), base::key_of(1), piece_, i);
    const auto to = buffer.reserve(DiskFile::kBlockBytes).first(DiskFile::kBlockBytes);
    file_->read(block * DiskFile::kBlockBytes, to, to.size());
  }
  void deliver(std::size_t, BlockBuffer&) override {}

 private:
  std::shared_ptr<const DiskFile> file_;
  int64_t num_blocks_;
  uint64_t piece_;
};

// What is under way of one kind of reads: begin() starts a piece, end() waits for the oldest and says what it had.
struct Reads {
  std::function<void()> begin;
  std::function<FarUse()> end;
};

struct Sum {
  double seconds = 0;
  int64_t reads = 0, rows = 0;
  double rate(int64_t count) const { return static_cast<double>(count) / seconds; }
};

void measure(const Reads& reads, Seconds seconds, Sum& sum) {
  const auto start = Clock::now();
  std::size_t num_begun = 0, num_ended = 0;
  while (num_begun == 0 || num_ended < num_begun) {
    const bool goes_on = num_begun == 0 || Clock::now() - start < seconds;
    while (goes_on && num_begun - num_ended < kPiecesAtOnce) {
      reads.begin();
      ++num_begun;
    }
    const FarUse use = reads.end();
    ++num_ended;
    sum.reads += use.reads;
    sum.rows += use.rows();
  }
  sum.seconds += Seconds(Clock::now() - start).count();
}

}  // namespace

DiskRates probe_disk(const std::string& path, Seconds seconds) {
  const ibp::EncodedRows seen = ibp::load(path, false);
  const RowShape shape{seen.ref.num_rows, seen.profile.num_columns, ibp::name_of(seen.profile.dtype)};
  const auto mapped = std::make_shared<const HostRows>(HostRows::open(path, shape, false));
  const auto num_blocks = static_cast<int64_t>(mapped->pages()->bytes() / DiskFile::kBlockBytes);
  if (num_blocks == 0 || shape.num_rows == 0) {
    throw base::Error({path, "rows of a block at least", std::to_string(mapped->pages()->bytes()) + " bytes", ""});
  }
  const auto threads = std::make_shared<ReadThreads>();
  const auto file = std::make_shared<const DiskFile>(path);
  const DiskRows rows(std::make_shared<const RowFile>(mapped), threads);

  uint64_t piece = 0;
  std::deque<std::shared_ptr<ReadJob>> jobs;
  const Reads blocks{[&] {
                       jobs.push_back(std::make_shared<BlocksJob>(file, num_blocks, piece++));
                       threads->start(jobs.back());
                     },
                     [&]() -> FarUse {
                       jobs.front()->wait(disk_patience(path));
                       jobs.pop_front();
                       return {.reads = kPieceReads};
                     }};
  std::deque<FarFetch> fetches;
  const Reads random_rows{
      [&] {
        std::vector<int64_t> ids(std::min<std::size_t>(kPieceReads, static_cast<std::size_t>(shape.num_rows)));
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ids[i] = static_cast<int64_t>(
              base::random_below(static_cast<uint64_t>(shape.num_rows), base::key_of(2), piece, i));
        }
        ++piece;
        fetches.push_back(rows.fetch(ids, false, [](std::size_t, const ibp::RowSpan&) {}));
      },
      [&] {
        const FarUse use = fetches.front().finish();
        fetches.pop_front();
        return use;
      }};
  Sum of_blocks, of_rows;
  for (int turn = 0; turn < kTurns; ++turn) {
    measure(blocks, seconds / kTurns, of_blocks);
    measure(random_rows, seconds / kTurns, of_rows);
  }
  return {file->is_direct(), of_blocks.rate(of_blocks.reads), of_rows.rate(of_rows.reads), of_rows.rate(of_rows.rows)};
}

}  // namespace cohort::cache
