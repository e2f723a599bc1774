#include "base/sm_partition.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/device.h"
#include "tests/base/on_gpu.h"

namespace cohort::base {
namespace {

// Marks the SMs that its blocks run on; each block stays long enough for the next to go elsewhere.
__global__ void mark_sms_kernel(int* seen) {
  unsigned sm = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  atomicExch(seen + sm, 1);
  __nanosleep(10'000);
}

// SMs used by many blocks on a stream of the part, which is waited for through an event of the whole GPU.
std::set<int> sms_used(const SmPartition& partition, int num_sms) {
  const Stream stream = partition.make_stream();
  DeviceArray<int> seen(static_cast<std::size_t>(num_sms));
  fill_gpu(seen.data(), 0, seen.size() * sizeof(int));
  mark_sms_kernel<<<64 * num_sms, 64, 0, stream>>>(seen.data());
  cuda_check(cudaGetLastError());
  const Event done, late;
  done.record(stream);
  const Stream other;
  done.wait_on(other);
  late.record(other);
  late.synchronize();
  const std::vector<int> host = download(seen);
  std::set<int> used;
  for (int sm = 0; sm < num_sms; ++sm) {
    if (host[static_cast<std::size_t>(sm)]) used.insert(sm);
  }
  return used;
}

TEST(GpuSmPartition, KernelsOfTheTwoPartsShareNoSm) {
  const int num_sms = visible_gpus().front().num_sms;
  for (const int wanted : {8, 16, 32}) {
    const SmPartition first(wanted, SmPartition::Part::kFirst), rest(wanted, SmPartition::Part::kRest);
    EXPECT_GE(first.num_sms(), wanted);
    EXPECT_LT(first.num_sms(), wanted + 8);
    EXPECT_EQ(first.num_sms() + rest.num_sms(), num_sms);
    std::set<int> used = sms_used(first, num_sms);
    const std::set<int> others = sms_used(rest, num_sms);
    EXPECT_EQ(static_cast<int>(used.size()), first.num_sms());
    EXPECT_EQ(static_cast<int>(others.size()), rest.num_sms());
    used.insert(others.begin(), others.end());
    EXPECT_EQ(static_cast<int>(used.size()), num_sms);
  }
}

TEST(GpuSmPartition, AStreamOutlivesItsPartition) {
  std::vector<Stream> streams;
  streams.push_back(SmPartition(8, SmPartition::Part::kFirst).make_stream());
  const Event begun, ended;
  begun.record(streams[0]);
  ended.record(streams[0]);
  ended.synchronize();
  float ms = -1;
  cuda_check(cudaEventElapsedTime(&ms, begun, ended));
  EXPECT_GE(ms, 0);
}

TEST(GpuSmPartition, TheWholeGpuCannotBeAPart) {
  const int num_sms = visible_gpus().front().num_sms;
  EXPECT_THROW(SmPartition(num_sms, SmPartition::Part::kFirst), Error);
  EXPECT_THROW(SmPartition(num_sms + 1, SmPartition::Part::kRest), Error);
}

}  // namespace
}  // namespace cohort::base
