#include "base/shared_gpu_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "base/device.h"
#include "base/owners.h"

namespace cohort::base {
namespace {

constexpr std::size_t kBytes = 5'000'001;  // no whole pages

std::vector<unsigned char> download(const SharedGpuBytes& memory) {
  std::vector<unsigned char> bytes(memory.bytes());
  cuda_check(cudaMemcpy(bytes.data(), memory.data(), bytes.size(), cudaMemcpyDeviceToHost));
  return bytes;
}

TEST(GpuSharedBytes, AreTheSameMemoryWhereTheyAreMappedAgain) {
  SharedGpuBytes memory(kBytes, "allocate");
  const SharedGpuBytes same(memory.share(), kBytes, "open");
  ASSERT_NE(memory.data(), same.data());
  fill_gpu(memory.data(), 0x5A, kBytes);
  EXPECT_EQ(download(same), std::vector<unsigned char>(kBytes, 0x5A));
  memory = SharedGpuBytes();
  EXPECT_EQ(download(same), std::vector<unsigned char>(kBytes, 0x5A)) << "they live on where they are mapped";
}

TEST(GpuSharedBytes, AreGivenBack) {
  const auto bytes = static_cast<std::size_t>(free_device_bytes() / 4);  // kept, they would leave nothing for a fifth
  for (int i = 0; i < 10; ++i) {
    const SharedGpuBytes memory(bytes, "allocate");
    const SharedGpuBytes same(memory.share(), memory.bytes(), "open");
  }
}

TEST(GpuSharedBytes, NoneAndTooMany) {
  EXPECT_EQ(SharedGpuBytes(0, "allocate").data(), nullptr);
  EXPECT_THROW(SharedGpuBytes(std::size_t{1} << 50, "allocate all"), Error);
}

}  // namespace
}  // namespace cohort::base
