#include "sampler/load.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/check.h"
#include "cache/host_rows.h"
#include "dataset/generating/generate.h"
#include "sampler/cache_plan.h"
#include "sampler/draw.h"
#include "tests/dataset/temporary_folder.h"
#include "tests/sampler/test_graph.h"

namespace cohort::sampler {
namespace {

using dataset::DType;

// A data set of each dtype whose rows are encoded too.
class Rows : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    dataset::generate(graph_, {dataset::GraphKind::sbm, 900, 9000, 37, GetParam(), 5, 42, {0.5, 0.2, 0.2}, false});
    raw_ = dataset::read_bytes(graph_ / "features.npy").substr(128);
  }
  void prepare() {
    const dataset::Dataset data = dataset::Dataset::open(graph_);
    ibp::Dtype dtype = ibp::Dtype::kFloat32;
    for (const auto known : {ibp::Dtype::kUint8, ibp::Dtype::kFloat16, ibp::Dtype::kBfloat16}) {
      if (ibp::name_of(known) == dataset::name_of(GetParam())) dtype = known;
    }
    const ibp::RowTable table{data.features_of(0).data(), 900, dtype, 37};
    std::filesystem::create_directory(graph_ / "prepared");
    ibp::save(ibp::encode(table, ibp::fit(table, {.codec = "invariant"}).profile), graph_ / "prepared/features.ibp");
    struct stat status {};
    ASSERT_EQ(stat((graph_ / "features.npy").c_str(), &status), 0);
    const int64_t mtime_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    std::ofstream(graph_ / "prepared/prepared.json")
        << R"({"format": "cohort-prepared", "version": 1, "raw_file": "../features.npy", "raw_bytes": )"
        << status.st_size << R"(, "raw_mtime_ns": )" << mtime_ns << "}";
  }
  GraphView view(const std::string& compress, const std::string& device = "cpu") {
    Options options;
    options.compress = compress;
    options.device = device;
    data_ = dataset::Dataset::open(graph_);
    return view_of(data_, options);
  }
  std::string decoded_by(const GraphView& graph) const {
    return {reinterpret_cast<const char*>(graph.types[0].rows.raw),
            static_cast<std::size_t>(graph.num_nodes * graph.types[0].rows.row_bytes)};
  }

  dataset::TemporaryFolder folder_;
  std::filesystem::path graph_ = folder_ / "graph";
  std::string raw_;
  dataset::Dataset data_;
};

TEST_P(Rows, AreEncodedWhenAskedForOrPrepared) {
  EXPECT_EQ(view("auto").types[0].rows.encoded, nullptr);
  EXPECT_THROW(view("host"), base::Error);
  EXPECT_THROW(view("both"), base::Error);
  prepare();
  for (const char* mode : {"auto", "host", "both"}) EXPECT_NE(view(mode).types[0].rows.encoded, nullptr) << mode;
  for (const char* mode : {"none", "cache"}) EXPECT_EQ(view(mode).types[0].rows.encoded, nullptr) << mode;
  EXPECT_TRUE(view("host").decoded.empty()) << "nothing needs raw rows";
}

TEST_P(Rows, AreRawInCachesThatHoldAllOfThem) {
  prepare();
  const int64_t row_bytes = view("none").types[0].rows.row_bytes,
                enough = 29 * 8 + 900 * ((row_bytes + 15) / 16 * 16 + 8);
  const auto coded_slabs = [&](const char* mode, std::vector<int64_t> cache_bytes) {
    Options options;
    options.compress = mode;
    options.cache_bytes = std::move(cache_bytes);
    return view_of(data_, options).coded_slab_rows;
  };
  EXPECT_FALSE(coded_slabs("auto", {enough, enough}));
  EXPECT_TRUE(coded_slabs("auto", {enough, enough - 1})) << "a GPU has less room";
  EXPECT_TRUE(coded_slabs("both", {enough, enough}));
  EXPECT_FALSE(coded_slabs("host", {0}));
}

