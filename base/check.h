// Errors that say place, expected, found and cure.
#pragma once

#include <concepts>
#include <cstdint>
#include <source_location>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace cohort::base {

// What a caller cannot repair. Caught in sampler/main and at the Python boundary; library code never prints or exits.
class Error : public std::runtime_error {
 public:
  // The four parts of the message; an empty hint is left out.
  struct Parts {
    std::string place;     // file, argument or call
    std::string expected;  // what should have been there
    std::string found;     // what was there
    std::string hint;      // what the user can do about it
  };
  explicit Error(Parts parts);
  const Parts& parts() const noexcept { return parts_; }

 private:
  Parts parts_;
};

// Throws Error with the text of errno after a failed system call.
[[noreturn]] void fail_errno(const std::string& place, const std::string& expected, int error, std::string hint = {});

// A broken promise between two parts of this program: names the source line.
void require(bool condition, const char* what, std::source_location where = std::source_location::current());

// Which of `words` a word is, from 0. Throws Error at `place` when it is none of them; the message leaves out "".
std::size_t number_of(const std::string& word, std::span<const std::string_view> words, const std::string& place);

// "1.5 GB", "312 B": for messages.
std::string format_bytes(double bytes);
template <std::integral T>
std::string format_bytes(T bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// Throws Error at `place` when more bytes are needed than there are: "1.5 GB" with `purpose` behind it, and "312 B
// free" (or whatever `state` says).
void demand_bytes(int64_t needed, int64_t present, const std::string& place, const char* purpose, const char* hint,
                  const char* state = "available");

}  // namespace cohort::base
