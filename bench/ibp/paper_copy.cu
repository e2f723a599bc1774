// Figure 5: ways to bring random rows of an array in pinned host memory to the GPU. Rows are one element longer than a
// power of two, so that they start at any multiple of 4 bytes, as the paper's unaligned elements do.
#include <cuda_runtime.h>

#include <cmath>

#include "base/launch.h"
#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {
namespace {

using base::cuda_check;

constexpr uint32_t kRowBytes[] = {68, 132, 260, 516, 1028, 2052, 4100};
constexpr int kThreads = 1024;  // of a zero-copy block
constexpr int kRuns = 5;
constexpr double kTableBytes = 4e9;

__device__ int64_t first_warp() { return base::grid_first() / 32; }
__device__ int64_t warp_step() { return base::grid_step() / 32; }

// "GPU": a warp copies a row, 4 bytes a lane, from where the row starts.
__global__ void copy_words_kernel(const std::byte* rows, const int64_t* index, int64_t count, uint32_t row_bytes,
                                  uint32_t* out) {
  const uint32_t words = row_bytes / 4;
  for (int64_t i = first_warp(); i < count; i += warp_step()) {
    const auto* from = reinterpret_cast<const uint32_t*>(rows + index[i] * row_bytes);
    for (uint32_t k = threadIdx.x % 32; k < words; k += 32) out[i * words + k] = from[k];
  }
}

// "GPU (aligned)": a warp copies a row, 16 bytes a lane, in steps that begin at multiples of 128.
__global__ void copy_lines_kernel(const std::byte* rows, const int64_t* index, int64_t count, uint32_t row_bytes,
                                  uint32_t* out) {
  const int32_t words = static_cast<int32_t>(row_bytes / 4);
  for (int64_t i = first_warp(); i < count; i += warp_step()) {
    const auto begin = reinterpret_cast<uintptr_t>(rows + index[i] * row_bytes);
    const uintptr_t line = begin & ~uintptr_t{kLineBytes - 1};
    const auto skipped = static_cast<int32_t>(begin - line) / 4;
    for (int32_t k = static_cast<int32_t>(threadIdx.x % 32) * 4 - skipped; k < words; k += 128) {
      if (k + 4 <= 0) continue;
      const uint4 four = *reinterpret_cast<const uint4*>(begin + int64_t{k} * 4);
      const uint32_t parts[] = {four.x, four.y, four.z, four.w};
      for (int32_t j = 0; j < 4; ++j) {
        if (k + j >= 0 && k + j < words) out[i * words + k + j] = parts[j];
      }
    }
  }
}

using CopyKernel = void (*)(const std::byte*, const int64_t*, int64_t, uint32_t, uint32_t*);

// One row size: the table in pinned memory, what to fetch, and where it goes.
class Case {
 public:
  Case(const Lines& lines, const base::PinnedBytes& pinned, uint32_t row_bytes)
      : lines_(lines),
        rows_{pinned.data(), int64_t(pinned.bytes()) / row_bytes - 1, Dtype::kBits32, row_bytes / 4},
        encoded_(encode_in_place(rows_, raw_profile(row_bytes / 4))),
        count_(std::clamp<int64_t>((int64_t{256} << 20) / row_bytes, kFetchRows, 5 * kFetchRows)),
        index_(random_index(count_, rows_.num_rows)),
        host_index_(static_cast<std::size_t>(count_)),
        out_(static_cast<std::size_t>(count_) * row_bytes),
        table_(encoded_),
        gather_(count_) {
    cuda_check(cudaMemcpy(host_index_.data(), index_.data(), host_index_.size() * 8, cudaMemcpyDeviceToHost));
  }

  void run() {
    copy_each_row();
    copy_after_cpu_gather();
    for (const int sms : {4, 16, 0}) {
      launch("zero_copy", copy_words_kernel, sms);
      launch("zero_copy_aligned", copy_lines_kernel, sms);
      fetch("gather_unordered", false, sms);
      fetch("gather", true, sms);
    }
  }

 private:
  // "CPU (fine-grained)": a cudaMemcpy a row; so slow that few rows show it.
  void copy_each_row() {
    const int64_t count = std::min<int64_t>(count_, 5000);
    const base::Stream stream;
    const double seconds = wall_seconds(1, [&] {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = host_index_[static_cast<std::size_t>(i)];
        cuda_check(cudaMemcpyAsync(out_.data() + i * rows_.row_bytes(), rows_.row(row), rows_.row_bytes(),
                                   cudaMemcpyHostToDevice, stream));
      }
    });
    note("memcpy_each_row", 0, count, seconds);
  }

  // "CPU (bulk)": the CPU's cores put the rows together, then one cudaMemcpy.
  void copy_after_cpu_gather() {
    const base::PinnedBytes together(out_.bytes());
    const double seconds = wall_seconds(3, [&] {
      ibp::fetch(encoded_, host_index_, together.data());
      cuda_check(cudaMemcpyAsync(out_.data(), together.data(), out_.bytes(), cudaMemcpyHostToDevice));
    });
    note("cpu_gather", 0, count_, seconds);
  }

  void launch(const char* method, CopyKernel kernel, int sms) {
    const int blocks = sms > 0 ? sms : 2 * num_sms();
    const double seconds = gpu_seconds(kRuns, [&](cudaStream_t stream) {
      kernel<<<blocks, kThreads, 0, stream>>>(rows_.row(0), index_.data(), count_, rows_.row_bytes(),
                                              reinterpret_cast<uint32_t*>(out_.data()));
      cuda_check(cudaGetLastError(), method);
    });
    note(method, sms, count_, seconds);
  }

  void fetch(const char* method, bool by_address, int sms) {
    const double seconds = gpu_seconds(kRuns, [&](cudaStream_t stream) {
      gather_.fetch(table_, index_.data(), count_, out_.data(), stream, {.max_sms = sms, .by_address = by_address});
    });
    gather_.check();
    note(method, sms, count_, seconds);
  }

  // Checks what the method brought, writes its line, and spoils the output for the next.
  void note(const char* method, int sms, int64_t count, double seconds) {
    require_equal_rows(rows_.data, index_.data(), out_.data(), count, rows_.row_bytes());
    lines_.write("copy", {{"method", method},
                          {"row_bytes", int64_t{rows_.row_bytes()}},
                          {"rows", count},
                          {"sms", int64_t{sms > 0 ? sms : num_sms()}},
                          {"gb_per_s", gb_per_s(count * rows_.row_bytes(), seconds)}});
    cuda_check(cudaMemset(out_.data(), 0xA5, out_.bytes()));
  }

  const Lines& lines_;
  RowTable rows_;
  EncodedRows encoded_;
  int64_t count_;
  base::DeviceArray<int64_t> index_;
  std::vector<int64_t> host_index_;
  base::DeviceBytes out_;
  DeviceTable table_;
  Gather gather_;
};

}  // namespace

void run_copy_methods(const Lines& lines, double scale) {
  const auto bytes = static_cast<int64_t>(kTableBytes * scale) / 4096 * 4096;
  const base::PinnedBytes pinned(static_cast<std::size_t>(bytes));
  fill_random(pinned.data(), bytes);
  for (const uint32_t row_bytes : kRowBytes) Case(lines, pinned, row_bytes).run();
}

}  // namespace cohort::ibp::paper
