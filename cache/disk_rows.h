// Encoded feature rows that stay in their file: read when a batch needs them.
//
// A read of a drive costs the same for any row of a block or less, so what counts is the number of reads: rows are read
// in the order of their places, those in the same or in neighbouring blocks together, by many threads at once
// (read_threads.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "cache/disk_file.h"
#include "cache/far_rows.h"

namespace cohort::cache {

// A read that takes longer ends the run.
inline constexpr std::chrono::seconds kDiskPatience{60};
// What is said then.
Patience disk_patience(const std::string& path, std::chrono::milliseconds limit = kDiskPatience);

class DiskRows final : public FarRows {
 public:
  // Throws base::Error when the file is gone, or is another than the one that was mapped.
  DiskRows(std::shared_ptr<const RowFile> rows, std::shared_ptr<ReadThreads> threads, ReadFunction read = ::pread,
           std::chrono::milliseconds patience = kDiskPatience);

  const DiskFile& disk() const { return *disk_; }
  // Throws base::Error when the file has changed since it was opened, too.
  FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take) const override {
    return fetch(ids, plane_a, std::move(take), Turn::kLast);
  }
  // Turn::kNext: for another machine, which does not wait until this one's batches ahead have been read.
  FarFetch fetch(std::span<const int64_t> ids, bool plane_a, TakeRow take, Turn turn) const;

 private:
  class Job;

  std::shared_ptr<const DiskFile> disk_;
  std::shared_ptr<ReadThreads> threads_;
  std::chrono::milliseconds patience_;
};

// Memory in which a thread reads rows of this table.
int64_t read_buffer_bytes(const ibp::EncodedRef& rows);

}  // namespace cohort::cache
