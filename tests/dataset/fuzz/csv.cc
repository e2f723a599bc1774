// Any text as lines of numbers: byte 0 says how they are made, byte 1 where the text is cut into blocks.
#include <cstring>
#include <optional>

#include "base/check.h"
#include "dataset/importing/csv.h"
#include "tests/fuzz/fuzz.h"

namespace cohort::fuzz {
namespace {

// Rows of a text that is fed in blocks of `block` bytes, or the error that they end in.
template <typename T>
struct Outcome {
  std::vector<T> rows;
  std::optional<std::string> error;
};

template <typename T>
Outcome<T> parse(const std::string& text, const dataset::CsvLayout& layout, std::size_t block) {
  Outcome<T> out;
  try {
    dataset::CsvParser<T> parser("fuzz", layout, 0);
    for (std::size_t at = 0; at < text.size(); at += block) {
      const auto piece = std::span(text).subspan(at, std::min(block, text.size() - at));
      for (const T value : parser.feed(piece, false, {})) out.rows.push_back(value);
    }
    for (const T value : parser.feed({}, true, {})) out.rows.push_back(value);
  } catch (const base::Error& error) {
    out.error = error.what();
  }
  return out;
}

// The text means the same however it is cut.
template <typename T>
void read(const std::string& text, const dataset::CsvLayout& layout, std::size_t block) {
  const Outcome<T> whole = parse<T>(text, layout, text.size() + 1), pieces = parse<T>(text, layout, block);
  demand(whole.error == pieces.error, "one error, however a text is cut");
  if (whole.error) return;
  demand(whole.rows.size() == pieces.rows.size(), "as many rows, however a text is cut");
  demand(whole.rows.size() % layout.columns.size() == 0, "whole rows");
  if (whole.rows.empty()) return;
  const bool same = std::memcmp(whole.rows.data(), pieces.rows.data(), whole.rows.size() * sizeof(T)) == 0;
  demand(same, "the same numbers, however a text is cut");
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string edges = "# a comment\n1,2\n3,4\r\n+5,\"6\"\n\n7,8", rows = "1.5,,-2e-3\n1e999,inf,nan\n";
  const std::string tabs = "1\t2\t3\n4\t\t6\n", blanks = "  1   2 \n% no row\n3 4\n";
  return {std::string("\x00\x03", 2) + edges,  std::string("\x04\x05", 2) + rows,  std::string("\x09\x02", 2) + tabs,
          std::string("\x02\x07", 2) + blanks, std::string("\x30\x01", 2) + edges, std::string("\x28\x04", 2) + rows};
}

void run(std::span<const std::byte> input) {
  constexpr std::size_t kLongest = 2000;  // blocks of one byte make a longer line slow
  if (input.size() < 2 || input.size() > kLongest) return;
  const auto form = std::to_integer<unsigned>(input[0]);
  const std::size_t block = 1 + std::to_integer<std::size_t>(input[1]);
  const std::string text = text_of(input.subspan(2));
  const std::vector<std::vector<int64_t>> columns = {{0, 1}, {0, 1, 2}, {2}, {3, 0}};
  dataset::CsvLayout layout;
  layout.separator = ",\t ;"[form & 3];
  layout.columns = columns[form >> 4 & 3];
  layout.only_these = form >> 6 & 1;
  if (form >> 2 & 1) return read<float>(text, layout, block);
  if (form >> 3 & 1) return read<double>(text, layout, block);
  read<int64_t>(text, layout, block);
}

}  // namespace cohort::fuzz
