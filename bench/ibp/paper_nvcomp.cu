// nvCOMP beside our codecs: the batched interface, a chunk a row.
#include <cuda_runtime.h>

#include "base/launch.h"
#include "bench/ibp/paper_nvcomp.h"

namespace cohort::ibp::paper {
namespace {

using base::cuda_check;
using base::Error;

constexpr int kRuns = 3;

int64_t round_up_16(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Row i of [count, stride_bytes], or of rows that begin at offsets[i].
__global__ void pointers_kernel(std::byte* rows, const std::size_t* offsets, std::size_t stride_bytes, int64_t count,
                                void** pointers) {
  for (int64_t i = base::grid_first(); i < count; i += base::grid_step()) {
    pointers[i] = rows + (offsets ? offsets[i] : std::size_t(i) * stride_bytes);
  }
}

// One table, an algorithm at a time. Rows lie at multiples of 16, which satisfies every algorithm.
class Bench {
 public:
  explicit Bench(const DeviceRows& rows)
      : rows_(rows),
        count_(static_cast<std::size_t>(rows.table.num_rows)),
        row_bytes_(rows.table.row_bytes()),
        stride_(static_cast<std::size_t>(round_up_16(int64_t(row_bytes_)))),
        input_(count_ * stride_),
        output_(count_ * stride_),
        input_rows_(pointers(input_.data(), nullptr, stride_)),
        output_rows_(pointers(output_.data(), nullptr, stride_)),
        plain_sizes_(upload(std::vector<std::size_t>(count_, row_bytes_))),
        sizes_(count_),
        decoded_sizes_(count_),
        statuses_(count_) {
    cuda_check(cudaMemset(input_.data(), 0, input_.bytes()));
    cuda_check(cudaMemcpy2D(input_.data(), stride_, rows.table.data, row_bytes_, row_bytes_, count_,
                            cudaMemcpyDeviceToDevice));
  }

  void run(const Lines& lines, const char* name, const Algorithm& algorithm) {
    const double compress_seconds = compress(algorithm);
    const auto [bytes, offsets] = pack();
    const base::DeviceBytes temp(std::max<std::size_t>(algorithm.decompress_temp(count_, row_bytes_), 8));
    // In place: nvCOMP reads the rows from pinned memory, as Gather does.
    const auto host_rows = pointers(packed_.data(), offsets.data(), 0);
    const double in_place = seconds(algorithm, host_rows.data(), temp, nullptr);
    // Copied: all compressed rows in one piece first.
    const base::DeviceBytes copied(packed_.bytes());
    const auto copied_rows = pointers(copied.data(), offsets.data(), 0);
    const double copy_first = seconds(algorithm, copied_rows.data(), temp, &copied);
    const auto raw_bytes = static_cast<int64_t>(count_ * row_bytes_);
    lines.write("codec", {{"rows", rows_.name},
                          {"num_rows", int64_t(count_)},
                          {"row_bytes", int64_t(row_bytes_)},
                          {"algorithm", name},
                          {"saved_percent", 100 * (1 - static_cast<double>(bytes) / static_cast<double>(raw_bytes))},
                          {"gb_per_s", gb_per_s(raw_bytes, in_place)},
                          {"copy_first_gb_per_s", gb_per_s(raw_bytes, copy_first)},
                          {"compress_ms", 1e3 * compress_seconds}});
  }

 private:
  base::DeviceArray<void*> pointers(std::byte* rows, const std::size_t* offsets, std::size_t stride_bytes) const {
    base::DeviceArray<void*> array(count_);
    pointers_kernel<<<512, base::kBlockThreads>>>(rows, offsets, stride_bytes, int64_t(count_), array.data());
    cuda_check(cudaDeviceSynchronize(), "point at rows");
    return array;
  }

  static base::DeviceArray<std::size_t> upload(const std::vector<std::size_t>& values) {
    base::DeviceArray<std::size_t> array(values.size());
    cuda_check(cudaMemcpy(array.data(), values.data(), values.size() * 8, cudaMemcpyHostToDevice));
    return array;
  }

  void check_statuses(const char* what) const {
    std::vector<nvcompStatus_t> statuses(count_);
    cuda_check(cudaMemcpy(statuses.data(), statuses_.data(), count_ * sizeof(nvcompStatus_t), cudaMemcpyDeviceToHost));
    for (const nvcompStatus_t status : statuses) nvcomp_check(status, what);
  }

  // Compressed rows in compressed_, their lengths in sizes_.
  double compress(const Algorithm& algorithm) {
    compressed_stride_ = static_cast<std::size_t>(round_up_16(int64_t(algorithm.max_compressed(row_bytes_))));
    compressed_ = base::DeviceBytes();
    compressed_ = base::DeviceBytes(count_ * compressed_stride_);
    const auto to = pointers(compressed_.data(), nullptr, compressed_stride_);
    const base::DeviceBytes temp(std::max<std::size_t>(algorithm.compress_temp(count_, row_bytes_), 8));
    cuda_check(cudaMemset(statuses_.data(), 0, count_ * sizeof(nvcompStatus_t)));
    const double median = gpu_seconds(kRuns, [&](cudaStream_t stream) {
      algorithm.compress(input_rows_.data(), plain_sizes_.data(), row_bytes_, count_, temp, to.data(), sizes_.data(),
                         statuses_.data(), stream);
    });
    check_statuses("compress a row");
    return median;
  }

  // The compressed rows, at multiples of 16, in packed_; returns their bytes without the gaps, and their offsets.
  std::pair<std::size_t, base::DeviceArray<std::size_t>> pack() {
    std::vector<std::size_t> sizes(count_), offsets(count_);
    cuda_check(cudaMemcpy(sizes.data(), sizes_.data(), count_ * 8, cudaMemcpyDeviceToHost));
    std::size_t bytes = 0, end = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      offsets[i] = end;
      bytes += sizes[i];
      end += static_cast<std::size_t>(round_up_16(int64_t(sizes[i])));
    }
    packed_ = base::PinnedBytes();
    packed_ = base::PinnedBytes(end);
    const base::PinnedBytes loose(compressed_.bytes());
    cuda_check(cudaMemcpy(loose.data(), compressed_.data(), loose.bytes(), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < count_; ++i) {
      std::copy_n(loose.data() + i * compressed_stride_, sizes[i], packed_.data() + offsets[i]);
    }
    return {bytes, upload(offsets)};
  }

  // Median seconds to bring and decode all rows; `copied`: where to copy them first.
  double seconds(const Algorithm& algorithm, void* const* from, const base::DeviceBytes& temp,
                 const base::DeviceBytes* copied) {
    cuda_check(cudaMemset(output_.data(), 0xA5, output_.bytes()));
    const double median = gpu_seconds(kRuns, [&](cudaStream_t stream) {
      if (copied) {
        cuda_check(cudaMemcpyAsync(copied->data(), packed_.data(), packed_.bytes(), cudaMemcpyHostToDevice, stream));
      }
      algorithm.decompress(from, sizes_.data(), plain_sizes_.data(), decoded_sizes_.data(), count_, temp,
                           output_rows_.data(), statuses_.data(), stream);
    });
    check_statuses("decompress a row");
    check_output();
    return median;
  }

  void check_output() const {
    const auto index = counting_index(int64_t(count_));
    const base::DeviceBytes rows(count_ * row_bytes_);
    cuda_check(
        cudaMemcpy2D(rows.data(), row_bytes_, output_.data(), stride_, row_bytes_, count_, cudaMemcpyDeviceToDevice));
    require_equal_rows(rows_.table.data, index.data(), rows.data(), int64_t(count_), rows_.table.row_bytes());
  }

  const DeviceRows& rows_;
  std::size_t count_, row_bytes_, stride_, compressed_stride_ = 0;
  base::DeviceBytes input_, output_, compressed_;
  base::PinnedBytes packed_;
  base::DeviceArray<void*> input_rows_, output_rows_;                   // void* [count]
  base::DeviceArray<std::size_t> plain_sizes_, sizes_, decoded_sizes_;  // size_t [count]
  base::DeviceArray<nvcompStatus_t> statuses_;
};

// What an algorithm refuses (rows that are too short for it, say) is a line of the table.
void run_one(const Lines& lines, Bench& bench, const DeviceRows& rows, const char* name, const Algorithm& algorithm) {
  try {
    bench.run(lines, name, algorithm);
  } catch (const Error& error) {
    lines.write("codec", {{"rows", rows.name}, {"algorithm", name}, {"missing", std::string(error.what())}});
  }
}

}  // namespace

void run_nvcomp(const Lines& lines, const DeviceRows& rows) {
  Bench bench(rows);
  const bool halves = element_bytes(rows.table.dtype) == 2;
  const nvcompType_t element = halves ? NVCOMP_TYPE_USHORT : NVCOMP_TYPE_UINT;
  Bitcomp bitcomp;
  bitcomp.compress_options.data_type = element;
  Cascaded cascaded;
  cascaded.compress_options.common_opts.data_type = element;
  run_one(lines, bench, rows, "ANS", ANS());
  run_one(lines, bench, rows, "Bitcomp", bitcomp);
  run_one(lines, bench, rows, "Cascaded", cascaded);
  run_one(lines, bench, rows, "GDeflate", Gdeflate());
  run_one(lines, bench, rows, "LZ4", LZ4());
  run_one(lines, bench, rows, "Snappy", Snappy());
  run_one(lines, bench, rows, "zStd", Zstd());
}

}  // namespace cohort::ibp::paper
