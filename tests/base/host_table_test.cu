#include "base/host_table.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/device.h"
#include "base/launch.h"
#include "tests/base/fails.h"
#include "tests/base/on_gpu.h"

namespace cohort::base {
namespace {

constexpr std::size_t kBytes = (std::size_t{64} << 20) + 12348;  // ends within a page

__host__ __device__ uint32_t word_at(int64_t at) { return static_cast<uint32_t>(at) * 2654435761u; }

__global__ void count_wrong_kernel(const uint32_t* words, int64_t count, unsigned long long* wrong) {
  for (int64_t i = grid_first(); i < count; i += grid_step()) {
    if (words[i] != word_at(i)) atomicAdd(wrong, 1ull);
  }
}

void write(const HostTable& table) {
  auto* words = reinterpret_cast<uint32_t*>(table.data());
  for (std::size_t at = 0; at < table.bytes() / 4; ++at) words[at] = word_at(static_cast<int64_t>(at));
}

unsigned long long count_wrong(const HostTable& table) {
  const DeviceArray<unsigned long long> wrong(1);
  fill_gpu(wrong.data(), 0, sizeof(unsigned long long));
  count_wrong_kernel<<<1024, kBlockThreads>>>(reinterpret_cast<const uint32_t*>(table.data()),
                                              static_cast<int64_t>(table.bytes() / 4), wrong.data());
  return download(wrong)[0];
}

bool is_managed(const HostTable& table) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, table.data()));
  return attributes.type == cudaMemoryTypeManaged;
}

// Where the driver keeps managed memory.
int preferred_place(const HostTable& table) {
  int place = 0;
  cuda_check(cudaMemRangeGetAttribute(&place, sizeof place, cudaMemRangeAttributePreferredLocation, table.data(),
                                      table.bytes()));
  return place;
}

// Of the environment, while it lives.
class Setting {
 public:
  explicit Setting(const char* value) { setenv("COHORT_HOST_TABLES", value, 1); }
  Setting(const Setting&) = delete;
  ~Setting() { unsetenv("COHORT_HOST_TABLES"); }
};

TEST(GpuHostTable, IsReadInPlace) {
  const HostTable table(kBytes);
  write(table);
  table.open_to_gpu();
  EXPECT_EQ(count_wrong(table), 0u);
  write(table);  // it has not moved to the GPU, from where this would bring it back
  EXPECT_EQ(count_wrong(table), 0u);
  if (is_managed(table)) EXPECT_EQ(preferred_place(table), cudaCpuDeviceId);
}

TEST(GpuHostTable, IsPageLockedWhereThatIsAskedFor) {
  const Setting setting("page-locked");
  const HostTable table(kBytes);
  EXPECT_FALSE(is_managed(table));
  write(table);
  table.open_to_gpu();
  EXPECT_EQ(count_wrong(table), 0u);
}

TEST(GpuHostTable, IsPageLockedWhereTheGpuHasNoRoomForSoMuchManagedMemory) {
  const auto share = [](double of) { return static_cast<std::size_t>(of * static_cast<double>(free_device_bytes())); };
  HostTable most(share(kManagedShare - 0.01));  // not written, so it takes no memory
  if (!is_managed(most)) GTEST_SKIP() << "GPUs here do not read managed memory";
  EXPECT_FALSE(is_managed(HostTable(share(0.02))));
  most = HostTable();
  EXPECT_TRUE(is_managed(HostTable(share(0.02))));
}

TEST(GpuHostTable, OfAnotherKindIsRefused) {
  const Setting setting("pinned");
  EXPECT_TRUE(fails_with([&] { const HostTable table(kBytes); }, {"COHORT_HOST_TABLES: expected ", "found pinned"}));
}

TEST(GpuHostTable, IsReadByAGpuThatItWasNotOpenedTo) {
  const HostTable table(kBytes);
  write(table);
  EXPECT_EQ(count_wrong(table), 0u);
}

TEST(GpuHostTable, OfNoBytesIsNoMemory) {
  const HostTable table(0);
  table.open_to_gpu();
  EXPECT_EQ(table.data(), nullptr);
}

TEST(GpuHostTable, IsGivenBack) {
  const std::byte* where = nullptr;
  {
    HostTable table;
    table = HostTable(kBytes);
    write(table);
    where = table.data();
  }
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, where));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

}  // namespace
}  // namespace cohort::base
