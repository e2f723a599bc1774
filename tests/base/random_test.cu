#include "base/random.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/launch.h"
#include "tests/base/on_gpu.h"

namespace cohort::base {
namespace {

__global__ void draw_kernel(uint64_t* out, int size) {
  for (int64_t i = grid_first(); i < size; i += grid_step()) out[i] = random_below(1000003, key_of(42), i, 7);
}

TEST(GpuRandom, SameBitsAsOnTheHost) {
  constexpr int kSize = 10000;
  DeviceArray<uint64_t> device(kSize);
  draw_kernel<<<grid_for(kSize, 32), kBlockThreads>>>(device.data(), kSize);
  cuda_check(cudaGetLastError());
  const std::vector<uint64_t> host = download(device);
  for (int i = 0; i < kSize; ++i) ASSERT_EQ(host[i], random_below(1000003, key_of(42), i, 7)) << i;
}

}  // namespace
}  // namespace cohort::base
