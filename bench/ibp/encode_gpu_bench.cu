// Encoding on the GPU, measured: encode_gpu() from pinned host memory, with the result's memory and without, and put()
// of rows in GPU memory into tables there and in host memory, by all SMs and by 16. Usage: ibp_encode_gpu_bench [GB of
// raw rows a case, default 4]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <vector>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "base/owners.h"
#include "bench/ibp/made_rows.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

constexpr int kRuns = 5;

struct Case {
  const char* name;
  const char* codec;
  LayoutChoice layout;
  Dtype dtype;
  uint32_t num_columns;
  Kind kind;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Median seconds of `work`; what it returns is freed outside the measured time.
template <typename Work>
double median_seconds(const Work& work) {
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = now();
    const auto result = work();
    times.push_back(now() - begin);
  }
  std::sort(times.begin(), times.end());
  return times[kRuns / 2];
}

// The bounds: page-locking alone, and the link in both directions at once.
void run_bounds(std::size_t bytes) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const double whole = median_seconds([&] { return std::make_unique<base::PinnedBytes>(bytes); });
  std::printf("page-locking %.1f GB: %.1f GB/s\n", gigabytes, gigabytes / whole);
  const base::PinnedBytes from(bytes), to(bytes);
  const base::DeviceBytes a(bytes), b(bytes);
  const base::Stream in, out;
  const double both = median_seconds([&] {
    cuda_check(cudaMemcpyAsync(a.data(), from.data(), bytes, cudaMemcpyHostToDevice, in));
    cuda_check(cudaMemcpyAsync(to.data(), b.data(), bytes, cudaMemcpyDeviceToHost, out));
    in.synchronize();
    out.synchronize();
    return 0;
  });
  std::printf("the link, both directions at once: %.1f GB/s each\n", gigabytes / both);
}

void run_case(const Case& what, double raw_gigabytes) {
  RowTable rows{nullptr, 0, what.dtype, what.num_columns};
  rows.num_rows = static_cast<int64_t>(raw_gigabytes * 1e9 / rows.row_bytes());
  const auto bytes = static_cast<std::size_t>(rows.num_rows) * rows.row_bytes();
  const base::PinnedBytes host(bytes);
  {
    const base::DeviceBytes device(bytes);
    fill_kernel<<<4096, base::kBlockThreads>>>(device.data(), rows.num_rows, rows.num_columns, rows.dtype, what.kind);
    cuda_check(cudaMemcpy(host.data(), device.data(), bytes, cudaMemcpyDeviceToHost), "make rows");
  }
  rows.data = host.data();
  const Profile profile = fit(rows, {.codec = what.codec, .sample = 1e-6}).profile;
  const EncodeOptions options{.layout = what.layout};
  double stored = 0;
  const double included = median_seconds([&] {
    EncodedRows encoded = encode_gpu(rows, profile, options);
    stored = static_cast<double>(encoded.stored_bytes());
    return encoded;
  });
  const base::PinnedBytes memory(static_cast<std::size_t>(data_bound(profile, rows.num_rows, options)));
  const std::span<std::byte> out(memory.data(), memory.bytes());
  const double excluded = median_seconds([&] { return encode_gpu(rows, profile, options, out); });
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  std::printf("%-22s %-10s %-7s %8.1f %10.1f %10.1f\n", what.name, name_of(profile.codec).c_str(),
              what.layout == LayoutChoice::kSlots ? "slots" : "packed", 100 * (1 - stored / static_cast<double>(bytes)),
              gigabytes / included, gigabytes / excluded);
  std::fflush(stdout);
}

// Raw GB/s of put(), the median of kRuns: all rows of a table, in a random order.
double put_rate(DeviceWritableRows& table, const int64_t* ids, const std::byte* rows, int64_t count, int max_sms) {
  const base::Stream stream;
  const base::Event begin, end;
  std::vector<double> rates;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    begin.record(stream);
    table.put(ids, rows, count, stream, {.max_sms = max_sms});
    end.record(stream);
    end.synchronize();
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin, end), "time a put");
    table.check();
    if (run > 0) rates.push_back(static_cast<double>(count) * table.profile().row_bytes() / 1e6 / milliseconds);
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRuns / 2];
}

