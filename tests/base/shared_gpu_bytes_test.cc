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

TEST(GpuGrowingBytes, StayWhereTheyAreWhenMoreCome) {
  GrowingGpuBytes memory(40'000'000), same(40'000'000);
  std::byte* const begin = memory.data();
  std::size_t before = 0;
  for (const int byte : {0x11, 0x22, 0x33}) {
    const SharedGpuBytes& piece = memory.add(kBytes, "allocate");
    EXPECT_EQ(piece.data(), begin + before);
    EXPECT_GE(piece.bytes(), kBytes);
    same.add(piece.share(), piece.bytes(), "open");
    fill_gpu(begin + before, byte, piece.bytes());
    before += piece.bytes();
    ASSERT_EQ(same.bytes(), before);
  }
  std::vector<unsigned char> bytes(before);
  cuda_check(cudaMemcpy(bytes.data(), same.data(), before, cudaMemcpyDeviceToHost));
  for (std::size_t i = 0; i < before; ++i) ASSERT_EQ(bytes[i], 0x11 * (1 + 3 * i / before)) << i;
  EXPECT_EQ(memory.data(), begin);
  EXPECT_THROW(memory.add(40'000'000, "allocate"), Error);
  memory = GrowingGpuBytes();
  cuda_check(cudaMemcpy(bytes.data(), same.data(), before, cudaMemcpyDeviceToHost));
  EXPECT_EQ(bytes[0], 0x11) << "they live on where they are mapped";
}

}  // namespace
}  // namespace cohort::base
