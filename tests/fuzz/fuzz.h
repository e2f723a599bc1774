// Fuzzing of readers. A target is tests/<room>/fuzz/<name>.cc with the two functions of this header; cohort_fuzz in
// cmake/rooms.cmake makes the program fuzz_<room>_<name> of it, with one of two mains:
//   driver.cc     a fixed number of inputs, the same ones each time: a test as any other
//   libfuzzer.cc  libFuzzer, which looks for new paths through the code: preset fuzz, CONTRIBUTING.md
// Either way a target must return from any input: what is wrong with it is a base::Error, caught in run().
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace cohort::fuzz {

// Inputs that are read without an error, made by code: what the mutations start from.
std::vector<std::string> seeds();

// Reads an input.
void run(std::span<const std::byte> input);

// Ends the program, and so the fuzzing, unless a promise about what was read is kept.
inline void demand(bool kept, const char* promise) {
  if (!kept) throw std::logic_error(promise);
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// A file in memory, for readers that take a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    demand(file_ >= 0 && write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "a file");
  }
  ~MemoryFile() { close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace cohort::fuzz
