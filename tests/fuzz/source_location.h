// std::source_location for clang 14, which lacks it: brought in by -include when the fuzz target is built.
#pragma once

#include <version>

#ifndef __cpp_lib_source_location
#include <cstdint>

namespace std {
struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(), uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
  constexpr const char* file_name() const { return file_; }
  constexpr uint32_t line() const { return line_; }
  const char* file_ = "";
  uint32_t line_ = 0;
};
}  // namespace std
#endif
