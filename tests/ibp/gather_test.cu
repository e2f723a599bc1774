#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/owners.h"
#include "base/random.h"
#include "ibp/gpu.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

std::vector<std::byte> download(const base::DeviceBytes& bytes, std::size_t count) {
  std::vector<std::byte> host(count);
  if (count) cuda_check(cudaMemcpy(host.data(), bytes.data(), count, cudaMemcpyDeviceToHost));
  return host;
}

std::vector<int64_t> random_index(int64_t num_rows, int64_t count) {
  std::vector<int64_t> index(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<int64_t>(base::random_below(uint64_t(num_rows), base::key_of(3), i, 0));
  }
  return index;
}

// The GPU's rows, guarded by bytes that must stay as they are, equal the host's.
void expect_fetch(const Rows& rows, const DeviceTable& table, Gather& gather, const FetchOptions& options) {
  const std::vector<int64_t> index = random_index(rows.table.num_rows, rows.table.num_rows + 77);
  const std::size_t bytes = index.size() * rows.table.row_bytes();
  const base::DeviceArray<int64_t> device_index = base::upload(index);
  const base::DeviceBytes out(bytes + 64);
  base::fill_gpu(out.data(), 0xa5, bytes + 64);
  const base::Stream stream;
  gather.fetch(table, device_index.data(), int64_t(index.size()), out.data(), stream, options);
  stream.synchronize();
  gather.check();
  const std::vector<std::byte> found = download(out, bytes + 64);
  for (std::size_t i = 0; i < index.size(); ++i) {
    ASSERT_EQ(std::memcmp(found.data() + i * rows.table.row_bytes(), rows.table.row(index[i]), rows.table.row_bytes()),
              0)
        << "position " << i << " row " << index[i];
  }
  for (std::size_t i = bytes; i < bytes + 64; ++i) ASSERT_EQ(found[i], std::byte{0xa5});
}

// All rows, copied to a place in GPU memory first, and a second time to another place.
void expect_staged(const Rows& rows, const EncodedRows& encoded, Gather& gather) {
  StreamedRows staged(encoded);
  const std::size_t bytes = std::size_t(rows.table.num_rows) * rows.table.row_bytes();
  std::vector<int64_t> all(std::size_t(rows.table.num_rows));
  std::iota(all.begin(), all.end(), int64_t{0});
  const base::DeviceArray<int64_t> device_all = base::upload(all);
  const base::Stream stream;
  for (int time = 0; time < 2; ++time) {
    const base::DeviceBytes staging(staged.staging_bytes() + 128), out(bytes);
    base::fill_gpu(out.data(), 0xa5, bytes);
    std::byte* const at = staging.data() + 128 * time;
    staged.copy(at, stream);
    staged.decode(gather, at, device_all.data(), out.data(), stream, {.max_sms = 3});
    stream.synchronize();
    gather.check();
    ASSERT_EQ(std::memcmp(download(out, bytes).data(), rows.table.data, bytes), 0);
  }
}

void expect_every_way(const Rows& rows, const EncodedRows& encoded, Gather& gather) {
  expect_staged(rows, encoded, gather);
  for (const Place place : {Place::kPinned, Place::kDevice}) {
    const DeviceTable table(encoded, place);
    for (const bool bulk : {true, false}) expect_fetch(rows, table, gather, {.max_sms = 3, .bulk = bulk});
  }
}

void expect_same_encoding(const EncodedRows& a, const EncodedRows& b) {
  ASSERT_EQ(a.ref.num_rows, b.ref.num_rows);
  ASSERT_EQ(a.ref.data_bytes, b.ref.data_bytes);
  ASSERT_EQ(a.ref.overflow_bytes, b.ref.overflow_bytes);
  ASSERT_EQ(a.ref.max_coded_bytes, b.ref.max_coded_bytes);
  ASSERT_EQ(std::memcmp(a.ref.data, b.ref.data, std::size_t(a.ref.data_bytes)), 0);
  if (a.ref.overflow_bytes) {
    ASSERT_EQ(std::memcmp(a.ref.overflow, b.ref.overflow, std::size_t(a.ref.overflow_bytes)), 0);
  }
  const auto rows = std::size_t(a.ref.num_rows), words = (rows + 31) / 32;
  if (a.ref.layout == Layout::kPacked) {
    ASSERT_EQ(std::memcmp(a.ref.entries, b.ref.entries, rows * 8), 0);
  } else {
    ASSERT_EQ(std::memcmp(a.ref.flags, b.ref.flags, words * 4), 0);
    ASSERT_EQ(std::memcmp(a.ref.ranks, b.ref.ranks, words * 4), 0);
  }
}

