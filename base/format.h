// Text by fmt, which is compiled once, in format.cc: each file that includes the whole of it takes twice as long.
#pragma once

#if __has_include(<fmt/base.h>)
#include <fmt/base.h>
#else
#include <fmt/core.h>
#endif

#include <cstdint>
#include <span>
#include <string>

namespace cohort::base {

std::string format_arguments(fmt::string_view text, fmt::format_args arguments);

// fmt::format, for numbers and strings.
template <typename... T>
std::string format(fmt::format_string<T...> text, T&&... arguments) {
  return format_arguments(text, fmt::make_format_args(arguments...));
}

// "1, 2, 3"
std::string joined(std::span<const int64_t> numbers);

}  // namespace cohort::base
