// Prints rows of a file of encoded float32 rows, which cohort.ibp.Table.save() and `cohort ibp encode` write:
//   fetch_rows FILE ID...
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "ibp/ibp.h"
#ifdef COHORT_WITH_CUDA
#include "base/cuda_check.h"
#include "base/device.h"
#include "ibp/gpu.h"

// By the current GPU, from rows in host memory.
void fetch_by_gpu(const cohort::ibp::EncodedRows& encoded, const std::vector<int64_t>& ids, std::vector<float>& rows) {
  using namespace cohort;
  const auto count = static_cast<int64_t>(ids.size());
  const ibp::DeviceTable table(encoded, ibp::Place::kPinned);
  ibp::Gather gather(count);
  const base::DeviceArray<int64_t> index = base::upload(ids);
  const base::DeviceArray<float> out(rows.size());
  gather.fetch(table, index.data(), count, out.data(), nullptr, {.check = true});
  base::cuda_check(cudaMemcpy(rows.data(), out.data(), rows.size() * sizeof(float), cudaMemcpyDeviceToHost));
}
#endif

int main(int argc, char** argv) try {
  using namespace cohort;
  if (argc < 3) throw std::runtime_error("usage: fetch_rows FILE ID...");
  const ibp::EncodedRows encoded = ibp::load(argv[1]);
  const uint32_t num_columns = encoded.profile.num_columns;
  if (encoded.profile.dtype != ibp::Dtype::kFloat32) throw std::runtime_error("these rows are not float32");
  std::vector<int64_t> ids;
  for (int i = 2; i < argc; ++i) ids.push_back(std::stoll(argv[i]));
  std::vector<float> rows(ids.size() * num_columns);
#ifdef COHORT_WITH_CUDA
  if (!base::visible_gpus().empty()) {
    fetch_by_gpu(encoded, ids, rows);
  } else {
    ibp::fetch(encoded, ids, rows.data());
  }
#else
  ibp::fetch(encoded, ids, rows.data());
#endif
  for (std::size_t i = 0; i < rows.size(); ++i) std::printf("%.9g%c", rows[i], (i + 1) % num_columns ? ' ' : '\n');
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fetch_rows: %s\n", error.what());
  return 1;
}
