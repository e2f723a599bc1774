// Encoded rows that change in place, in host memory. Internal to ibp/.
#pragma once

#include <span>
#include <vector>

#include "base/mapping.h"
#include "ibp/homes.h"
#include "ibp/ibp.h"
#include "ibp/row_codec.h"

namespace cohort::ibp {

// Homes for rows, in memory that is still to be found: HomesRef::data.
class Homes {
 public:
  // Of these rows, which stay where they are: a slot each, or as many bytes as each has.
  explicit Homes(const EncodedRows& rows);
  // Of rows of zeros, with `slot_bytes` each, a multiple of 4. One cell of the overflow area is for all of them.
  Homes(const Profile& profile, int64_t num_rows, uint32_t slot_bytes);
  Homes(const Homes&) = delete;
  Homes& operator=(const Homes&) = delete;

  const HomesRef& ref() const { return ref_; }
  int64_t num_cells() const { return num_cells_; }  // of the overflow area, in use
  // The bytes of all homes and of so many cells.
  uint64_t bytes_with(int64_t num_cells) const;
  // `rows`, from which the homes were made, to `to`: the homes and the cells in use.
  void copy(const EncodedRows& rows, std::byte* to) const;
  // The same, or nothing from null, and zeros where no row is. bytes_with() as many cells as there is room for.
  void fill(const EncodedRows* rows, std::span<std::byte> to) const;
  // The rows as those of the packed layout, in the memory of `at`, with so many cells.
  static EncodedRef packed_ref(const HomesRef& at, int64_t num_cells);

 private:
  void find_rows(const EncodedRows& rows);
  // Throws Error unless entries can name every byte of the homes and a cell for each row.
  void check(const Profile& profile) const;
  std::vector<uint64_t> entries_;  // uint64 [num_rows]
  std::vector<uint64_t> homes_;    // uint64 [num_rows] of rows that were packed
  HomesRef ref_;
  int64_t num_cells_ = 0;
};

// A copy of encoded rows in which put() replaces rows. A new row that does not fit its home is stored raw in the
// overflow area; a later one that fits goes home, and the next row in need takes the cell that it leaves. The result
// is rows of the packed layout, for everything that takes those.
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
  void reserve_addresses();
  void check_ids(std::span<const int64_t> ids) const;
  void store(int64_t row, uint32_t coded, const std::byte* raw);

  EncodedRows rows_;
  ProfileTables tables_;
  Homes homes_;
  HomesRef ref_;
  base::Mapping memory_;
  OverflowCells cells_;
  std::vector<int64_t> list_;  // what cells_ calls so
};

}  // namespace cohort::ibp
