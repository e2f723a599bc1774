#include "cache/host_rows.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cache/pack_rows.h"
#include "cache/slab_rows.h"
#include "tests/ibp/rows.h"

namespace cohort::cache {
namespace {

constexpr int64_t kHostRows = 1000;
constexpr uint32_t kNumColumns = 33;

class HostRowsFile : public testing::TestWithParam<ibp::Dtype> {
 protected:
  void SetUp() override {
    rows_ = ibp::make_rows(ibp::Content::kMixed, GetParam(), kNumColumns, kHostRows);
    ibp::save(ibp::encode(rows_.table, ibp::fit(rows_.table, {.codec = "sparse"}).profile), file_);
  }
  RowShape shape() const { return {kHostRows, kNumColumns, ibp::name_of(GetParam())}; }

  ibp::Rows rows_;
  std::string file_ = testing::TempDir() + "host_rows.ibp";
};

TEST_P(HostRowsFile, CountsTheBytesItReads) {
  const HostRows rows = HostRows::open(file_, shape());
  int64_t expected = 0;
  std::vector<int64_t> ids(kHostRows);
  std::iota(ids.begin(), ids.end(), 0);
  for (const int64_t id : ids) expected += ibp::locate(rows.encoded().ref, id).bytes;
  EXPECT_EQ(rows.stored_bytes(ids), expected);
  EXPECT_EQ(rows.stored_bytes(std::vector<int64_t>{7, 7}), 2 * int64_t{ibp::locate(rows.encoded().ref, 7).bytes});
}

TEST_P(HostRowsFile, SaysWhatEachRowTakes) {
  const HostRows rows = HostRows::open(file_, shape());
  const auto each = rows.stored_bytes_of_each();
  ASSERT_EQ(each.size(), static_cast<std::size_t>(kHostRows));
  for (int64_t id = 0; id < kHostRows; ++id) {
    ASSERT_EQ(rows.stored_bytes(std::vector<int64_t>{id}), each[static_cast<std::size_t>(id)]);
  }
  const bool equal = std::ranges::count(each, each[0]) == kHostRows;
  EXPECT_EQ(rows.stored_bytes_of_any(), equal ? each[0] : 0);
  const std::vector<std::byte> zeros(rows_.bytes.size());  // all find room in their slots
  const ibp::RowTable empty{zeros.data(), kHostRows, GetParam(), kNumColumns};
  const ibp::Profile sparse = ibp::fit(empty, {.codec = "sparse"}).profile;
  const HostRows slots(ibp::encode(empty, sparse, {.layout = ibp::LayoutChoice::kSlots, .slot_bytes = 16}));
  EXPECT_EQ(slots.stored_bytes_of_any(), 16);
  EXPECT_EQ(slots.stored_bytes_of_each(), base::UninitializedVector<uint32_t>(kHostRows, 16u));
}

TEST_P(HostRowsFile, RefusesRowsOfAnotherShape) {
  RowShape other = shape();
  other.num_rows = kHostRows + 1;
  EXPECT_THROW(HostRows::open(file_, other), base::Error);
  other = shape();
  other.num_columns = kNumColumns - 1;
  EXPECT_THROW(HostRows::open(file_, other), base::Error);
  other = shape();
  other.dtype = "bits64";
  EXPECT_THROW(HostRows::open(file_, other), base::Error);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, HostRowsFile,
                         testing::Values(ibp::Dtype::kUint8, ibp::Dtype::kFloat16, ibp::Dtype::kBfloat16,
                                         ibp::Dtype::kFloat32),
                         [](const auto& test) { return ibp::name_of(test.param); });

TEST(HostRows, CountBothPlanesOrPlaneAAlone) {
  const ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 64, 300);
  const HostRows planes(ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "planes"}).profile));
  const ibp::EncodedRef& ref = planes.encoded().ref;
  int64_t num_raw = 0;
  for (int64_t id = 0; id < 300; ++id) num_raw += ibp::locate(ref, id).raw;
  ASSERT_GT(num_raw, 0);
  ASSERT_LT(num_raw, 300);
  std::vector<int64_t> ids(300);
  std::iota(ids.begin(), ids.end(), 0);
  EXPECT_EQ(planes.stored_bytes(ids, true), (300 - num_raw) * ref.stride_bytes + num_raw * 256);
  EXPECT_EQ(planes.stored_bytes(ids), planes.stored_bytes(ids, true) + (300 - num_raw) * ref.plane_b_stride_bytes);
  const auto each = planes.stored_bytes_of_each();
  EXPECT_EQ(std::accumulate(each.begin(), each.end(), int64_t{0}), planes.stored_bytes(ids));
  std::vector<std::byte> exact(rows.bytes.size()), coarse(rows.bytes.size());
  planes.fetch(ids, exact.data());
  planes.fetch(ids, coarse.data(), true);
  EXPECT_EQ(exact, rows.bytes);
  EXPECT_NE(coarse, rows.bytes);
  const HostRows sparse(ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "sparse"}).profile));
  sparse.fetch(ids, coarse.data(), true);  // has no planes
  EXPECT_EQ(coarse, rows.bytes);
}