void run_put(const Case& what, double raw_gigabytes) {
  RowTable rows{nullptr, 0, what.dtype, what.num_columns};
  rows.num_rows = static_cast<int64_t>(raw_gigabytes * 1e9 / rows.row_bytes());
  const auto bytes = static_cast<std::size_t>(rows.num_rows) * rows.row_bytes();
  const base::DeviceBytes device(bytes);
  fill_kernel<<<4096, base::kBlockThreads>>>(device.data(), rows.num_rows, rows.num_columns, rows.dtype, what.kind);
  std::vector<std::byte> host(bytes);
  cuda_check(cudaMemcpy(host.data(), device.data(), bytes, cudaMemcpyDeviceToHost), "make rows");
  rows.data = host.data();
  const EncodedRows encoded =
      encode(rows, fit(rows, {.codec = what.codec, .sample = 1e-6}).profile, {.layout = what.layout});
  std::vector<int64_t> order(static_cast<std::size_t>(rows.num_rows));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<std::byte> shuffled(bytes);  // row order[i] at i, so that each row is put where it was
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::memcpy(shuffled.data() + i * rows.row_bytes(), rows.row(order[i]), rows.row_bytes());
  }
  base::copy_to_gpu(device.data(), shuffled.data(), bytes);
  const auto ids = base::upload(order);
  for (const Place place : {Place::kDevice, Place::kPinned}) {
    DeviceWritableRows table(encoded, place, rows.num_rows);
    const double all = put_rate(table, ids.data(), device.data(), rows.num_rows, 0);
    const double some = put_rate(table, ids.data(), device.data(), rows.num_rows, 16);
    std::printf("%-22s %-10s %-7s %10.1f %10.1f\n", what.name, name_of(encoded.profile.codec).c_str(),
                place == Place::kPinned ? "host" : "GPU", all, some);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cohort::ibp

int main(int argc, char** argv) try {
  using namespace cohort::ibp;
  const double gigabytes = argc > 1 ? std::atof(argv[1]) : 4;
  run_bounds(static_cast<std::size_t>(gigabytes * 1e9));
  std::printf("%-22s %-10s %-7s %8s %10s %10s\n", "raw GB/s, median of 5", "codec", "layout", "saved %", "memory in",
              "memory out");
  const auto packed = LayoutChoice::kPacked, slots = LayoutChoice::kSlots;
  for (const Case& what : {Case{"float32 x 128", "exponent", slots, Dtype::kFloat32, 128, Kind::kGaussian},
                           Case{"float32 x 128", "exponent", packed, Dtype::kFloat32, 128, Kind::kGaussian},
                           Case{"float32 x 128", "invariant", packed, Dtype::kFloat32, 128, Kind::kGaussian},
                           Case{"bf16 x 1024", "exponent", slots, Dtype::kBfloat16, 1024, Kind::kGaussian},
                           Case{"bf16 x 1024", "exponent", packed, Dtype::kBfloat16, 1024, Kind::kGaussian},
                           Case{"sparse float32 x 3703", "sparse", packed, Dtype::kFloat32, 3703, Kind::kSparse}}) {
    run_case(what, gigabytes);
  }
  std::printf("\n%-22s %-10s %-7s %10s %10s\n", "put, raw GB/s", "codec", "table", "all SMs", "16 SMs");
  for (const Case& what : {Case{"float32 x 128", "exponent", slots, Dtype::kFloat32, 128, Kind::kGaussian},
                           Case{"float32 x 128", "invariant", slots, Dtype::kFloat32, 128, Kind::kGaussian},
                           Case{"float32 x 128", "raw", packed, Dtype::kFloat32, 128, Kind::kGaussian},
                           Case{"bf16 x 1024", "exponent", slots, Dtype::kBfloat16, 1024, Kind::kGaussian},
                           Case{"sparse float32 x 3703", "sparse", packed, Dtype::kFloat32, 3703, Kind::kSparse}}) {
    run_put(what, std::min(gigabytes, 2.0));
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "ibp_encode_gpu_bench: %s\n", error.what());
  return 1;
}
