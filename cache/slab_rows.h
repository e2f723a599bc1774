// Feature rows in the form in which they are kept: coded or raw, whatever the host has of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/uninitialized_vector.h"
#include "cache/host_rows.h"
#include "cache/plan/plan.h"

namespace cohort::cache {

// What the host has of a data set's feature rows: at least one of the two.
struct FeatureRows {
  RowShape shape;
  int64_t row_bytes = 0;                    // of a decoded row
  const std::byte* raw = nullptr;           // [num_rows, row_bytes]
  std::shared_ptr<const HostRows> encoded;  // the file of cohort dataset prepare
};

// Bytes that rows take where they are kept.
struct RowSizes {
  int64_t row_bytes = 0;                     // of every row, when `each` is empty
  base::UninitializedVector<uint32_t> each;  // uint32 [num_rows], multiples of 4
  RowBytes ref() const { return {row_bytes, each.empty() ? nullptr : each.data()}; }
};

// Throws base::Error for rows above 65536 bytes.
void demand_row_of_gpu(int64_t row_bytes);

// Rows are stored as the file has them; without a file a codec is fitted to a sample and rows are encoded when they are
// read (RowReader). Raw rows are stored whole.
class SlabRows {
 public:
  // Throws as demand_row_of_gpu().
  SlabRows(FeatureRows rows, bool coded);
  // The same, read from another place of these rows.
  SlabRows reading(FeatureRows rows) const;
  // The same rows as the host has them encoded; none: it has them raw alone.
  std::optional<SlabRows> as_encoded() const;

  const ibp::Profile& profile() const { return profile_; }  // decodes the rows
  uint32_t max_coded_bytes() const { return max_coded_bytes_; }
  // A row begins at a multiple of this.
  int64_t align_bytes() const { return align_bytes_; }
  // The most bytes from one row to the next, above 0. Both planes of a short row take more than the row itself.
  int64_t most_bytes() const;
  // What a slab needs for each row; where they are encoded on reading, the mean of a sample.
  RowSizes sizes() const;

 private:
  friend class RowReader;

  FeatureRows rows_;
  bool coded_;
  ibp::Profile profile_;
  uint32_t max_coded_bytes_ = 0;
  int64_t align_bytes_ = kRawRowAlign;
  double mean_bytes_ = 0;  // of a sample
};

// Reads rows in the form in which they are kept. One a thread.
class RowReader {
 public:
  // `from` is kept by reference.
  explicit RowReader(const SlabRows& from) : from_(from) {}
  // The stored form of these rows, [n]: valid until the next call.
  std::span<const ibp::RowSpan> read(std::span<const uint32_t> nodes);

 private:
  void copy_raw(std::span<const uint32_t> nodes);

  const SlabRows& from_;
  std::vector<ibp::RowSpan> spans_;
  std::vector<std::byte> buffer_;  // [n, row_bytes]
  ibp::EncodedRows chunk_;
};

}  // namespace cohort::cache
