// fuzz_<room>_<name> [--runs N] [--seed S]: the target's seeds as they are, then N mutations of them.
// fuzz_<room>_<name> FILE...: these inputs. The input that ends the program is left in fuzz-failure.bin.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/fuzz.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace cohort::fuzz {
namespace {

constexpr unsigned kSecondsAnInput = 20;  // more is a hang
constexpr std::size_t kLongest = 1 << 16;

std::string current;  // the input that is read now

void keep_current() {
  std::ofstream("fuzz-failure.bin", std::ios::binary) << current;
  std::fprintf(stderr, "the input of %zu bytes is in fuzz-failure.bin\n", current.size());
}

void read(std::string input) {
  current = std::move(input);
  alarm(kSecondsAnInput);
  // A copy of its own length, so that a read past the end is seen.
  const auto bytes = std::as_bytes(std::span(current));
  run(std::vector<std::byte>(bytes.begin(), bytes.end()));
  alarm(0);
}

// Damages inputs, always in the same way for the same seed.
class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, uint64_t seed) : seeds_(std::move(seeds)), random_(seed) {}

  std::string next() {
    std::string input = seeds_[below(seeds_.size())];
    for (std::size_t i = 0, count = 1 + below(5); i < count; ++i) mutate(input);
    input.resize(std::min(input.size(), kLongest));
    return input;
  }

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void mutate(std::string& input) {
    const std::size_t at = below(input.size() + 1), length = below(std::min<std::size_t>(input.size() - at, 64) + 1);
    switch (below(8)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(below(256));
        return;
      case 2:
        input.erase(at, length);
        return;
      case 3:
        input.insert(at, input, below(input.size() + 1), 1 + below(64));
        return;
      case 4:
        input.resize(at);
        return;
      case 5:
        return write_number(input, at);
      case 6:
        input.replace(at, length, token());
        return;
      default: {
        const std::string& other = seeds_[below(seeds_.size())];
        input.replace(at, length, other, below(other.size() + 1), 1 + below(64));
      }
    }
  }

  // An integer of 1 to 8 bytes, of those that break sums and comparisons.
  void write_number(std::string& input, std::size_t at) {
    constexpr std::array<uint64_t, 12> kNumbers = {0,   1,     2,         63,         64,        127,
                                                   255, 65535, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
    const uint64_t number = kNumbers[below(kNumbers.size())] - below(2);
    const std::size_t bytes = std::size_t{1} << below(4);
    if (at + bytes <= input.size()) std::memcpy(input.data() + at, &number, bytes);
  }

  // What text formats have, and what their parsers may trip over.
  std::string token() {
    constexpr std::array<const char*, 20> kTokens = {"0",
                                                     "-1",
                                                     "1e999",
                                                     "nan",
                                                     "4611686018427387904",
                                                     "99999999999999999999",
                                                     "true",
                                                     "null",
                                                     "{",
                                                     "}",
                                                     "[",
                                                     "]",
                                                     "\"",
                                                     ",",
                                                     "\n",
                                                     "'",
                                                     "(",
                                                     ")",
                                                     ":",
                                                     "\\u0000"};
    const std::string token = kTokens[below(kTokens.size())];
    std::string repeated;
    for (std::size_t i = 0, count = below(16) == 0 ? 1 + below(20000) : 1; i < count; ++i) repeated += token;
    return repeated;
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

void read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(std::string("no input ") + path);
  read({std::istreambuf_iterator<char>(file), {}});
}

int run_all(int argc, char** argv) {
  uint64_t runs = 10000, seed = 1;
  std::vector<const char*> files;
  for (int i = 1; i < argc; ++i) {
    const bool is_option = i + 1 < argc && std::strncmp(argv[i], "--", 2) == 0;
    if (!is_option) {
      files.push_back(argv[i]);
    } else {
      (std::strcmp(argv[i], "--runs") == 0 ? runs : seed) = std::strtoull(argv[i + 1], nullptr, 10);
      ++i;
    }
  }
  for (const char* file : files) read_file(file);
  if (!files.empty()) return 0;
  const std::vector<std::string> inputs = seeds();
  for (const std::string& input : inputs) read(input);
  Mutator mutator(inputs, seed);
  for (uint64_t i = 0; i < runs; ++i) read(mutator.next());
  std::printf("%zu seeds and %llu mutations of them were read\n", inputs.size(), static_cast<unsigned long long>(runs));
  return 0;
}

}  // namespace
}  // namespace cohort::fuzz

int main(int argc, char** argv) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(cohort::fuzz::keep_current);
#endif
  try {
    return cohort::fuzz::run_all(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "not a base::Error: %s\n", error.what());
    cohort::fuzz::keep_current();
    return 1;
  }
}
