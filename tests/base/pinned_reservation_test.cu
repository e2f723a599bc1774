#include "base/pinned_reservation.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "base/launch.h"
#include "base/owners.h"

namespace cohort::base {
namespace {

constexpr std::size_t kBytes = 3 * kPinnedPieceBytes + 12345;

__global__ void fill_kernel(uint32_t* words, int64_t count) {
  for (int64_t i = grid_first(); i < count; i += grid_step()) words[i] = static_cast<uint32_t>(i * 2654435761u);
}

cudaMemoryType type_at(const std::byte* address) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, address));
  return attributes.type;
}

TEST(GpuPinnedReservation, OneRangeForKernelsAndCopies) {
  PinnedReservation memory(kBytes);
  memory.wait(kBytes);
  auto* words = reinterpret_cast<uint32_t*>(memory.data());
  constexpr int64_t kCount = kBytes / 4;
  fill_kernel<<<1024, kBlockThreads>>>(words, kCount);
  cuda_check(cudaDeviceSynchronize());
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(words[i], static_cast<uint32_t>(i * 2654435761u)) << i;
  const DeviceBytes device(kBytes);
  const Stream stream;
  copy_in_pieces(device.data(), memory.data(), kBytes - 7, stream, "copy to the GPU");
  stream.synchronize();
  for (int64_t i = 0; i < kCount; ++i) words[i] = 0;
  copy_in_pieces(memory.data(), device.data(), kBytes - 7, stream, "copy from the GPU");
  stream.synchronize();
  for (int64_t i = 0; i < kCount - 2; ++i) ASSERT_EQ(words[i], static_cast<uint32_t>(i * 2654435761u)) << i;
}

TEST(GpuPinnedReservation, LocksWhatIsWantedAndKeepsWhatIsUsed) {
  PinnedReservation memory(kBytes);
  memory.want(kPinnedPieceBytes + 1);
  memory.wait(10);
  EXPECT_EQ(type_at(memory.data()), cudaMemoryTypeHost);
  memory.wait(kPinnedPieceBytes + 1);
  EXPECT_EQ(type_at(memory.data() + kPinnedPieceBytes), cudaMemoryTypeHost);
  EXPECT_EQ(type_at(memory.data() + 2 * kPinnedPieceBytes), cudaMemoryTypeUnregistered);
  memory.data()[0] = memory.data()[kPinnedPieceBytes] = std::byte{7};
  memory.finish(kPinnedPieceBytes);
  EXPECT_EQ(type_at(memory.data()), cudaMemoryTypeHost);
  EXPECT_EQ(type_at(memory.data() + kPinnedPieceBytes), cudaMemoryTypeUnregistered);
  EXPECT_EQ(memory.data()[0], std::byte{7});
  EXPECT_EQ(memory.data()[kPinnedPieceBytes], std::byte{0});  // given back: a new page
}

TEST(GpuPinnedReservation, RefusesMoreThanWasReserved) {
  PinnedReservation memory(1000);
  EXPECT_THROW(memory.want(1001), Error);
  memory.wait(1000);
  EXPECT_EQ(type_at(memory.data() + 999), cudaMemoryTypeHost);
}

}  // namespace
}  // namespace cohort::base
