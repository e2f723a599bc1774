#include "base/check.h"
#include "base/format.h"

#include <array>
#include <cerrno>
#include <cstring>

namespace cohort::base {
namespace {

std::string join(const Error::Parts& parts) {
  std::string text = base::format("{}: expected {}, found {}", parts.place, parts.expected, parts.found);
  if (!parts.hint.empty()) text += base::format("\n  hint: {}", parts.hint);
  return text;
}

}  // namespace

Error::Error(Parts parts) : std::runtime_error(join(parts)), parts_(std::move(parts)) {}

void fail_errno(const std::string& place, const std::string& expected, int error, std::string hint) {
  if (error == EMFILE) hint = "raise the limit of open files: ulimit -n";
  if (error == EFBIG) hint = "raise the limit of file sizes: ulimit -f";
  if (error == ENOMEM && hint.empty()) hint = "free memory, or raise the limit of address space: ulimit -v";
  throw Error({place, expected, std::strerror(error), std::move(hint)});
}

void require(bool condition, const char* what, std::source_location where) {
  if (condition) return;
  throw Error({base::format("{}:{}", where.file_name(), where.line()), what, "the opposite",
               "this is a fault in cohort itself; please report it with the log"});
}

std::size_t number_of(const std::string& word, std::span<const std::string_view> words, const std::string& place) {
  std::string expected;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (word == words[i]) return i;
    if (words[i].empty()) continue;
    expected += expected.empty() ? "" : i + 1 < words.size() ? ", " : " or ";
    expected += words[i];
  }
  throw Error({place, expected, word, ""});
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 1000.0 && unit + 1 < kUnits.size()) {
    bytes /= 1000.0;
    ++unit;
  }
  return unit == 0 ? base::format("{:.0f} B", bytes) : base::format("{:.2f} {}", bytes, kUnits[unit]);
}

void demand_bytes(int64_t needed, int64_t present, const std::string& place, const char* purpose, const char* hint,
                  const char* state) {
  if (needed <= present) return;
  throw Error({place, format_bytes(needed) + purpose, base::format("{} {}", format_bytes(present), state), hint});
}

}  // namespace cohort::base
