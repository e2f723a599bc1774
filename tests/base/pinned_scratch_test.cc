#include "base/pinned_scratch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/base/on_gpu.h"

namespace cohort::base {
namespace {

using namespace std::chrono_literals;

TEST(GpuPinnedScratch, CopiesValuesThatChangeBeforeTheStreamComesToThem) {
  constexpr std::size_t kSize = 100'000;
  std::vector<int64_t> values(kSize);
  std::iota(values.begin(), values.end(), 3);
  const std::vector<int64_t> expected = values;
  const DeviceArray<int64_t> on_gpu(kSize);
  PinnedScratch scratch;
  scratch.reserve<int64_t>(kSize);
  const Stream stream;
  std::atomic<bool> may_go = false;
  const auto wait = [](void* go) {
    while (!static_cast<std::atomic<bool>*>(go)->load()) std::this_thread::sleep_for(1ms);
  };
  cuda_check(cudaLaunchHostFunc(stream, wait, &may_go), "wait");
  scratch.copy_to(on_gpu.data(), std::span<const int64_t>(values), stream, "copy values");
  std::ranges::fill(values, -1);
  may_go = true;
  stream.synchronize();
  EXPECT_EQ(download(on_gpu), expected);
}

TEST(GpuPinnedScratch, Grows) {
  PinnedScratch scratch;
  EXPECT_EQ(scratch.reserve<int32_t>(0).size(), 0u);
  const std::span<int32_t> few = scratch.reserve<int32_t>(10);
  EXPECT_EQ(scratch.reserve<int64_t>(5).size(), 5u);
  EXPECT_EQ(static_cast<void*>(scratch.reserve<int64_t>(5).data()), static_cast<void*>(few.data()));
  const std::span<int64_t> many = scratch.reserve<int64_t>(100'000);
  many.back() = 7;
  EXPECT_EQ(many.size(), 100'000u);
}

}  // namespace
}  // namespace cohort::base
