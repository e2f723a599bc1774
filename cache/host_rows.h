// Encoded feature rows in host memory: what the sampler fetches from when the rows are kept compressed there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/mapping.h"
#include "base/uninitialized_vector.h"
#include "cache/disk_file.h"
#include "ibp/ibp.h"

namespace cohort::cache {

// What the rows of a data set must be.
struct RowShape {
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  std::string dtype;  // as ibp names it
};

class HostRows {
 public:
  // Maps a file of encoded rows and verifies all of it (verify_data = false: all but the rows). Throws base::Error for
  // damage and for rows of another shape.
  static HostRows open(const std::filesystem::path& file, const RowShape& shape, bool verify_data = true);
  explicit HostRows(ibp::EncodedRows rows) : rows_(std::move(rows)) {}

  // out[i] = row ids[i], decoded: [n, row_bytes]; plane_a: rows of codec planes as plane A alone tells them. Throws
  // base::Error on an id outside the table.
  void fetch(std::span<const int64_t> ids, std::byte* out, bool plane_a = false) const {
    const bool has_planes = rows_.profile.codec == ibp::Codec::kPlanes;
    ibp::fetch(plane_a && has_planes ? ibp::plane_a_of(rows_) : rows_, ids, out);
  }
  // All rows: [num_rows, row_bytes].
  void decode(std::byte* out) const { ibp::decode(rows_, out); }
  // Bytes that a fetch of these rows reads: coded rows by their length or their slot, others whole.
  int64_t stored_bytes(std::span<const int64_t> ids, bool plane_a = false) const;
  // The same of one row, where all take as much; 0 where they do not.
  int64_t stored_bytes_of_any() const;
  // The same of each row: uint32 [num_rows].
  base::UninitializedVector<uint32_t> stored_bytes_of_each() const;

  const ibp::EncodedRows& encoded() const { return rows_; }
  // The file that they are mapped from, and its pages; empty, and null, for rows in memory.
  const std::string& file() const { return file_; }
  const base::Mapping* pages() const { return pages_.get(); }
  // The file's when it was mapped.
  const FileState& state() const { return state_; }
  int64_t num_rows() const { return rows_.ref.num_rows; }
  int64_t row_bytes() const { return rows_.ref.row_bytes; }  // of a decoded row

 private:
  ibp::EncodedRows rows_;
  std::string file_;
  FileState state_;
  std::shared_ptr<const base::Mapping> pages_;
};

// Checks all of a file of encoded rows, a piece at a time: little of it is in memory at once. Throws base::Error for
// damage.
void verify_rows(const std::string& file);

}  // namespace cohort::cache
