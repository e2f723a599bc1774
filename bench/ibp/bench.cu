// Fetch of encoded rows, measured: one table of effective GB/s (decoded bytes / time, the ordering of rows included).
// Usage: ibp_bench [scale of the tables, default 1 [only cases whose name holds this]]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "base/owners.h"
#include "base/random.h"
#include "bench/ibp/made_rows.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr int64_t kFetchRows = 500'000;
constexpr int kRuns = 11;

struct Case {
  const char* name;
  Kind kind;
  Dtype dtype;
  uint32_t num_columns;
  double gigabytes;
};

__global__ void index_kernel(int64_t* index, int64_t count, int64_t num_rows, uint64_t seed) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    index[i] = int64_t(base::random_below(uint64_t(num_rows), base::key_of(seed), uint64_t(i), 0));
  }
}

double median_gb_per_s(int64_t bytes, std::vector<float> milliseconds) {
  std::sort(milliseconds.begin(), milliseconds.end());
  return static_cast<double>(bytes) / (milliseconds[milliseconds.size() / 2] * 1e6);
}

double measure(const DeviceTable& table, Gather& gather, const int64_t* index, void* out, const FetchOptions& options) {
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<float> times;
  for (int run = 0; run < kRuns + 1; ++run) {
    begin.record(stream);
    gather.fetch(table, index, kFetchRows, out, stream, options);
    end.record(stream);
    stream.synchronize();
    float elapsed = 0;
    cuda_check(cudaEventElapsedTime(&elapsed, begin, end));
    if (run > 0) times.push_back(elapsed);
  }
  gather.check();
  return median_gb_per_s(kFetchRows * table.ref().row_bytes, times);
}

// What anybody would write: a warp copies a row, 16 bytes a lane (8 where rows are not at multiples of 16).
template <typename Word>
__global__ void __launch_bounds__(1024) plain_gather_kernel(const std::byte* rows, const int64_t* index, int64_t count,
                                                            uint32_t row_bytes, std::byte* out) {
  const uint32_t lane = threadIdx.x % 32, words = row_bytes / sizeof(Word);
  for (int64_t i = base::grid_first() / 32; i < count; i += base::grid_step() / 32) {
    const auto* from = reinterpret_cast<const Word*>(rows + index[i] * row_bytes);
    auto* to = reinterpret_cast<Word*>(out + i * row_bytes);
#pragma unroll 4
    for (uint32_t w = lane; w < words; w += 32) to[w] = from[w];
  }
}

double measure_plain(const RowTable& rows, const int64_t* index, std::byte* out, int sms) {
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<float> times;
  const auto* from = static_cast<const std::byte*>(rows.data);
  const auto kernel = rows.row_bytes() % 16 == 0 ? plain_gather_kernel<uint4> : plain_gather_kernel<uint2>;
  for (int run = 0; run < kRuns + 1; ++run) {
    begin.record(stream);
    kernel<<<sms ? sms : 264, 1024, 0, stream>>>(from, index, kFetchRows, rows.row_bytes(), out);
    end.record(stream);
    stream.synchronize();
    float elapsed = 0;
    cuda_check(cudaEventElapsedTime(&elapsed, begin, end));
    if (run > 0) times.push_back(elapsed);
  }
  return median_gb_per_s(kFetchRows * rows.row_bytes(), times);
}

// The rows, in GPU memory.
struct Source {
  base::DeviceBytes bytes;
  RowTable table;
};

Source make_source(const Case& what, double scale) {
  Source source;
  source.table = {nullptr, 0, what.dtype, what.num_columns};
  source.table.num_rows = static_cast<int64_t>(what.gigabytes * scale * 1e9 / source.table.row_bytes());
  source.bytes = base::DeviceBytes(std::size_t(source.table.num_rows) * source.table.row_bytes());
  source.table.data = source.bytes.data();
  fill_kernel<<<4096, base::kBlockThreads>>>(source.bytes.data(), source.table.num_rows, what.num_columns, what.dtype,
                                             what.kind);
  cuda_check(cudaDeviceSynchronize(), "make rows");
  return source;
}

Fit fit_on_sample(const RowTable& rows, const char* codec) {
  const int64_t count = std::min<int64_t>(rows.num_rows, 4096);
  std::vector<std::byte> sample(std::size_t(count) * rows.row_bytes());
  cuda_check(cudaMemcpy(sample.data(), rows.data, sample.size(), cudaMemcpyDeviceToHost));
  return fit({sample.data(), count, rows.dtype, rows.num_columns}, {.codec = codec});
}

