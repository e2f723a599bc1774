#include "dataset/importing/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "base/check.h"
#include "dataset/parallel.h"

namespace cohort::dataset {
namespace {

constexpr std::size_t kLongestLine = 64 << 20;
constexpr std::size_t kPieceBytes = 1 << 20;  // what a thread takes at once

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// A line that is no row.
struct BadLine {
  int64_t line;  // from 0, in its piece
  std::string expected, found;
};

// Rows and lines of some text.
template <typename T>
struct Piece {
  std::vector<T> rows;
  int64_t lines = 0;
  std::optional<BadLine> bad;
};

template <typename T>
const char* kind_of() {
  return std::is_integral_v<T> ? "an integer" : "a number";
}

// Reads the rows of some lines.
template <typename T>
class LineReader {
 public:
  LineReader(const CsvLayout& layout, const std::vector<int>& slots) : layout_(layout), slots_(slots) {}

  Piece<T> read(const char* at, const char* end) {
    Piece<T> piece;
    std::vector<T> row(layout_.columns.size());
    while (at < end) {
      const auto* line_end = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
      if (line_end == nullptr) line_end = end;
      const char* last = line_end;
      while (last > at && is_blank(last[-1]) && last[-1] != layout_.separator) --last;
      if (last > at && layout_.comments.find(*at) == std::string::npos) {
        if (auto bad = read_line(at, last, row)) {
          piece.bad = BadLine{piece.lines, bad->expected, bad->found};
          return piece;
        }
        piece.rows.insert(piece.rows.end(), row.begin(), row.end());
      }
      ++piece.lines;
      at = line_end + 1;
    }
    return piece;
  }

 private:
  // Fills `row`, unless the line is no row.
  std::optional<BadLine> read_line(const char* at, const char* end, std::vector<T>& row) const {
    for (std::size_t field = 0; field < slots_.size(); ++field) {
      while (at < end && is_blank(*at) && *at != layout_.separator) ++at;
      if (layout_.separator == ' ') at = skip_blanks(at, end);
      const char* next = at;
      if (slots_[field] >= 0) {
        next = read_field(at, end, row[static_cast<std::size_t>(slots_[field])]);
        if (next == nullptr) return BadLine{0, kind_of<T>(), fmt::format("\"{}\"", text_of(at, end))};
      } else {
        next = field_end(at, end);
      }
      const bool is_last = field + 1 == slots_.size();
      if (next == end && !is_last) {
        return BadLine{0, fmt::format("at least {} fields", slots_.size()), fmt::format("{}", field + 1)};
      }
      if (is_last && layout_.only_these && next != end) {
        return BadLine{0, fmt::format("{} fields, as in the first line", slots_.size()), "more"};
      }
      at = next + 1;
    }
    return std::nullopt;
  }

  const char* skip_blanks(const char* at, const char* end) const {
    while (at < end && is_blank(*at)) ++at;
    return at;
  }
  bool ends_field(char c) const { return c == layout_.separator || (layout_.separator == ' ' && is_blank(c)); }
  const char* field_end(const char* at, const char* end) const {
    return std::find_if(at, end, [&](char c) { return ends_field(c); });
  }
  std::string text_of(const char* at, const char* end) const {
    constexpr std::ptrdiff_t kShown = 40;
    const char* const last = field_end(at, end);
    return {at, at + std::min(kShown, last - at)};
  }

  // The end of the field, whose number may stand in quotes; nullptr when it is no T.
  const char* read_field(const char* at, const char* end, T& value) const {
    const bool quoted = at < end && *at == '"';
    const char* next = read_number(quoted ? at + 1 : at, end, quoted, value);
    if (next == nullptr || (quoted && (next == end || *next++ != '"'))) return nullptr;
    while (next < end && is_blank(*next) && !ends_field(*next)) ++next;
    return next == end || ends_field(*next) ? next : nullptr;
  }

