#include "base/shared_gpu_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/device.h"
#include "tests/base/on_gpu.h"

namespace cohort::base {
namespace {

constexpr std::size_t kBytes = 5'000'001;  // no whole pages

std::vector<std::byte> all_of(const auto& memory) { return download(memory.data(), memory.bytes()); }

TEST(GpuSharedBytes, AreTheSameMemoryWhereTheyAreMappedAgain) {
  SharedGpuBytes memory(kBytes, "allocate");
  const SharedGpuBytes same(memory.share(), kBytes, "open");
  ASSERT_NE(memory.data(), same.data());
  fill_gpu(memory.data(), 0x5A, kBytes);
  const std::vector<std::byte> expected(kBytes, std::byte{0x5A});
  EXPECT_EQ(all_of(same), expected);
  memory = SharedGpuBytes();
  EXPECT_EQ(all_of(same), expected) << "they live on where they are mapped";
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
  const std::vector<std::byte> bytes = all_of(same);
  for (std::size_t i = 0; i < before; ++i) ASSERT_EQ(bytes[i], std::byte(0x11 * (1 + 3 * i / before))) << i;
  EXPECT_EQ(memory.data(), begin);
  EXPECT_THROW(memory.add(40'000'000, "allocate"), Error);
  memory = GrowingGpuBytes();
  EXPECT_EQ(all_of(same), bytes) << "they live on where they are mapped";
}

}  // namespace
}  // namespace cohort::base
