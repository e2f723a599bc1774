// Encoded feature rows that stay in their file: read when a batch needs them.
//
// A read of a drive costs the same for any row of a block or less, so what counts is the number of reads: rows are read
// in the order of their places, those in the same or in neighbouring blocks together, by many threads at once
// (read_threads.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "cache/disk_file.h"
#include "cache/host_rows.h"
#include "cache/read_threads.h"

namespace cohort::cache {

// A read that takes longer ends the run.
inline constexpr std::chrono::seconds kDiskPatience{60};

// What a fetch read.
struct DiskUse {
  int64_t rows = 0;
  int64_t bytes = 0;       // of these rows, as stored
  int64_t reads = 0;       // of the drive
  int64_t read_bytes = 0;  // whole blocks
};

// Called by reading threads, once for each row, with its number in the fetch and its stored form, which lasts as long
// as the call. Plane B of a row is where plane_b says.
using TakeRow = std::function<void(std::size_t i, const ibp::RowSpan& row)>;

// A fetch that is under way. Its end comes by finish(); without it, ~DiskFetch() ends it.
class DiskFetch {
 public:
  DiskFetch() = default;  // nothing was fetched
  DiskFetch(std::shared_ptr<ReadJob> job, std::string place, DiskUse use, std::chrono::milliseconds patience)
      : job_(std::move(job)), place_(std::move(place)), use_(use), patience_(patience) {}
  ~DiskFetch();
  DiskFetch(DiskFetch&&) = default;
  DiskFetch& operator=(DiskFetch&& other) noexcept;

  bool done() const { return !job_ || job_->done(); }
  // Waits until all rows were taken. Throws base::Error when a read failed, or none ended for so long.
  DiskUse finish();

 private:
  std::shared_ptr<ReadJob> job_;
  std::string place_;
  DiskUse use_{};
  std::chrono::milliseconds patience_{};
};

class DiskRows {
 public:
  // `rows`: of HostRows::open(); where each row is, is found there. Throws base::Error when their file is gone, or is
  // another.
  DiskRows(std::shared_ptr<const HostRows> rows, std::shared_ptr<ReadThreads> threads, ReadFunction read = ::pread,
           std::chrono::milliseconds patience = kDiskPatience);

  // As the mapped file has them, where reading them takes memory.
  const ibp::EncodedRows& encoded() const;
  const DiskFile& file() const;
  // Bytes of the file that stay in memory: what says where rows are.
  int64_t directory_bytes() const;
  // Gives pages of the mapped file back to the system.
  void release_pages() const;

  // Begins to read these rows, of codec planes perhaps plane A alone. `take` is not called any more when finish() has
  // returned or thrown. Throws base::Error when the file has changed since it was opened.
  DiskFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const;

 private:
  struct Table;
  class Job;
  std::shared_ptr<const Table> table_;
  std::shared_ptr<ReadThreads> threads_;
  std::chrono::milliseconds patience_;
};

// Memory in which a thread reads rows of this table.
int64_t read_buffer_bytes(const ibp::EncodedRef& rows);

}  // namespace cohort::cache
