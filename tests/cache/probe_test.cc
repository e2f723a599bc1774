#include "cache/probe.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/check.h"

namespace cohort::cache {
namespace {

TEST(GpuProbe, MeasuresEveryGpuOnceAndPeersWhereTheyAreRead) {
  const std::vector<base::Gpu> gpus = base::visible_gpus();
  if (gpus.empty()) GTEST_SKIP() << "no GPU";
  const std::vector<GpuLinks> links = probe_links();
  ASSERT_EQ(links.size(), gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    EXPECT_EQ(links[i].uuid, gpus[i].uuid);
    bool reads_a_peer = false;
    for (const base::Gpu& other : gpus) {
      reads_a_peer |= other.ordinal != gpus[i].ordinal && base::can_read_peer(gpus[i].ordinal, other.ordinal);
    }
    EXPECT_EQ(links[i].peer.has_value(), reads_a_peer);
    EXPECT_TRUE(links[i].host > 0 && std::isfinite(links[i].host));
    EXPECT_TRUE(links[i].local > 0 && std::isfinite(links[i].local));
  }
}

TEST(GpuProbe, LeavesOtherGpusAlone) {
  const std::vector<base::Gpu> gpus = base::visible_gpus();
  if (gpus.empty()) GTEST_SKIP() << "no GPU";
  const std::vector<GpuLinks> links = probe_links(std::vector{gpus.back().ordinal});
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].uuid, gpus.back().uuid);
  EXPECT_FALSE(links[0].peer) << "it is alone";
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);  // where tests of the same process expect to be
}

TEST(Probe, RefusesAGpuThatIsNotThere) {
  EXPECT_THROW(probe_links(std::vector{-1}), base::Error);
  EXPECT_THROW(probe_links(std::vector{1 << 20}), base::Error);
}

TEST(GpuProbe, GivesItsMemoryBack) {
  if (base::visible_gpus().empty()) GTEST_SKIP() << "no GPU";
  probe_links();  // the first makes the contexts
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  int64_t kept = 0;
  for (int i = 0; i < 5; ++i) {  // other programs on this GPU take and give back other amounts each time
    const int64_t before = base::free_device_bytes();
    probe_links();
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    kept = std::abs(before - base::free_device_bytes());
    if (kept < 100'000'000) break;
  }
  EXPECT_LT(kept, 100'000'000) << "of 0.7 GB that it takes";
}

}  // namespace
}  // namespace cohort::cache
