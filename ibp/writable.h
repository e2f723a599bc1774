// Encoded rows that change in place, in host memory. Internal to ibp/.
#pragma once

#include <span>
#include <vector>

#include "base/mapping.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {

// A copy of encoded rows in which put() replaces rows. Each row has a home: its slot, or as many bytes as it had when
// it was packed. A new row that does not fit its home is stored raw in the overflow area; a later one that fits goes
// home, and the next row in need takes the place that it leaves. The result is rows of the packed layout, for
// everything that takes those.
class WritableRows {
 public:
  explicit WritableRows(const EncodedRows& rows);
  // Rows of zeros, with homes of `slot_bytes`, a multiple of 4. Memory is taken when rows are put.
  WritableRows(const Profile& profile, int64_t num_rows, uint32_t slot_bytes);
  WritableRows(const WritableRows&) = delete;
  WritableRows& operator=(const WritableRows&) = delete;

  // Row ids[i] becomes rows.row(i). Throws Error, and changes nothing, on an id outside 0..num_rows-1, on one that
  // occurs twice and on rows of another dtype or width. Not beside another call or a fetch.
  void put(std::span<const int64_t> ids, const RowTable& rows);

  // As they are now; valid as long as this object.
  const EncodedRows& rows() const { return rows_; }

 private:
  struct Home {
    uint64_t offset;
    uint32_t bytes;
  };
  Home home_of(int64_t row) const;
  void reserve_addresses(int64_t num_rows);
  void take_over(const EncodedRows& from);
  void set_ref(uint32_t max_coded_bytes);
  bool is_away(int64_t row) const;
  void check_ids(std::span<const int64_t> ids) const;
  void store_away(int64_t row, const std::byte* raw);

  EncodedRows rows_;
  ProfileTables tables_;
  base::Mapping memory_;
  uint32_t stride_bytes_;             // of homes; 0: homes_ has them
  uint32_t raw_bytes_, whole_bytes_;  // of a raw row: as its entry says, and with the gap after it in the overflow
  std::vector<uint64_t> homes_;       // uint64 [num_rows]: entries of rows that were packed
  std::vector<uint64_t> entries_;     // uint64 [num_rows]
  std::vector<int64_t> free_;         // places in the overflow area that rows have left
  int64_t num_places_ = 0;            // of the overflow area, used or free
  bool has_zeros_ = false;            // the first place is that of all rows which were never put
  uint64_t overflow_begin_ = 0;
};

}  // namespace cohort::ibp
