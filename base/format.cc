#define FMT_HEADER_ONLY  // here alone
#include "base/format.h"

#include <fmt/format.h>

namespace cohort::base {

std::string format_arguments(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

std::string joined(std::span<const int64_t> numbers) {
  return fmt::format("{}", fmt::join(numbers.begin(), numbers.end(), ", "));
}

}  // namespace cohort::base