  const char* read_number(const char* at, const char* end, bool quoted, T& value) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (at == end || (quoted ? *at == '"' : ends_field(*at))) {
        value = std::numeric_limits<T>::quiet_NaN();
        return at;
      }
    }
    if (at < end && *at == '+') ++at;
    const auto [last, error] = std::from_chars(at, end, value);
    if (error == std::errc()) return last;
    if (error != std::errc::result_out_of_range || std::is_integral_v<T>) return nullptr;
    value = nearest(at, last);
    return last;
  }

  // What is too small for a T is 0, what is too large infinite.
  static T nearest(const char* at, const char* last) {
    return static_cast<T>(std::strtod(std::string(at, last).c_str(), nullptr));
  }

  const CsvLayout& layout_;
  const std::vector<int>& slots_;
};

}  // namespace

template <typename T>
CsvParser<T>::CsvParser(std::string place, CsvLayout layout, int64_t lines_before)
    : place_(std::move(place)), layout_(std::move(layout)), lines_(lines_before) {
  base::require(!layout_.columns.empty(), "at least one column");
  slots_.assign(static_cast<std::size_t>(*std::max_element(layout_.columns.begin(), layout_.columns.end())) + 1, -1);
  for (std::size_t i = 0; i < layout_.columns.size(); ++i) {
    base::require(slots_[static_cast<std::size_t>(layout_.columns[i])] < 0, "each column once");
    slots_[static_cast<std::size_t>(layout_.columns[i])] = static_cast<int>(i);
  }
}

template <typename T>
std::vector<T> CsvParser<T>::feed(std::span<const char> block, bool last, const std::stop_token& stop) {
  rest_.insert(rest_.end(), block.begin(), block.end());
  const auto line_end = std::find(rest_.rbegin(), rest_.rend(), '\n').base();
  const auto whole = last ? rest_.size() : static_cast<std::size_t>(line_end - rest_.begin());
  if (rest_.size() - whole > kLongestLine) {
    throw base::Error({fmt::format("{}: line {}", place_, lines_ + 1), "lines of numbers",
                       "one of " + base::format_bytes(static_cast<double>(rest_.size())), "is it a text file?"});
  }
  std::vector<T> rows = parse({rest_.data(), whole}, stop);
  rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(whole));
  return rows;
}

template <typename T>
std::vector<T> CsvParser<T>::parse(std::span<const char> lines, const std::stop_token& stop) {
  std::vector<const char*> bounds = {lines.data()};
  const char* const end = lines.data() + lines.size();
  while (bounds.back() < end) {
    const char* const at = bounds.back() + std::min(kPieceBytes, static_cast<std::size_t>(end - bounds.back()));
    const auto* const stops = at < end ? std::find(at, end, '\n') : end;
    bounds.push_back(stops < end ? stops + 1 : end);
  }
  std::vector<Piece<T>> pieces(bounds.size() - 1);
  const auto read = [&](int64_t begin, int64_t) {
    const auto i = static_cast<std::size_t>(begin);
    pieces[i] = LineReader<T>(layout_, slots_).read(bounds[i], bounds[i + 1]);
  };
  for_chunks(static_cast<int64_t>(pieces.size()), stop, read, 1);
  std::size_t size = 0;
  for (const Piece<T>& piece : pieces) size += piece.rows.size();
  std::vector<T> rows;
  rows.reserve(size);
  for (const Piece<T>& piece : pieces) {
    if (piece.bad) {
      const std::string place = fmt::format("{}: line {}", place_, lines_ + piece.bad->line + 1);
      throw base::Error({place, piece.bad->expected, piece.bad->found,
                         "--separator, --columns and --header describe the format of the lines"});
    }
    rows.insert(rows.end(), piece.rows.begin(), piece.rows.end());
    lines_ += piece.lines;
  }
  return rows;
}

template class CsvParser<int64_t>;
template class CsvParser<float>;
template class CsvParser<double>;

}  // namespace cohort::dataset
