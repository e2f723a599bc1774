// Encoded feature rows that are not in host memory: they come from a disk (disk_rows.h) or from the memory of other
// machines (remote/remote_rows.h) when a batch needs them, as they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "cache/host_rows.h"
#include "cache/plan/cost.h"
#include "cache/read_threads.h"

namespace cohort::cache {

// What a fetch read.
struct FarUse {
  int64_t rows = 0;
  int64_t bytes = 0;       // of these rows, as stored
  int64_t reads = 0;       // of the drive, or requests to other machines
  int64_t read_bytes = 0;  // whole blocks, or whole replies
};

// Called by reading threads, once for each row, with its number in the fetch and its stored form, which lasts as long
// as the call. Plane B of a row is where plane_b says.
using TakeRow = std::function<void(std::size_t i, const ibp::RowSpan& row)>;

// A fetch that is under way. Its end comes by finish(); without it, ~FarFetch() ends it.
class FarFetch {
 public:
  FarFetch() = default;  // nothing was fetched
  FarFetch(std::shared_ptr<ReadJob> job, FarUse use, Patience patience)
      : job_(std::move(job)), use_(use), patience_(std::move(patience)) {}
  ~FarFetch();
  FarFetch(FarFetch&&) = default;
  FarFetch& operator=(FarFetch&& other) noexcept;

  bool done() const { return !job_ || job_->done(); }
  // Waits until all rows were taken. Throws base::Error when a read failed, or none ended for so long.
  FarUse finish();

 private:
  std::shared_ptr<ReadJob> job_;
  FarUse use_{};
  Patience patience_{};
};

// A mapped file of encoded rows, and in memory what says where in it rows are: its pages may be given back, and those
// of a file that is cut short must not be touched.
struct RowFile {
  explicit RowFile(std::shared_ptr<const HostRows> mapped);
  uint64_t offset_of(const std::byte* at) const { return static_cast<uint64_t>(at - rows->pages()->data()); }

  std::shared_ptr<const HostRows> rows;
  ibp::EncodedRows encoded = rows->encoded();
};

class FarRows {
 public:
  virtual ~FarRows() = default;

  // As the mapped file has them, where reading them takes memory; where rows are costs none.
  const ibp::EncodedRows& encoded() const { return row_file().encoded; }
  // As what it is counted.
  virtual Tier tier() const = 0;
  // Of the file of encoded rows.
  const std::string& path() const { return row_file().rows->file(); }
  // Memory of what says where rows are.
  int64_t directory_bytes() const;
  // Gives pages of the mapped file back to the system.
  void release_pages() const { row_file().rows->pages()->release(); }

  // Begins to fetch these rows, of codec planes perhaps plane A alone. `take` is not called any more when finish() has
  // returned or thrown. Throws base::Error when they cannot come.
  virtual FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const = 0;

 private:
  virtual const RowFile& row_file() const = 0;
};

}  // namespace cohort::cache