// Every fetched row equals its source: the comparison runs on the GPU.
__global__ void compare_kernel(const std::byte* rows, const int64_t* index, const std::byte* out, int64_t count,
                               uint32_t row_bytes, unsigned long long* wrong) {
  for (int64_t i = base::grid_first(); i < count * row_bytes; i += base::grid_step()) {
    if (rows[index[i / row_bytes] * row_bytes + i % row_bytes] != out[i]) atomicAdd(wrong, 1ull);
  }
}

void verify(const RowTable& rows, const int64_t* index, const base::DeviceBytes& out) {
  base::DeviceArray<unsigned long long> wrong(1);
  cuda_check(cudaMemset(wrong.data(), 0, 8));
  compare_kernel<<<4096, base::kBlockThreads>>>(static_cast<const std::byte*>(rows.data), index, out.data(), kFetchRows,
                                                rows.row_bytes(), wrong.data());
  unsigned long long count = 0;
  cuda_check(cudaMemcpy(&count, wrong.data(), 8, cudaMemcpyDeviceToHost));
  base::require(count == 0, "fetched rows equal their source");
}

// Reads `words` in order, 16 bytes a thread; the sum keeps the reads.
__global__ void read_kernel(const uint4* words, int64_t count, unsigned long long* sum) {
  uint32_t mixed = 0;
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    const uint4 word = words[i];
    mixed ^= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (mixed == 0x12345678) atomicAdd(sum, 1ull);
}

// What the link gives to a kernel that reads pinned memory in order: the bound of every fetch from the host.
void run_zero_copy(const std::byte* data, int64_t bytes) {
  const base::DeviceArray<unsigned long long> sum(1);
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<float> times;
  for (int run = 0; run < kRuns; ++run) {
    begin.record(stream);
    read_kernel<<<132 * 8, base::kBlockThreads, 0, stream>>>(reinterpret_cast<const uint4*>(data), bytes / 16,
                                                             sum.data());
    end.record(stream);
    stream.synchronize();
    float elapsed = 0;
    cuda_check(cudaEventElapsedTime(&elapsed, begin, end));
    times.push_back(elapsed);
  }
  std::printf("kernel reading pinned host memory in order: %.1f GB/s\n", median_gb_per_s(bytes, times));
}

// Rows in the memory of a second GPU, read over NVLink by the first.
void run_peer(const Case& what, const EncodedRows& encoded, const RowTable& source, const int64_t* index,
              const base::DeviceBytes& out, Gather& gather) {
  int count = 0, access = 0;
  cuda_check(cudaGetDeviceCount(&count));
  if (count > 1) cuda_check(cudaDeviceCanAccessPeer(&access, 0, 1));
  if (!access) return;
  static const cudaError_t enabled = cudaDeviceEnablePeerAccess(1, 0);
  cuda_check(enabled, "read GPU 1 from GPU 0");
  cuda_check(cudaSetDevice(1));
  const base::DeviceBytes rows(std::size_t(encoded.ref.data_bytes));
  base::copy_to_gpu(rows.data(), encoded.ref.data, rows.bytes(), "copy rows to the peer");
  cuda_check(cudaDeviceSynchronize(), "copy rows to the peer");
  cuda_check(cudaSetDevice(0));
  EncodedRows remote = encoded;
  remote.ref.data = rows.data();
  const DeviceTable table(remote);
  std::printf("%-24s %-9s from a peer over NVLink, SMs: 8, 16, 32, 64, all:", what.name,
              name_of(encoded.profile.codec).c_str());
  for (const int sms : {8, 16, 32, 64, 0}) {
    std::printf(" %7.1f", measure(table, gather, index, out.data(), {.max_sms = sms}));
  }
  verify(source, index, out);
  std::printf("\n");
}

