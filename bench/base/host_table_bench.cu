// Random rows read in place from host memory: of a table (base/host_table.h), and of page-locked memory.
//
//   host_table_bench [GB]...       how large the tables are (default 8 16 32 48)
//
// 880,000 rows of 512 bytes a kernel, by address and in any order, GB/s, the best of 5; and the seconds that it took
// to make and write the memory, and to give it back. Every row read is compared with what was written.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/cuda_check.h"
#include "base/host_table.h"
#include "base/launch.h"
#include "base/owners.h"

namespace {

using namespace cohort;
using base::cuda_check;

constexpr std::size_t kRows = 880'000, kRowBytes = 512;
constexpr int kWordsPerRow = kRowBytes / sizeof(uint4), kRowsAtOnce = 4, kRuns = 5;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Word w of the table is w: a warp reads kRowsAtOnce rows, in the order of `rows`, and adds up what is not as written.
__global__ void read_kernel(const uint4* table, const int64_t* rows, int64_t count, unsigned long long* next,
                            unsigned long long* wrong) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  while (true) {
    unsigned long long first = 0;
    if (lane == 0) first = atomicAdd(next, kRowsAtOnce);
    first = __shfl_sync(~0u, first, 0);
    if (first >= static_cast<unsigned long long>(count)) return;
    uint4 words[kRowsAtOnce];
    int64_t at[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      at[i] = rows[min(static_cast<int64_t>(first) + i, count - 1)] * kWordsPerRow + lane;
      words[i] = __ldcs(table + at[i]);
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (words[i].x != static_cast<uint32_t>(at[i]) || words[i].w != words[i].x) atomicAdd(wrong, 1ull);
    }
  }
}
static_assert(kWordsPerRow == 32, "a lane reads a word of a row");

// With all cores, each with a part of its own.
void write(std::byte* table, std::size_t bytes) {
  auto* words = reinterpret_cast<uint4*>(table);
  const std::size_t count = bytes / sizeof(uint4), num_threads = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t share = (count + num_threads - 1) / num_threads;
  std::vector<std::jthread> threads;
  for (std::size_t first = 0; first < count; first += share) {
    threads.emplace_back([=] {
      for (std::size_t at = first; at < std::min(first + share, count); ++at) {
        const auto word = static_cast<uint32_t>(at);
        words[at] = {word, word, word, word};
      }
    });
  }
}

// GB/s.
double rate(const std::byte* table, const std::vector<int64_t>& rows) {
  const base::DeviceArray<int64_t> index = base::upload(rows);
  const base::DeviceArray<unsigned long long> counters(2);
  const base::Event begun, ended;
  float best_ms = 0;
  for (int run = 0; run < kRuns; ++run) {
    base::fill_gpu(counters.data(), 0, 2 * sizeof(unsigned long long));
    begun.record(cudaStreamLegacy);
    read_kernel<<<64, 512>>>(reinterpret_cast<const uint4*>(table), index.data(), static_cast<int64_t>(rows.size()),
                             counters.data(), counters.data() + 1);
    ended.record(cudaStreamLegacy);
    ended.synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, begun, ended), "time a kernel");
    best_ms = run == 0 ? ms : std::min(best_ms, ms);
  }
  unsigned long long found[2];
  cuda_check(cudaMemcpy(found, counters.data(), sizeof found, cudaMemcpyDeviceToHost), "read counters");
  base::require(found[1] == 0, "words read are those written");
  return static_cast<double>(rows.size() * kRowBytes) / best_ms / 1e6;
}

template <typename Memory, typename Open>
void run(const char* name, double gigabytes, const Open& open) {
  const auto num_rows = static_cast<std::size_t>(gigabytes * 1e9) / kRowBytes;
  std::mt19937_64 random(1);
  std::vector<int64_t> rows(kRows);
  for (int64_t& row : rows) row = static_cast<int64_t>(random() % num_rows);
  const double begin = now();
  auto memory = std::make_unique<Memory>(num_rows * kRowBytes);
  write(memory->data(), memory->bytes());
  const double written = now();
  open(*memory);
  const double opened = now();
  const double in_any_order = rate(memory->data(), rows);
  std::sort(rows.begin(), rows.end());
  const double by_address = rate(memory->data(), rows);
  const double freeing = now();
  memory.reset();
  std::printf("%-12s %5.0f %11.1f %13.1f %9.2f %8.2f %8.2f\n", name, gigabytes, by_address, in_any_order,
              written - begin, opened - written, now() - freeing);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<double> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atof(argv[i]));
  if (sizes.empty()) sizes = {8, 16, 32, 48};
  try {
    cuda_check(cudaSetDevice(0), "choose a GPU");
    std::printf("%-12s %5s %11s %13s %9s %8s %8s\n", "memory", "GB", "by address", "in any order", "written s",
                "opened s", "freed s");
    for (const double size : sizes) {
      run<base::HostTable>("table", size, [](const base::HostTable& table) { table.open_to_gpu(); });
      run<base::PinnedBytes>("page-locked", size, [](const base::PinnedBytes&) {});
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
