// The GPU measurements behind docs/ibp-figures.md: what paper_*.cu share. Each measurement is one JSON line.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/cuda_check.h"
#include "base/owners.h"
#include "ibp/gpu.h"

namespace cohort::ibp::paper {

using Value = std::variant<int64_t, double, std::string>;
using Field = std::pair<const char*, Value>;

// Appends JSON lines to a file: {"figure": figure, name: value, ...}. Throws Error when it cannot.
class Lines {
 public:
  explicit Lines(std::string path) : path_(std::move(path)) {}
  void write(const char* figure, std::initializer_list<Field> fields) const;

 private:
  std::string path_;
};

inline constexpr int64_t kFetchRows = 100'000;  // the paper's
inline constexpr uint64_t kFillSeed = 1;

// `bytes` (a multiple of 8) of random words: word w is random_64(key_of(kFillSeed), w, 0). GPU or pinned memory.
void fill_random(void* data, int64_t bytes);
// int64 [count] in GPU memory: random rows of 0..num_rows-1.
base::DeviceArray<int64_t> random_index(int64_t count, int64_t num_rows);
// int64 [count] in GPU memory: 0, 1, 2, ...
base::DeviceArray<int64_t> counting_index(int64_t count);
// Fails unless out[i] == rows[index[i]] for every i. `rows` and `out`: row_bytes a row, in memory the GPU reads.
void require_equal_rows(const void* rows, const int64_t* index, const void* out, int64_t count, uint32_t row_bytes);

int num_sms();

double median(std::vector<double> values);

// Median seconds of work(stream), by events; one more run goes before.
template <typename Work>
double gpu_seconds(int runs, const Work& work) {
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<double> seconds;
  for (int run = 0; run < runs + 1; ++run) {
    begin.record(stream);
    work(static_cast<cudaStream_t>(stream));
    end.record(stream);
    stream.synchronize();
    float milliseconds = 0;
    base::cuda_check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (run > 0) seconds.push_back(milliseconds * 1e-3);
  }
  return median(seconds);
}

// Median seconds of work() by the clock on the wall, for work in which the CPU takes part; one more run goes before.
template <typename Work>
double wall_seconds(int runs, const Work& work) {
  std::vector<double> seconds;
  for (int run = 0; run < runs + 1; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    base::cuda_check(cudaDeviceSynchronize());
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (run > 0) seconds.push_back(elapsed);
  }
  return median(seconds);
}

inline double gb_per_s(int64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds * 1e-9; }

// A profile that stores uint32 [words] rows as they are.
inline Profile raw_profile(uint32_t words) {
  Profile profile;
  profile.dtype = Dtype::kBits32;
  profile.num_columns = words;
  return profile;
}

// Rows that the user brings: plain bytes of a file, in host memory.
struct RowsFile {
  std::string name;
  RowTable table;
  std::vector<std::byte> bytes;
};

// The same rows again and again in GPU memory, `table.num_rows` of them.
struct DeviceRows {
  std::string name;
  RowTable table;
  base::DeviceBytes bytes;
};

void run_copy_methods(const Lines& lines, double scale);                  // Figure 5
void run_decode_sweep(const Lines& lines, double scale);                  // Figure 7
void run_codecs(const Lines& lines, const RowsFile& file, double scale);  // Tables 1 to 3
// nvCOMP on the same rows, one chunk a row; a line that says so where the build has no nvCOMP.
void run_nvcomp(const Lines& lines, const DeviceRows& rows);

}  // namespace cohort::ibp::paper