class GpuRows : public testing::TestWithParam<std::tuple<Dtype, Content>> {};

TEST_P(GpuRows, SameBytesAsTheHost) {
  const auto [dtype, content] = GetParam();
  Gather gather(1000);
  for (const uint32_t num_columns : {1u, 3u, 32u, 67u, 128u, 301u}) {
    const Rows rows = make_rows(content, dtype, num_columns, 150);
    for (const Profile& profile : all_profiles(rows.table)) {
      SCOPED_TRACE(name_of(profile.codec) + " x " + std::to_string(num_columns));
      for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
        const EncodedRows encoded = encode(rows.table, profile, {.layout = layout});
        expect_every_way(rows, encoded, gather);
        expect_same_encoding(encoded, encode_gpu(rows.table, profile, {.layout = layout}));
      }
      if (rows.table.row_bytes() % 4 != 0) continue;
      Rows copy = rows;
      copy.table.data = copy.bytes.data();
      expect_every_way(rows, encode_in_place(copy.table, profile), gather);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuRows, testing::Combine(testing::ValuesIn(kAllDtypes), testing::ValuesIn(kAllContents)),
                         [](const auto& test) {
                           return name_of(std::get<0>(test.param)) + "_" + name_of(std::get<1>(test.param));
                         });

TEST(GpuGather, WidestRows) {
  Gather gather(200);
  for (const Content content : {Content::kDense, Content::kConstant, Content::kSpecial, Content::kNoise}) {
    const Rows rows = make_rows(content, Dtype::kFloat32, kMaxRowBytes / 4, 40);
    for (const Profile& profile : all_profiles(rows.table)) {
      const EncodedRows encoded = encode(rows.table, profile);
      expect_every_way(rows, encoded, gather);
      expect_same_encoding(encoded, encode_gpu(rows.table, profile));
    }
  }
}

TEST(GpuGather, EverySmCountAndOrder) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 200, 5000);
  Gather gather(6000);
  for (const Profile& profile : all_profiles(rows.table)) {
    const DeviceTable table(encode(rows.table, profile), Place::kPinned);
    for (const int sms : {0, 1, 5}) {
      for (const bool sorted : {true, false}) expect_fetch(rows, table, gather, {.max_sms = sms, .by_address = sorted});
    }
  }
}

TEST(GpuGather, ABadIndexIsAnErrorAndARowOfZeros) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 16, 100);
  const DeviceTable table(encode(rows.table, fit(rows.table).profile), Place::kPinned);
  Gather gather(10);
  const base::DeviceArray<int64_t> index = base::upload<int64_t>({5, 100, -1, 7});
  const base::DeviceBytes out(4 * 64);
  const base::Stream stream;
  for (const bool sorted : {true, false}) {
    gather.fetch(table, index.data(), 4, out.data(), stream, {.by_address = sorted});
    stream.synchronize();
    EXPECT_THROW(gather.fetch(table, index.data(), 1, out.data(), stream, {}), base::Error);
    const std::vector<std::byte> found = download(out, 256);
    EXPECT_EQ(std::memcmp(found.data(), rows.table.row(5), 64), 0);
    EXPECT_EQ(std::memcmp(found.data() + 192, rows.table.row(7), 64), 0);
    for (std::size_t i = 64; i < 192; ++i) ASSERT_EQ(found[i], std::byte{0});
    EXPECT_NO_THROW(gather.fetch(table, index.data(), 1, out.data(), stream, {.check = true}));
    EXPECT_THROW(gather.fetch(table, index.data(), 2, out.data(), stream, {.check = true}), base::Error);
  }
  EXPECT_THROW(gather.fetch(table, index.data(), 11, out.data(), stream), base::Error);
  EXPECT_NO_THROW(gather.fetch(table, nullptr, 0, out.data(), stream));
}