TEST_P(Rows, AreDecodedWhereOnlyRawOnesCanBeRead) {
  prepare();
  std::filesystem::remove(graph_ / "features.npy");
  EXPECT_EQ(view("host").types[0].rows.raw, nullptr);
  EXPECT_EQ(decoded_by(view("none")), raw_);
  EXPECT_NE(view("none", "cuda").types[0].rows.encoded, nullptr) << "decoded where they are pinned";
  EXPECT_EQ(view("none", "cuda").types[0].rows.raw, nullptr);
  setenv("COHORT_HOST_MEMORY_BYTES", "1000", 1);
  EXPECT_THROW(view("none"), base::Error);
  EXPECT_NO_THROW(view("host"));
  unsetenv("COHORT_HOST_MEMORY_BYTES");
}

TEST_P(Rows, CountTheBytesThatAreRead) {
  prepare();
  for (const char* mode : {"none", "host"}) {
    const GraphView graph = view(mode);
    const auto backend = make_host_backend(graph, {});
    const std::vector<int64_t> seeds = {3, 800};
    const std::vector<int32_t> fanout = {5};
    const Query query{seeds, fanout, batch_key(1, 0, 0)};
    const HostBatch got = run_host(*backend, graph, query);
    const int64_t expected = graph.types[0].rows.encoded ? graph.types[0].rows.encoded->stored_bytes(got.n_id)
                                                         : got.counts.num_nodes * graph.types[0].rows.row_bytes;
    const FetchUse times = backend->fetched();
    EXPECT_EQ(times.rows[cache::kHostTier].bytes, expected) << mode;
    EXPECT_EQ(times.rows[cache::kHostTier].rows, got.counts.num_nodes) << mode;
    EXPECT_EQ(times.rows[cache::kHostTier].us, times.time.us()) << mode;
    for (std::size_t tier = 0; tier < cache::kHostTier; ++tier) {
      EXPECT_EQ(times.rows[tier].rows + times.rows[tier].bytes + got.counts.lists[tier].lists, 0) << "a GPU's memory";
    }
  }
}

TEST_P(Rows, SayWhatTheyTakeInSlabsAndInHostMemory) {
  const auto stored = [&](const char* mode, bool in_slab, int64_t row) {
    const GraphView graph = view(mode);
    const SizesOfRows sizes = row_sizes(graph, slab_rows(graph));
    return (in_slab ? sizes.in_slab : sizes.in_host)[0].ref().of(row);
  };
  const int64_t row_bytes = view("none").types[0].rows.row_bytes, rounded = (row_bytes + 15) / 16 * 16;
  prepare();
  const auto file = view("host").types[0].rows.encoded;
  for (int64_t row : {0, 5, 899}) {
    const int64_t coded = file->stored_bytes(std::vector<int64_t>{row});
    EXPECT_EQ(stored("none", true, row), rounded);
    EXPECT_EQ(stored("none", false, row), row_bytes);
    EXPECT_EQ(stored("host", true, row), rounded);
    EXPECT_EQ(stored("host", false, row), coded);
    EXPECT_GE(stored("both", true, row), coded);
    EXPECT_LT(stored("both", true, row), coded + 16);
    EXPECT_EQ(stored("both", false, row), coded);
    EXPECT_EQ(stored("cache", false, row), row_bytes);
  }
}

TEST_P(Rows, AreRefusedWhenDamagedOrOfAnotherDataSet) {
  prepare();
  const std::filesystem::path file = graph_ / "prepared/features.ibp";
  const std::string good = dataset::read_bytes(file);
  std::string bad = good;
  bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
  dataset::write_bytes(file, bad);
  EXPECT_NE(view("host").types[0].rows.encoded, nullptr);
  EXPECT_THROW(verify_rows(data_, false).get(), base::Error);
  dataset::write_bytes(file, good);
  EXPECT_NO_THROW(verify_rows(data_, false).get());
  std::filesystem::copy(graph_, folder_ / "other", std::filesystem::copy_options::recursive);
  EXPECT_THROW(dataset::Dataset::open(folder_ / "other"), base::Error) << "a copy has another time";
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Rows, testing::Values(DType::uint8, DType::float16, DType::bfloat16, DType::float32),
                         [](const auto& test) { return dataset::name_of(test.param); });

}  // namespace
}  // namespace cohort::sampler
