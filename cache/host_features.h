// All feature rows in host memory: one copy that every GPU of the process reads in place.
#pragma once

#include <cstdint>

#include "base/host_table.h"
#include "cache/far_rows.h"
#include "cache/row_bits.h"
#include "cache/slab_rows.h"
#include "ibp/gpu.h"

namespace cohort::cache {

class HostFeatures {
 public:
  // Bytes that it will take.
  static int64_t bytes_of(const FeatureRows& rows, bool coded);
  // Copies the rows: `coded` as the file has them, else decoded, each at a multiple of 4 bytes.
  HostFeatures(const FeatureRows& rows, bool coded);

  // Copies those rows that are to be in memory (counted); row i is then the i-th of them.
  HostFeatures(const FarRows& all, const RowBits& in_memory);

  bool coded() const { return coded_; }
  const ibp::EncodedRows& encoded() const { return encoded_; }  // raw: only the profile
  const std::byte* data() const { return memory_.data(); }      // raw: [num_rows, stride_bytes]
  int64_t stride_bytes() const { return stride_bytes_; }
  uint32_t step_bytes() const;  // every row begins at a multiple of this; divides 128
  int64_t num_rows() const { return num_rows_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_.bytes()); }
  void open_to_gpu() const { memory_.open_to_gpu(); }  // before kernels of the current GPU read them
  // The same rows, read from here as far as they are here: memory is faster to read in any order than files.
  FeatureRows in_place_of(FeatureRows rows) const;

 private:
  void copy_coded(const HostRows& rows);
  void copy_raw(const FeatureRows& rows);

  bool coded_;
  bool is_part_ = false;  // other rows are far
  int64_t num_rows_, stride_bytes_ = 0;
  base::HostTable memory_;
  ibp::EncodedRows encoded_;
};

}  // namespace cohort::cache
