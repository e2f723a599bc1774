#include "dataset/encoded.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/format.h"
#include "dataset/dataset.h"
#include "dataset/generating/generate.h"
#include "temporary_folder.h"
#include "tests/base/fails.h"

namespace cohort::dataset {
namespace {

namespace fs = std::filesystem;

std::string description(int64_t raw_bytes, int64_t raw_mtime_ns, int version = 1) {
  return base::format(
      R"({{"format": "cohort-prepared", "version": {}, "raw_file": "../features.npy", "raw_bytes": {}, "raw_mtime_ns": {}}})",
      version, raw_bytes, raw_mtime_ns);
}

class EncodedRows : public testing::Test {
 protected:
  void SetUp() override {
    generate(graph_, {GraphKind::sbm, 50, 400, 6, DType::float32, 4, 1, {0.5, 0.2, 0.2}, false});
    fs::create_directory(graph_ / "prepared");
    write_bytes(graph_ / "prepared/features.ibp", "rows");
  }
  void describe(const std::string& text) { write_bytes(graph_ / "prepared/prepared.json", text); }
  void describe_fresh() {
    struct stat status {};
    ASSERT_EQ(stat((graph_ / "features.npy").c_str(), &status), 0);
    describe(description(status.st_size, int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec));
  }
  void expect_refused(const std::string& words) {
    EXPECT_TRUE(base::fails_with([&] { Dataset::open(graph_); }, {words, "cohort dataset prepare"}));
  }

  TemporaryFolder folder_;
  fs::path graph_ = folder_ / "graph";
};

TEST_F(EncodedRows, AreNoneWithoutADescription) { EXPECT_EQ(Dataset::open(graph_).encoded_rows_of(0), fs::path()); }

TEST_F(EncodedRows, AreRefusedWhenTheyNeverHadRawOnes) {
  describe(description(0, 0));
  expect_refused("found a file that has changed since");
  fs::remove(graph_ / "features.npy");
  EXPECT_NO_THROW(Dataset::open(graph_));
}

TEST_F(EncodedRows, AreRefusedWithoutTheirFileOrWithADescriptionNotOurs) {
  describe(description(1, 1, 2));
  expect_refused("expected format cohort-prepared version 1, found format cohort-prepared version 2");
  describe("{");
  expect_refused("prepared.json: expected JSON");
  describe(R"({"format": "cohort-prepared", "version": 1})");
  expect_refused("expected the key \"raw_file\", found none");
  describe_fresh();
  fs::remove(graph_ / "prepared/features.ibp");
  expect_refused("features.ibp: expected encoded rows, found no such file");
}

}  // namespace
}  // namespace cohort::dataset