void run_codec(const Case& what, const Source& source, const char* codec, const int64_t* index,
               const base::DeviceBytes& out, Gather& gather) {
  const Fit fitted = fit_on_sample(source.table, codec);
  const auto begin = std::chrono::steady_clock::now();
  const EncodedRows encoded = encode_gpu(source.table, fitted.profile);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (fitted.profile.codec == Codec::kRaw) run_zero_copy(encoded.ref.data, encoded.ref.data_bytes);
  const double raw = static_cast<double>(source.table.num_rows) * source.table.row_bytes();
  const double stored = static_cast<double>(encoded.stored_bytes());
  std::printf("%-24s %-9s %5.1f", what.name, name_of(fitted.profile.codec).c_str(), 100 * (1 - stored / raw));
  const DeviceTable table(encoded);
  for (const int sms : {2, 8, 16, 0}) {
    const double rate = measure(table, gather, index, out.data(), {.max_sms = sms});
    if (sms == 8) verify(source.table, index, out);
    std::printf(" %7.1f", rate);
  }
  std::printf(" %7.1f", measure(table, gather, index, out.data(), {.max_sms = 8, .bulk = false}));
  verify(source.table, index, out);
  std::printf(" %7.1f", measure(table, gather, index, out.data(), {.max_sms = 8, .by_address = false}));
  const DeviceTable local(encoded, Place::kDevice);
  for (const int sms : {8, 16, 32, 64, 0})
    std::printf(" %7.1f", measure(local, gather, index, out.data(), {.max_sms = sms}));
  std::printf("   %6.1f\n", raw / seconds / 1e9);
  run_peer(what, encoded, source.table, index, out, gather);
  std::fflush(stdout);
}

void run_case(const Case& what, double scale) {
  const Source source = make_source(what, scale);
  const base::DeviceArray<int64_t> index(kFetchRows);
  index_kernel<<<512, base::kBlockThreads>>>(index.data(), kFetchRows, source.table.num_rows, 9);
  const base::DeviceBytes out(std::size_t(kFetchRows) * source.table.row_bytes());
  Gather gather(kFetchRows);
  if (source.table.row_bytes() % 8 == 0) {
    std::printf("%-24s plain gather from local memory, SMs: 8, 16, 32, 64, all:", what.name);
    for (const int sms : {8, 16, 32, 64, 0}) {
      std::printf(" %7.1f", measure_plain(source.table, index.data(), out.data(), sms));
    }
    std::printf("\n");
  }
  for (const std::string codec : {"raw", "invariant", "exponent", "auto"}) {
    if (codec == "exponent" && !can_have_layers(what.dtype)) continue;            // what auto takes
    const bool slow = what.kind == Kind::kSparse && std::string(codec) == "raw";  // 7 GB a fetch, nothing new
    if (!slow) run_codec(what, source, codec.c_str(), index.data(), out, gather);
  }
}

// What the link gives to a plain copy of 1 GB.
void run_link() {
  const base::PinnedBytes host(std::size_t{1} << 30);
  const base::DeviceBytes device(host.bytes());
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<float> times;
  for (int run = 0; run < kRuns; ++run) {
    begin.record(stream);
    cuda_check(cudaMemcpyAsync(device.data(), host.data(), host.bytes(), cudaMemcpyHostToDevice, stream));
    end.record(stream);
    stream.synchronize();
    float elapsed = 0;
    cuda_check(cudaEventElapsedTime(&elapsed, begin, end));
    times.push_back(elapsed);
  }
  std::printf("cudaMemcpy from pinned host memory: %.1f GB/s\n", median_gb_per_s(int64_t(host.bytes()), times));
  run_zero_copy(host.data(), int64_t(host.bytes()));
}

}  // namespace
}  // namespace cohort::ibp

int main(int argc, char** argv) try {
  using namespace cohort::ibp;
  const double scale = argc > 1 ? std::atof(argv[1]) : 1.0;
  const std::string only = argc > 2 ? argv[2] : "";
  const Case cases[] = {{"float32 x 128, 4 GB", Kind::kGaussian, Dtype::kFloat32, 128, 4},
                        {"float32 x 128, 16 GB", Kind::kGaussian, Dtype::kFloat32, 128, 16},
                        {"float32 x 602, 3.6 GB", Kind::kGaussian, Dtype::kFloat32, 602, 3.6},
                        {"bf16 x 1024, 4 GB", Kind::kGaussian, Dtype::kBfloat16, 1024, 4},
                        {"sparse float32 x 3703", Kind::kSparse, Dtype::kFloat32, 3703, 8}};
  std::printf(
      "decoded GB/s, %lld random rows, median of %d     | from pinned host memory, SMs: 2, 8, 16, all, then 8"
      " without bulk copies, 8 unordered | local memory: 8, 16, 32, 64, all | encode\n",
      static_cast<long long>(kFetchRows), kRuns);
  run_link();
  for (const Case& what : cases) {
    if (only.empty() || std::string(what.name).find(only) != std::string::npos) run_case(what, scale);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ibp_bench: %s\n", error.what());
  return 1;
}
