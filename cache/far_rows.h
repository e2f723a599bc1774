// Encoded feature rows that are not in host memory: they come from a disk (disk_rows.h), or from other machines and the
// disk (remote/remote_rows.h), when a batch needs them, as they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bits.h"
#include "cache/host_rows.h"
#include "cache/plan/cost.h"
#include "cache/read_threads.h"

namespace cohort::cache {

// Where rows are, of codec planes perhaps plane A alone.
inline ibp::EncodedRef planes_of(ibp::EncodedRef rows, bool plane_a) {
  if (plane_a) rows.plane_b = nullptr;
  return rows;
}

// What a fetch read.
struct FarUse {
  TierUses tiers{};        // rows and their stored bytes; no times
  int64_t reads = 0;       // of the drive, and requests to other machines
  int64_t read_bytes = 0;  // whole blocks, and whole replies
  int64_t rows() const;
  FarUse& operator+=(const FarUse& more);
};

// Called by reading threads, once for each row, with its number in the fetch and its stored form, which lasts as long
// as the call. Plane B of a row is where plane_b says.
using TakeRow = std::function<void(std::size_t i, const ibp::RowSpan& row)>;

// A fetch that is under way. Its end comes by finish(); without it, ~FarFetch() ends it.
class FarFetch {
 public:
  FarFetch() = default;  // nothing was fetched
  FarFetch(std::shared_ptr<ReadJob> job, FarUse use, Patience patience);
  ~FarFetch() { abandon(); }
  FarFetch(FarFetch&&) = default;
  FarFetch& operator=(FarFetch&& other) noexcept;
  // Ends when both have ended.
  void add(FarFetch&& other);

  bool done() const;
  // Waits until all rows were taken. Throws base::Error when a read failed, or none ended for so long.
  FarUse finish();

 private:
  struct Part {
    std::shared_ptr<ReadJob> job;
    Patience patience{};
  };
  void abandon() noexcept;

  std::vector<Part> parts_;
  FarUse use_{};
};

// Memory for rows as they are stored, each at a multiple of kStagedAlign, plane B of a row behind its plane A.
struct StageBuffer {
  std::byte* rows = nullptr;  // uint8 [row_bytes]
  int64_t row_bytes = 0;
  uint64_t* entries = nullptr;  // uint64 [most_rows], ibp::make_entry() of places in `rows`
  int64_t most_rows = 0;
};
inline constexpr uint32_t kStagedAlign = 16;

// Bytes that a row takes in a buffer, and on its way from another machine.
inline uint32_t staged_bytes(const ibp::EncodedRef& rows, const ibp::RowSpan& row) {
  return base::round_up(ibp::joined_bytes(rows, row), kStagedAlign);
}
// The entry of a row that is `offset` bytes behind the begin of a buffer.
inline uint64_t staged_entry(const ibp::EncodedRef& rows, const ibp::RowSpan& row, int64_t offset) {
  return ibp::make_entry(static_cast<uint64_t>(offset), base::round_up(ibp::joined_bytes(rows, row), 4u), row.raw);
}

// A fetch of the first rows of a list into a buffer.
struct StagedFetch {
  FarFetch fetch;
  int64_t count = 0;  // rows that have room there
};

// A mapped file of encoded rows, and in memory what says where in it rows are: its pages may be given back, and those
// of a file that is cut short must not be touched.
struct RowFile {
  explicit RowFile(std::shared_ptr<const HostRows> mapped);
  uint64_t offset_of(const std::byte* at) const { return static_cast<uint64_t>(at - rows->pages()->data()); }

  std::shared_ptr<const HostRows> rows;
  ibp::EncodedRows encoded = rows->encoded();
};

// Asks for the memory that ibp::locate() reads.
inline void prefetch_place(const ibp::EncodedRef& rows, int64_t row) {
  if (rows.layout == ibp::Layout::kPacked) return __builtin_prefetch(rows.entries + row);
  if (rows.lengths) return __builtin_prefetch(rows.lengths + row);
  __builtin_prefetch(rows.flags + row / 32);
}

// Memory of what says where rows are.
int64_t directory_bytes(const ibp::EncodedRef& rows);

class FarRows {
 public:
  explicit FarRows(std::shared_ptr<const RowFile> file) : file_(std::move(file)) {}
  virtual ~FarRows() = default;

  // As the mapped file has them, where reading them takes memory; where rows are costs none.
  const ibp::EncodedRows& encoded() const { return file_->encoded; }
  const std::shared_ptr<const RowFile>& file() const { return file_; }
  // Of the file of encoded rows.
  const std::string& path() const { return file_->rows->file(); }
  // Gives pages of the mapped file back to the system.
  void release_pages() const { file_->rows->pages()->release(); }

  // Begins to fetch these rows, of codec planes perhaps plane A alone. `take` is not called any more when finish() has
  // returned or thrown. Throws base::Error when they cannot come.
  virtual FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const = 0;
  // The same into a buffer, for as many of `ids` as find room there; its entries, in the order of `ids`, are written at
  // once, the rows until the fetch has ended.
  virtual StagedFetch stage(std::span<const uint32_t> ids, bool plane_a, const StageBuffer& buffer) const;

 protected:
  std::shared_ptr<const RowFile> file_;
};

}  // namespace cohort::cache
