#include <gtest/gtest.h>

#include <atomic>

#include "base/check.h"
#include "base/launch.h"
#include "base/owners.h"

namespace cohort::base {
namespace {

constexpr std::size_t kBytes = 2 * kWrittenPieceBytes + 12348;

uint32_t word_at(std::size_t byte) { return static_cast<uint32_t>(byte) * 2654435761u; }

__global__ void count_wrong_kernel(const uint32_t* words, int64_t count, unsigned long long* wrong) {
  for (int64_t i = grid_first(); i < count; i += grid_step()) {
    if (words[i] != static_cast<uint32_t>(4 * i) * 2654435761u) atomicAdd(wrong, 1ull);
  }
}

TEST(GpuPinnedBytes, AreWrittenOnceAndReadAsOneRange) {
  std::atomic<std::size_t> written{0};
  const PinnedBytes memory(kBytes, [&](std::byte* to, std::size_t first, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += 4) *reinterpret_cast<uint32_t*>(to + at) = word_at(first + at);
    written += bytes;
  });
  EXPECT_EQ(written.load(), kBytes);
  const DeviceArray<unsigned long long> wrong(1);
  fill_gpu(wrong.data(), 0, sizeof(unsigned long long));
  count_wrong_kernel<<<1024, kBlockThreads>>>(reinterpret_cast<const uint32_t*>(memory.data()), kBytes / 4,
                                              wrong.data());
  unsigned long long found = 1;
  cuda_check(cudaMemcpy(&found, wrong.data(), sizeof found, cudaMemcpyDeviceToHost));
  EXPECT_EQ(found, 0u);
}

TEST(GpuPinnedBytes, OfNoBytesAreNotWritten) {
  const PinnedBytes memory(0, [](std::byte*, std::size_t, std::size_t) { FAIL(); });
  EXPECT_EQ(memory.data(), nullptr);
}

TEST(GpuPinnedBytes, AreGivenBackWhole) {
  const std::byte* where = nullptr;
  {
    PinnedBytes memory;
    memory = PinnedBytes(kBytes, [](std::byte* to, std::size_t, std::size_t) { *to = std::byte{1}; });
    where = memory.data();
  }
  for (const std::size_t at : {std::size_t{0}, kWrittenPieceBytes, kBytes - 1}) {
    cudaPointerAttributes attributes{};
    cuda_check(cudaPointerGetAttributes(&attributes, where + at));
    EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  }
}

}  // namespace
}  // namespace cohort::base