// Rows for slabs lie in one piece, from which both planes decode.
TEST(SlabRows, OfCodecPlanesAreJoined) {
  const ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, 64, 300);
  const auto planes =
      std::make_shared<const HostRows>(ibp::encode(rows.table, ibp::fit(rows.table, {.codec = "planes"}).profile));
  const SlabRows slab_rows({{300, 64, "float32"}, 256, nullptr, planes}, true);
  std::vector<uint32_t> nodes(300);
  std::iota(nodes.begin(), nodes.end(), 0u);
  RowReader reader(slab_rows);
  const RowSizes sizes = slab_rows.sizes();
  std::vector<uint64_t> entries;
  std::vector<std::byte> data, out(rows.bytes.size());
  for (const ibp::RowSpan& span : reader.read(nodes)) {
    EXPECT_LE(span.bytes, sizes.each[entries.size()]);
    entries.push_back(ibp::make_entry(data.size(), span.bytes, span.raw));
    data.insert(data.end(), span.begin, span.begin + span.bytes);
  }
  ibp::decode_stored(slab_rows.profile(), entries, data, out.data());
  EXPECT_EQ(out, rows.bytes);
}

// store_rows() makes room for so many bytes of each row: both planes of a row of few columns are longer than the row.
TEST(SlabRows, TakeAtMostTheBytesThatTheySay) {
  for (uint32_t columns = 1; columns <= 40; ++columns) {
    SCOPED_TRACE(columns);
    const ibp::Rows rows = ibp::make_rows(ibp::Content::kMixed, ibp::Dtype::kFloat32, columns, 300);
    std::vector<uint32_t> nodes(300);
    std::iota(nodes.begin(), nodes.end(), 0u);
    for (const std::string codec : {"planes", "exponent", "sparse", "raw"}) {
      SCOPED_TRACE(codec);
      const auto encoded =
          std::make_shared<const HostRows>(ibp::encode(rows.table, ibp::fit(rows.table, {.codec = codec}).profile));
      for (const bool coded : {false, true}) {
        const SlabRows slab_rows({{300, columns, "float32"}, 4 * columns, nullptr, encoded}, coded);
        RowReader reader(slab_rows);
        const auto spans = reader.read(nodes);
        const int64_t align = slab_rows.align_bytes(), most = slab_rows.most_bytes() * std::ssize(spans);
        std::vector<std::byte> slab(static_cast<std::size_t>(2 * most));
        std::vector<uint64_t> entries(nodes.size());
        const PackedRows packed = pack_rows(spans, align, 2 * most, 0, slab.data(), entries.data());
        EXPECT_EQ(packed.count, std::ssize(spans));
        EXPECT_LE(packed.bytes, most);
      }
    }
  }
  EXPECT_GT(SlabRows({{300, 0, "float32"}, 0, nullptr, nullptr}, false).most_bytes(), 0);  // of a type without features
}

TEST(HostRows, ReachRowsBeyond32Bits) {
  constexpr std::size_t kBytes = std::size_t{6} << 30;  // of address space; a few pages of memory
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* data = static_cast<std::byte*>(memory);
  const std::vector<uint64_t> offsets = {0, uint64_t{1} << 31, uint64_t{1} << 32, kBytes - 512};
  ibp::EncodedRows encoded;
  encoded.profile.num_columns = 100;
  std::vector<uint64_t> entries;
  for (const uint64_t offset : offsets) {
    entries.push_back(ibp::make_entry(offset, 400, true));
    data[offset + 399] = std::byte(entries.size());
  }
  encoded.ref.data = data;
  encoded.ref.entries = entries.data();
  encoded.ref.num_rows = static_cast<int64_t>(entries.size());
  encoded.ref.data_bytes = kBytes;
  encoded.ref.row_bytes = 400;
  std::vector<std::byte> out(4 * 400);
  HostRows(encoded).fetch(std::vector<int64_t>{3, 2, 1, 0}, out.data());
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(out[i * 400 + 399], std::byte(4 - i));
  munmap(memory, kBytes);
}

}  // namespace
}  // namespace cohort::cache
