// Learned rows: the CUDA body against that of the host, bit for bit, on tables in GPU memory and in host memory.
#include <gtest/gtest.h>

#include "base/host_table.h"
#include "tests/base/on_gpu.h"
#include "tests/trainer/nn/native/learned_tables.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kRows = 5'000, kCount = 12'000;

using base::download;

// A copy of a table where the GPU reaches it.
struct TableOnGpu {
  TableOnGpu(const RandomTable& table, const HotIndex& index, bool on_host)
      : size(table.rows.size()),
        host(on_host ? size * sizeof(float) : 0),
        device(on_host ? base::DeviceArray<float>() : base::upload(table.rows)),
        hot(base::upload(table.hot)),
        bits(base::upload(index.bits)),
        before(base::upload(index.before)) {
    if (!on_host) return;
    std::memcpy(host.data(), table.rows.data(), host.bytes());
    host.open_to_gpu();
  }
  float* rows() const { return host.bytes() ? reinterpret_cast<float*>(host.data()) : device.data(); }
  LearnedRows ref() const { return {rows(), hot.size() ? hot.data() : nullptr, bits.data(), before.data()}; }
  bool equals(const RandomTable& table) const {
    return same_bits(download(rows(), size), table.rows) && same_bits(download(hot), table.hot);
  }

  std::size_t size;
  base::HostTable host;
  base::DeviceArray<float> device, hot;
  base::DeviceArray<uint32_t> bits;
  base::DeviceArray<int32_t> before;
};

class GpuLearnedRows : public ::testing::TestWithParam<std::tuple<int64_t, int, bool>> {};

TEST_P(GpuLearnedRows, AreTakenAsByTheHost) {
  const auto [dim, hot, on_host] = GetParam();
  const HotIndex index(kRows, static_cast<uint64_t>(hot));
  RandomTable table(kRows, dim, index, 1);
  const RandomLookups lookups(kCount, kRows);
  std::vector<float> out(kCount * dim);
  int64_t bad = 0;
  TakeRowsCall call{table.ref(index),         kRows,      dim,  kCount, lookups.ids.data(),
                    lookups.row_index.data(), out.data(), &bad, {}};
  run_on_host(call);
  const TableOnGpu on_gpu(table, index, on_host);
  const auto ids = base::upload(lookups.ids), row_index = base::upload(lookups.row_index),
             told = base::upload<int64_t>({0});
  const base::DeviceArray<float> found(out.size());
  call.table = on_gpu.ref(), call.ids = ids.data(), call.row_index = row_index.data();
  call.out = found.data(), call.bad = told.data();
  const base::Stream stream;
  run_on_gpu(call, stream);
  stream.synchronize();
  EXPECT_TRUE(same_bits(download(found), out));
  bad = download(told)[0];
  EXPECT_TRUE(bad == -2 || bad == kRows) << bad;
}

TEST_P(GpuLearnedRows, AreUpdatedAsByTheHost) {
  const auto [dim, hot, on_host] = GetParam();
  const HotIndex index(kRows, static_cast<uint64_t>(hot));
  const RandomLookups lookups(kCount, kRows);
  const auto grads = random_elements<float>(kCount * dim, 4), before = random_elements<float>(kCount * dim, 5);
  const auto gpu_grads = base::upload(grads), gpu_before = base::upload(before);
  const auto ids = base::upload(lookups.ids), row_index = base::upload(lookups.row_index);
  for (const RowRule rule : {RowRule::kAdagrad, RowRule::kAdam}) {
    RandomTable table(kRows, dim, index, 1), first(kRows, dim, index, 2, true), second(kRows, dim, index, 3, true);
    const TableOnGpu gpu_table(table, index, on_host), gpu_first(first, index, on_host),
        gpu_second(second, index, on_host);
    const base::Stream stream;
    for (int step = 0; step < 3; ++step) {
      UpdateRowsCall call = update_call(rule, kRows, dim, lookups);
      call.table = table.ref(index), call.first = first.ref(index), call.second = second.ref(index);
      call.grads = grads.data(), call.before = step == 1 ? before.data() : nullptr;
      run_on_host(call);
      call.table = gpu_table.ref(), call.first = gpu_first.ref(), call.second = gpu_second.ref();
      call.ids = ids.data(), call.row_index = row_index.data();
      call.grads = gpu_grads.data(), call.before = step == 1 ? gpu_before.data() : nullptr;
      run_on_gpu(call, stream);
    }
    stream.synchronize();
    EXPECT_TRUE(gpu_table.equals(table));
    EXPECT_TRUE(gpu_first.equals(first));
    EXPECT_TRUE(gpu_second.equals(second));
  }
}

TEST_P(GpuLearnedRows, ReachTheTableLaterAsByTheHost) {
  const auto [dim, hot, on_host] = GetParam();
  const HotIndex index(kRows, static_cast<uint64_t>(hot));
  const RandomLookups lookups(kCount, kRows);
  auto grads = random_elements<float>(kCount * dim, 4);
  const auto gpu_grads = base::upload(grads);
  const auto ids = base::upload(lookups.ids), row_index = base::upload(lookups.row_index),
             told = base::upload<int64_t>({0});
  RandomTable table(kRows, dim, index, 1), first(kRows, dim, index, 2, true), second(kRows, dim, index, 3, true);
  const TableOnGpu gpu_table(table, index, on_host), gpu_first(first, index, on_host),
      gpu_second(second, index, on_host);
  const base::Stream stream;
  UpdateRowsCall call = update_call(RowRule::kAdam, kRows, dim, lookups);
  call.table = table.ref(index), call.first = first.ref(index), call.second = second.ref(index);
  call.grads = grads.data(), call.changed = grads.data();
  run_on_host(call);
  call.table = gpu_table.ref(), call.first = gpu_first.ref(), call.second = gpu_second.ref();
  call.ids = ids.data(), call.row_index = row_index.data(), call.grads = gpu_grads.data(),
  call.changed = gpu_grads.data();
  run_on_gpu(call, stream);
  stream.synchronize();
  EXPECT_TRUE(gpu_table.equals(table));

  const ChangedRows changed{kCount, lookups.ids.data(), lookups.row_index.data(), grads.data()};
  const ChangedRows on_gpu{kCount, ids.data(), row_index.data(), gpu_grads.data()};
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), int64_t{0});
  const auto gpu_all = base::upload(all);
  std::vector<float> out(kRows * dim);
  int64_t bad = 0;
  run_on_host(TakeRowsCall{table.ref(index), kRows, dim, kRows, all.data(), nullptr, out.data(), &bad, changed});
  const base::DeviceArray<float> found(out.size());
  run_on_gpu(
      TakeRowsCall{gpu_table.ref(), kRows, dim, kRows, gpu_all.data(), nullptr, found.data(), told.data(), on_gpu},
      stream);
  run_on_host(PutRowsCall{table.ref(index), kRows, dim, changed});
  run_on_gpu(PutRowsCall{gpu_table.ref(), kRows, dim, on_gpu}, stream);
  stream.synchronize();
  EXPECT_TRUE(same_bits(download(found), out));
  EXPECT_TRUE(gpu_table.equals(table));
}

INSTANTIATE_TEST_SUITE_P(All, GpuLearnedRows,
                         ::testing::Combine(::testing::Values(1, 6, 128), ::testing::Values(0, 3), ::testing::Bool()));

}  // namespace
}  // namespace cohort::trainer
