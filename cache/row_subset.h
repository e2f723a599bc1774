// Some rows of an encoded table as an encoded table of their own: the part of a file that is kept in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/large_page_vector.h"
#include "cache/row_bits.h"
#include "ibp/ibp.h"

namespace cohort::cache {

class RowSubset {
 public:
  // Memory that a row takes in a subset, directory included.
  static int64_t bytes_of(const ibp::EncodedRef& all, int64_t row);

  // `rows` are counted. Reads what `all` says of places, no rows.
  RowSubset(const ibp::EncodedRows& all, const RowBits& rows);

  int64_t bytes() const;  // of the rows in memory
  // Copies the rows to `memory`, [bytes()], 16-byte aligned, which outlives the result: row i of it is the i-th chosen
  // row. `after_piece` is called now and then, for pages of `all` that are not needed any more.
  ibp::EncodedRows copy_to(std::byte* memory, const std::function<void()>& after_piece) const;

 private:
  struct Directory {
    base::LargePageVector<uint64_t> entries;       // uint64 [rows] (packed)
    base::LargePageVector<uint32_t> flags, ranks;  // uint32 [ceil(rows / 32)] (slots)
  };
  void add(const ibp::RowSpan& row, int64_t number);

  const ibp::EncodedRows& all_;
  const RowBits& rows_;
  std::shared_ptr<Directory> directory_ = std::make_shared<Directory>();
  ibp::EncodedRef ref_;  // of the subset, its pointers null
};

}  // namespace cohort::cache
