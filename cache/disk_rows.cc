#include "cache/disk_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "base/check.h"

namespace cohort::cache {
namespace {

constexpr uint64_t kBlockBytes = DiskFile::kBlockBytes;
constexpr uint64_t kMostBytes = 32 << 10;   // that rows are read together
constexpr std::size_t kFewDiskRows = 4096;  // not worth waking threads for

// Consecutive blocks of the file.
struct Blocks {
  uint64_t offset = 0;
  uint64_t end = 0;  // of the rows in them
  uint64_t bytes() const { return base::round_up(end, kBlockBytes) - offset; }
  uint64_t needed() const { return end - offset; }
};

Blocks blocks_of(uint64_t begin, uint64_t bytes) { return {begin / kBlockBytes * kBlockBytes, begin + bytes}; }

// Whether `more`, which begins behind the begin of `blocks`, is read together with them.
bool joins(const Blocks& blocks, const Blocks& more) {
  return more.offset <= blocks.offset + blocks.bytes() && more.end <= blocks.offset + kMostBytes;
}

// A read of the drive; of codec planes one of each plane.
struct Read {
  Blocks a, b;            // of plane B: no bytes
  std::size_t first = 0;  // of the rows in it, in the order of their places
  std::size_t count = 0;
};

uint32_t longest_row(const ibp::EncodedRef& rows) {
  return std::max(ibp::longest_coded_bytes(rows), base::round_up(rows.row_bytes, uint32_t{16}));
}

uint64_t room_for(uint64_t longest) { return std::max(kMostBytes, base::round_up(longest, kBlockBytes) + kBlockBytes); }

}  // namespace

int64_t read_buffer_bytes(const ibp::EncodedRef& rows) {
  const uint64_t of_b = rows.plane_b_stride_bytes > 0 ? room_for(rows.plane_b_stride_bytes) : 0;
  return static_cast<int64_t>(room_for(longest_row(rows)) + of_b);
}

Patience disk_patience(const std::string& path, std::chrono::milliseconds limit) {
  return {path, limit, "the disk does not answer: see the kernel's log: dmesg"};
}

class DiskRows::Job final : public ReadJob {
 public:
  Job(const DiskRows& from, ibp::EncodedRef rows, std::vector<int64_t> ids, std::vector<uint32_t> order,
      std::vector<Read> reads, TakeRow take)
      : ReadJob(reads.size()),
        file_(from.file_),
        disk_(from.disk_),
        rows_(rows),
        ids_(std::move(ids)),
        order_(std::move(order)),
        reads_(std::move(reads)),
        take_(std::move(take)),
        b_at_(room_for(longest_row(rows_))) {}

 protected:
  void read(std::size_t i, BlockBuffer& buffer) override {
    const Read& of = reads_[i];
    const std::span<std::byte> to = buffer.reserve(static_cast<std::size_t>(read_buffer_bytes(rows_)));
    disk_->read(of.a.offset, to.first(of.a.bytes()), of.a.needed());
    if (of.b.end > 0) disk_->read(of.b.offset, to.subspan(b_at_, of.b.bytes()), of.b.needed());
  }

  void deliver(std::size_t i, BlockBuffer& buffer) override {
    const Read& of = reads_[i];
    const std::byte* a = buffer.reserve(0).data();
    for (std::size_t at = of.first; at < of.first + of.count; ++at) {
      ibp::RowSpan row = ibp::locate(rows_, ids_[order_[at]]);
      row.begin = a + (file_->offset_of(row.begin) - of.a.offset);
      if (row.plane_b) row.plane_b = a + b_at_ + (file_->offset_of(row.plane_b) - of.b.offset);
      take_(order_[at], row);
    }
  }

 private:
  std::shared_ptr<const RowFile> file_;
  std::shared_ptr<const DiskFile> disk_;
  ibp::EncodedRef rows_;
  std::vector<int64_t> ids_;
  std::vector<uint32_t> order_;  // of ids_, by their places
  std::vector<Read> reads_;
  TakeRow take_;
  std::size_t b_at_;  // in a buffer
};

DiskRows::DiskRows(std::shared_ptr<const RowFile> rows, std::shared_ptr<ReadThreads> threads, ReadFunction read,
                   std::chrono::milliseconds patience)
    : FarRows(std::move(rows)),
      disk_(std::make_shared<const DiskFile>(path(), std::move(read))),
      threads_(std::move(threads)),
      patience_(patience) {
  disk_->demand(file_->rows->state());
}

FarFetch DiskRows::fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take, Turn turn) const {
  if (ids.empty()) return {};
  disk_->demand_unchanged();
  const ibp::EncodedRef rows = planes_of(encoded().ref, plane_a);
  std::vector<std::pair<uint64_t, uint32_t>> places(ids.size());  // in the file; number in the fetch
#pragma omp parallel for schedule(static) if (ids.size() > std::size_t{kFewDiskRows})
  for (std::size_t i = 0; i < ids.size(); ++i) {
    places[i] = {file_->offset_of(ibp::locate(rows, ids[i]).begin), static_cast<uint32_t>(i)};
  }
  std::ranges::sort(places);
  std::vector<uint32_t> order(ids.size());
  std::vector<Read> reads;
  FarUse use;
  TierUse& tier = use.tiers[kDiskTier];
  tier.rows = std::ssize(ids);
  for (std::size_t at = 0; at < places.size(); ++at) {
    order[at] = places[at].second;
    const ibp::RowSpan row = ibp::locate(rows, ids[order[at]]);
    const Blocks a = blocks_of(places[at].first, row.bytes);
    const Blocks b = row.plane_b ? blocks_of(file_->offset_of(row.plane_b), rows.plane_b_stride_bytes) : Blocks{};
    tier.bytes += ibp::joined_bytes(rows, row);
    const bool joined = !reads.empty() && joins(reads.back().a, a) && (b.end > 0) == (reads.back().b.end > 0) &&
                        (b.end == 0 || joins(reads.back().b, b));
    if (!joined) reads.push_back({.a = a, .b = b, .first = at});
    Read& read = reads.back();
    read.a.end = std::max(read.a.end, a.end);
    read.b.end = std::max(read.b.end, b.end);
    ++read.count;
  }
  for (const Read& read : reads) {
    use.reads += read.b.end > 0 ? 2 : 1;
    use.read_bytes += static_cast<int64_t>(read.a.bytes() + (read.b.end > 0 ? read.b.bytes() : 0));
  }
  auto job = std::make_shared<Job>(*this, rows, std::vector<int64_t>(ids.begin(), ids.end()), std::move(order),
                                   std::move(reads), std::move(take));
  threads_->start(job, turn);
  return {std::move(job), use, disk_patience(path(), patience_)};
}

}  // namespace cohort::cache
