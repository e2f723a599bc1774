#include "dataset/take_rows.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "dataset/dataset.h"
#include "dataset/generating/features.h"
#include "dataset/generating/generate.h"
#include "temporary_folder.h"

namespace cohort::dataset {
namespace {

TEST(TakeRows, ReachesBeyond32Bits) {
  constexpr std::size_t kRowBytes = 1 << 16, kRows = 100'000;  // 6.5 GB of address space, a few pages of memory
  void* memory =
      mmap(nullptr, kRowBytes * kRows, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* rows = static_cast<std::byte*>(memory);
  const std::vector<int64_t> ids = {99'999, 0, 40'000};  // offsets above 2^32, 0, above 2^31
  for (std::size_t i = 0; i < ids.size(); ++i)
    rows[static_cast<std::size_t>(ids[i]) * kRowBytes + 5] = std::byte(i + 1);
  std::vector<std::byte> out(ids.size() * kRowBytes);
  take_rows(rows, kRowBytes, ids, out.data());
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(out[i * kRowBytes + 5], std::byte(i + 1));
  munmap(memory, kRowBytes * kRows);
}

TEST(FeatureGenerator, GivesAnyRowsInAnyOrder) {
  const TemporaryFolder folder;
  const GenerateOptions options{GraphKind::sbm, 200, 400, 7, DType::bfloat16, 5, 42, {0.5, 0.2, 0.2}, false};
  generate(folder / "graph", options);
  const Dataset data = Dataset::open(folder / "graph");
  const FeatureGenerator generator(options);
  const std::vector<int64_t> nodes = {199, 3, 3, 0, 77};
  std::vector<std::byte> expected(nodes.size() * generator.row_bytes()), found(expected.size());
  take_rows(data.features_of(0).data(), generator.row_bytes(), nodes, expected.data());
  generator.take(data.labels(), nodes, found.data(), {});
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace cohort::dataset
