// Tables 1 to 3: all rows of a table, each once, brought from pinned host memory and decoded.
#include <cuda_runtime.h>

#include "bench/ibp/paper.h"

namespace cohort::ibp::paper {
namespace {

using base::cuda_check;

constexpr int64_t kMaxBytes = int64_t{512} << 20;
constexpr int kRuns = 11;

DeviceRows repeat_rows(const RowsFile& file, double scale) {
  DeviceRows rows;
  rows.name = file.name;
  rows.table = file.table;
  const int64_t row_bytes = rows.table.row_bytes();
  const auto most = static_cast<int64_t>(static_cast<double>(kMaxBytes) * scale) / row_bytes;
  rows.table.num_rows = std::min(kFetchRows, std::max<int64_t>(most, 1));
  rows.bytes = base::DeviceBytes(static_cast<std::size_t>(rows.table.num_rows * row_bytes));
  rows.table.data = rows.bytes.data();
  for (int64_t first = 0; first < rows.table.num_rows; first += file.table.num_rows) {
    const int64_t count = std::min(file.table.num_rows, rows.table.num_rows - first);
    cuda_check(cudaMemcpy(rows.bytes.data() + first * row_bytes, file.table.data,
                          static_cast<std::size_t>(count * row_bytes), cudaMemcpyHostToDevice));
  }
  return rows;
}

void run_codec(const Lines& lines, const RowsFile& file, const DeviceRows& rows, const std::string& codec) {
  const int64_t count = rows.table.num_rows, raw_bytes = count * rows.table.row_bytes();
  const auto index = counting_index(count);
  const base::DeviceBytes out(static_cast<std::size_t>(raw_bytes));
  const Profile profile = fit(file.table, {.codec = codec}).profile;
  const double fit_seconds = wall_seconds(1, [&] { fit(file.table, {.codec = codec}); });
  const double encode_seconds = wall_seconds(1, [&] { encode_gpu(rows.table, profile); });
  const EncodedRows encoded = encode_gpu(rows.table, profile);
  const DeviceTable table(encoded);
  Gather gather(count);
  const double seconds =
      gpu_seconds(kRuns, [&](cudaStream_t stream) { gather.fetch(table, index.data(), count, out.data(), stream); });
  gather.check();
  require_equal_rows(rows.table.data, index.data(), out.data(), count, rows.table.row_bytes());
  const double saved = 100 * (1 - static_cast<double>(encoded.stored_bytes()) / static_cast<double>(raw_bytes));
  lines.write("codec", {{"rows", rows.name},
                        {"num_rows", count},
                        {"row_bytes", int64_t{rows.table.row_bytes()}},
                        {"algorithm", codec == "raw" ? codec : "cohort " + name_of(profile.codec)},
                        {"saved_percent", saved},
                        {"gb_per_s", gb_per_s(raw_bytes, seconds)},
                        {"compress_ms", 1e3 * (fit_seconds + encode_seconds)}});
}

}  // namespace

void run_codecs(const Lines& lines, const RowsFile& file, double scale) {
  const DeviceRows rows = repeat_rows(file, scale);
  const std::string best = name_of(fit(file.table).profile.codec);
  run_codec(lines, file, rows, "raw");
  run_codec(lines, file, rows, "invariant");
  if (best != "raw" && best != "invariant") run_codec(lines, file, rows, best);
  run_nvcomp(lines, rows);
}

}  // namespace cohort::ibp::paper
