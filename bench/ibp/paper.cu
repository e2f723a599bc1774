// Usage: ibp_paper OUT.jsonl [--scale S] [--only copy|decode|codecs] [--rows NAME:DTYPE:COLUMNS:FILE]...
// FILE holds plain rows of COLUMNS elements. `python bench/ibp --paper` builds, runs and draws; see there.
#include <cuda_runtime.h>
#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/launch.h"
#include "base/random.h"
#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {
namespace {

using base::cuda_check;
using base::Error;

__global__ void fill_kernel(uint64_t* words, int64_t count) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    words[i] = base::random_64(base::key_of(kFillSeed), uint64_t(i), 0);
  }
}

// num_rows == 0: counts.
__global__ void index_kernel(int64_t* index, int64_t count, int64_t num_rows) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    index[i] = num_rows == 0 ? i : int64_t(base::random_below(uint64_t(num_rows), base::key_of(9), uint64_t(i), 0));
  }
}

// A warp compares a row.
__global__ void compare_kernel(const std::byte* rows, const int64_t* index, const std::byte* out, int64_t count,
                               uint32_t row_bytes, unsigned long long* wrong) {
  for (int64_t i = base::grid_first() / 32; i < count; i += base::grid_step() / 32) {
    const std::byte *expected = rows + index[i] * row_bytes, *found = out + i * row_bytes;
    for (uint32_t k = threadIdx.x % 32; k < row_bytes; k += 32) {
      if (expected[k] != found[k]) atomicAdd(wrong, 1ull);
    }
  }
}

base::DeviceArray<int64_t> make_index(int64_t count, int64_t num_rows) {
  base::DeviceArray<int64_t> index(static_cast<std::size_t>(count));
  index_kernel<<<512, base::kBlockThreads>>>(index.data(), count, num_rows);
  cuda_check(cudaDeviceSynchronize(), "make an index");
  return index;
}

Dtype dtype_named(const std::string& name) {
  for (const Dtype dtype : {Dtype::kUint8, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kBits32}) {
    if (name_of(dtype) == name) return dtype;
  }
  throw Error({"--rows: dtype", "uint8, float16, bfloat16, float32 or bits32", name, ""});
}

RowsFile read_rows(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (parts.size() < 3) {
    const std::size_t to = text.find(':', from);
    if (to == std::string::npos) throw Error({"--rows", "NAME:DTYPE:COLUMNS:FILE", text, ""});
    parts.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  RowsFile rows;
  rows.name = parts[0];
  rows.table.dtype = dtype_named(parts[1]);
  rows.table.num_columns = static_cast<uint32_t>(std::strtoul(parts[2].c_str(), nullptr, 10));
  const std::string path = text.substr(from);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto bytes = file ? static_cast<int64_t>(file.tellg()) : 0;
  const int64_t row_bytes = rows.table.row_bytes();
  if (bytes <= 0 || row_bytes == 0 || bytes % row_bytes != 0) {
    throw Error({path, "rows of " + parts[2] + " " + parts[1], std::to_string(bytes) + " bytes", ""});
  }
  rows.bytes.resize(static_cast<std::size_t>(bytes));
  file.seekg(0).read(reinterpret_cast<char*>(rows.bytes.data()), bytes);
  if (!file) throw Error({path, std::to_string(bytes) + " bytes", "a read error", ""});
  rows.table.num_rows = bytes / row_bytes;
  rows.table.data = rows.bytes.data();
  return rows;
}

// The link's rate for one plain copy of 1 GiB, and what it was measured on.
void write_hardware(const Lines& lines, double scale) {
  cudaDeviceProp properties{};
  int runtime = 0, driver = 0;
  cuda_check(cudaGetDeviceProperties(&properties, 0));
  cuda_check(cudaRuntimeGetVersion(&runtime));
  cuda_check(cudaDriverGetVersion(&driver));
  const base::PinnedBytes host(std::size_t{1} << 30);
  const base::DeviceBytes device(host.bytes());
  const double seconds = gpu_seconds(7, [&](cudaStream_t stream) {
    cuda_check(cudaMemcpyAsync(device.data(), host.data(), host.bytes(), cudaMemcpyHostToDevice, stream));
  });
  lines.write("hardware", {{"gpu", std::string(properties.name)},
                           {"sms", int64_t{properties.multiProcessorCount}},
                           {"cuda_runtime", int64_t{runtime}},
                           {"cuda_driver", int64_t{driver}},
                           {"cpu_threads", int64_t{omp_get_max_threads()}},
                           {"scale", scale},
                           {"memcpy_gb_per_s", gb_per_s(int64_t(host.bytes()), seconds)}});
}

struct Arguments {
  std::string out, only;
  double scale = 1;
  std::vector<std::string> rows;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  if (argc < 2) throw Error({"ibp_paper", "OUT.jsonl", "nothing", "python bench/ibp --paper runs it"});
  arguments.out = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) throw Error({"ibp_paper " + name, "a value", "none", ""});
    const std::string value = argv[i + 1];
    if (name == "--scale") {
      arguments.scale = std::strtod(value.c_str(), nullptr);
      if (!(arguments.scale > 0 && arguments.scale <= 16)) throw Error({name, "above 0, up to 16", value, ""});
    } else if (name == "--only" && (value == "copy" || value == "decode" || value == "codecs")) {
      arguments.only = value;
    } else if (name == "--rows") {
      arguments.rows.push_back(value);
    } else {
      throw Error({"ibp_paper", "--scale S, --only copy|decode|codecs, --rows R", name + " " + value, ""});
    }
  }
  return arguments;
}

void run(const Arguments& arguments) {
  const Lines lines(arguments.out);
  const auto wanted = [&](const char* part) { return arguments.only.empty() || arguments.only == part; };
  write_hardware(lines, arguments.scale);
  if (wanted("copy")) run_copy_methods(lines, arguments.scale);
  if (wanted("decode")) run_decode_sweep(lines, arguments.scale);
  if (!wanted("codecs")) return;
  for (const std::string& rows : arguments.rows) run_codecs(lines, read_rows(rows), arguments.scale);
}

}  // namespace

void fill_random(void* data, int64_t bytes) {
  fill_kernel<<<2048, base::kBlockThreads>>>(static_cast<uint64_t*>(data), bytes / 8);
  cuda_check(cudaDeviceSynchronize(), "make random words");
}

base::DeviceArray<int64_t> random_index(int64_t count, int64_t num_rows) { return make_index(count, num_rows); }
base::DeviceArray<int64_t> counting_index(int64_t count) { return make_index(count, 0); }

void require_equal_rows(const void* rows, const int64_t* index, const void* out, int64_t count, uint32_t row_bytes) {
  const base::DeviceArray<unsigned long long> wrong(1);
  cuda_check(cudaMemset(wrong.data(), 0, sizeof(unsigned long long)));
  compare_kernel<<<4096, base::kBlockThreads>>>(static_cast<const std::byte*>(rows), index,
                                                static_cast<const std::byte*>(out), count, row_bytes, wrong.data());
  unsigned long long found = 0;
  cuda_check(cudaMemcpy(&found, wrong.data(), sizeof(found), cudaMemcpyDeviceToHost), "compare rows");
  base::require(found == 0, "fetched rows equal their source");
}

int num_sms() {
  int device = 0, count = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

}  // namespace cohort::ibp::paper

int main(int argc, char** argv) {
  try {
    cohort::ibp::paper::run(cohort::ibp::paper::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ibp_paper: %s\n", error.what());
    return 1;
  }
  return 0;
}
