// libFuzzer's main calls these. fuzz_<room>_<name> --write-seeds DIR writes the target's seeds as a corpus.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::strcmp((*argv)[1], "--write-seeds") != 0) return 0;
  const std::filesystem::path folder = (*argv)[2];
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const std::string& seed : cohort::fuzz::seeds()) {
    std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cohort::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
