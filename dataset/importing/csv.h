// Numbers from text: lines of separated fields, parsed by all threads, a block of the file at a time.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace cohort::dataset {

struct CsvLayout {
  char separator = ',';          // ' ': any number of blanks and tabs
  std::string comments = "#%";   // a line that starts with one of them is none
  std::vector<int64_t> columns;  // which fields of a line, in this order, from 0
  bool only_these = false;       // a line with more fields than the last of `columns` is refused
};

// T: int64_t, or float and double, for which an empty field is NaN.
template <typename T>
class CsvParser {
 public:
  // `place` is the file, for messages; `lines_before` were read already.
  CsvParser(std::string place, CsvLayout layout, int64_t lines_before);

  // Takes the next block of the text and returns the rows of the lines that are whole now: T [rows, columns]. A line
  // that ends with the text is whole when this is the `last` block. Throws base::Error naming the first bad line.
  std::vector<T> feed(std::span<const char> block, bool last, const std::stop_token& stop);

  std::size_t num_columns() const noexcept { return layout_.columns.size(); }

 private:
  std::vector<T> parse(std::span<const char> lines, const std::stop_token& stop);

  std::string place_;
  CsvLayout layout_;
  int64_t lines_;           // before `rest_`
  std::vector<int> slots_;  // of each field: its place in a row, or -1
  std::vector<char> rest_;  // of the last block: the start of a line
};

}  // namespace cohort::dataset