TEST(GpuGather, DamagedRowsAreErrorsAndStayInTheirRoom) {
  Gather gather(1000);
  for (const auto& [content, num_columns] : std::vector<std::pair<Content, uint32_t>>{
           {Content::kDense, 300}, {Content::kDense, 128}, {Content::kConstant, 300}, {Content::kPowers, 300}}) {
    const Rows rows = make_rows(content, Dtype::kFloat32, num_columns, 200);
    const std::size_t bytes = std::size_t{300} * rows.table.row_bytes();
    for (const Profile& profile : all_profiles(rows.table)) {
      const EncodedRows encoded = encode(rows.table, profile, {.layout = LayoutChoice::kPacked});
      auto* data = const_cast<std::byte*>(encoded.ref.data);
      for (int64_t i = 0; i < encoded.ref.data_bytes; i += 5) {
        data[i] = static_cast<std::byte>(base::random_64(base::key_of(1), uint64_t(i), 0));
      }
      const DeviceTable table(encoded, Place::kDevice);
      const base::DeviceArray<int64_t> index = base::upload(random_index(200, 300));
      const base::DeviceBytes out(bytes + 64);
      base::fill_gpu(out.data(), 0xa5, out.bytes());
      const base::Stream stream;
      gather.fetch(table, index.data(), 300, out.data(), stream);
      stream.synchronize();
      // Most damage to dense rows makes another valid row: that is what the file's checksums are for.
      bool noticed = false;
      try {
        gather.check();
      } catch (const base::Error&) {
        noticed = true;
      }
      EXPECT_TRUE(noticed || profile.codec != Codec::kSparse || content == Content::kDense);
      const std::vector<std::byte> found = download(out, out.bytes());
      for (std::size_t i = bytes; i < found.size(); ++i) ASSERT_EQ(found[i], std::byte{0xa5});
    }
  }
}

// Zero bytes say that every exponent is escaped: more than these rows have room for.
TEST(GpuGather, RowsThatAskForMoreEscapesThanTheyHoldAreErrors) {
  Gather gather(100);
  for (const uint32_t num_columns : {67u, 128u, 300u, 602u}) {
    const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, num_columns, 100);
    const Profile profile = fit(rows.table, {.codec = "exponent"}).profile;
    for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
      SCOPED_TRACE(name_of(layout == LayoutChoice::kSlots ? Layout::kSlots : Layout::kPacked) + " x " +
                   std::to_string(num_columns));
      const uint32_t whole = (rows.table.row_bytes() + 15) / 16 * 16;  // slots that every row fits into
      const EncodedRows encoded = encode(rows.table, profile, {.layout = layout, .slot_bytes = whole});
      std::memset(const_cast<std::byte*>(encoded.ref.data), 0, std::size_t(encoded.ref.data_bytes));
      const DeviceTable table(encoded, Place::kDevice);
      const base::DeviceArray<int64_t> index = base::upload(random_index(100, 100));
      const std::size_t bytes = std::size_t{100} * rows.table.row_bytes();
      const base::DeviceBytes out(bytes);
      for (const bool bulk : {true, false}) {
        base::fill_gpu(out.data(), 0xa5, bytes);
        EXPECT_THROW(gather.fetch(table, index.data(), 100, out.data(), nullptr, {.bulk = bulk, .check = true}),
                     base::Error);
        EXPECT_EQ(download(out, bytes), std::vector<std::byte>(bytes));
      }
    }
  }
}

TEST(GpuGather, CanBeCapturedInAGraph) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 64, 500);
  const DeviceTable table(encode(rows.table, fit(rows.table).profile), Place::kPinned);
  Gather gather(500);
  const std::vector<int64_t> index = random_index(500, 500);
  const base::DeviceArray<int64_t> device_index = base::upload(index);
  const base::DeviceBytes out(500 * 256);
  const base::Stream stream;
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  gather.fetch(table, device_index.data(), 500, out.data(), stream);
  cudaGraph_t graph;
  cuda_check(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  cuda_check(cudaGraphInstantiate(&exec, graph, 0));
  cuda_check(cudaGraphLaunch(exec, stream));
  stream.synchronize();
  gather.check();
  const std::vector<std::byte> found = download(out, 500 * 256);
  for (std::size_t i = 0; i < 500; ++i) {
    ASSERT_EQ(std::memcmp(found.data() + i * 256, rows.table.row(index[i]), 256), 0);
  }
  cuda_check(cudaGraphExecDestroy(exec));
  cuda_check(cudaGraphDestroy(graph));
}

TEST(GpuTable, LeavesPinnedRowsWhereTheyAre) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 64, 500);
  const EncodedRows encoded = encode_gpu(rows.table, fit(rows.table).profile);
  const DeviceTable table(encoded);
  EXPECT_EQ(table.ref().data, encoded.ref.data);
  EXPECT_TRUE(table.on_host());
  Gather gather(1000);
  expect_fetch(rows, table, gather, {});
  EXPECT_THROW(DeviceTable(encode(rows.table, encoded.profile)), base::Error);
}

}  // namespace
}  // namespace cohort::ibp
