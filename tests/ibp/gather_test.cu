#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <tuple>

#include "tests/ibp/fetched.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

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
    ASSERT_EQ(std::memcmp(base::download(out).data(), rows.table.data, bytes), 0);
  }
}

// Rows of codec planes also from plane A alone, as they are and as bfloat16.
void expect_every_way(const Rows& rows, const EncodedRows& encoded, Gather& gather) {
  const bool has_planes = encoded.profile.codec == Codec::kPlanes;
  if (!has_planes) expect_staged(rows, encoded, gather);
  for (const Place place : {Place::kPinned, Place::kDevice}) {
    const DeviceTable table(encoded, place);
    for (const bool bulk : {true, false}) {
      SCOPED_TRACE(bulk ? "bulk" : "row by row");
      expect_fetch(encoded, table, gather, {.max_sms = 3, .bulk = bulk});
      if (!has_planes) continue;
      expect_fetch(encoded, table, gather, {.max_sms = 3, .bulk = bulk, .plane_a = true});
      expect_fetch(encoded, table, gather, {.max_sms = 3, .bulk = bulk, .plane_a = true, .bfloat16 = true});
    }
  }
}

Profile planes_of(const Rows& rows, uint32_t mantissa_bits = 3) {
  return fit(rows.table, {.codec = "planes", .mantissa_bits = mantissa_bits}).profile;
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
    expect_every_way(rows, encode(rows.table, planes_of(rows)), gather);
    for (const Profile& profile : all_profiles(rows.table)) {
      const EncodedRows encoded = encode(rows.table, profile);
      expect_every_way(rows, encoded, gather);
      expect_same_encoding(encoded, encode_gpu(rows.table, profile));
    }
  }
}

TEST(GpuGather, EverySmCountAndOrder) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 128, 5000);
  Gather gather(6000);
  std::vector<Profile> profiles = all_profiles(rows.table);
  profiles.push_back(planes_of(rows));
  for (const Profile& profile : profiles) {
    const EncodedRows encoded = encode(rows.table, profile);
    const DeviceTable table(encoded, Place::kPinned);
    for (const int sms : {0, 1, 5}) {
      for (const bool sorted : {true, false}) {
        expect_fetch(encoded, table, gather, {.max_sms = sms, .by_address = sorted});
        if (profile.codec != Codec::kPlanes) continue;
        expect_fetch(encoded, table, gather, {.max_sms = sms, .by_address = sorted, .plane_a = true});
      }
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
    const std::vector<std::byte> found = base::download(out);
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
      const std::vector<std::byte> found = base::download(out);
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
        EXPECT_EQ(base::download(out), std::vector<std::byte>(bytes));
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
  const std::vector<std::byte> found = base::download(out);
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
  expect_fetch(encoded, table, gather, {});
  EXPECT_THROW(DeviceTable(encode(rows.table, encoded.profile)), base::Error);
}

// A test of its own for each content and width, so that sanitizers can share them out.
class GpuPlanesOf : public testing::TestWithParam<std::tuple<Content, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Rows, GpuPlanesOf,
                         testing::Combine(testing::ValuesIn(kAllContents),
                                          testing::Values(1u, 3u, 32u, 67u, 100u, 128u, 256u, 301u, 602u)),
                         [](const auto& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(GpuPlanesOf, HasTheSameBitsAsTheHost) {
  Gather gather(1000);
  const auto [content, num_columns] = GetParam();
  const Rows rows = make_rows(content, Dtype::kFloat32, num_columns, 150);
  for (const uint32_t mantissa_bits : {0u, 3u, 7u, 12u, 22u}) {
    SCOPED_TRACE(std::to_string(mantissa_bits) + " mantissa bits");
    expect_every_way(rows, encode(rows.table, planes_of(rows, mantissa_bits)), gather);
  }
}

TEST(GpuPlanes, RowsOfPlaneAAloneNeedNoPlaneB) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 128, 300);
  const EncodedRows coarse = plane_a_of(encode(rows.table, planes_of(rows)));
  const DeviceTable table(coarse, Place::kDevice);
  Gather gather(1000);
  for (const bool plane_a : {true, false}) expect_fetch(coarse, table, gather, {.plane_a = plane_a});
}

// Rows as slabs have them: plane B right behind plane A.
TEST(GpuPlanes, RowsInOnePiece) {
  for (const uint32_t num_columns : {64u, 100u, 128u}) {
    const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, num_columns, 400);
    const EncodedRows encoded = encode(rows.table, planes_of(rows));
    std::vector<int64_t> all(400);
    std::iota(all.begin(), all.end(), 0);
    const StoredRows stored = take(encoded, all);
    const base::DeviceBytes data(stored.data.size());
    base::copy_to_gpu(data.data(), stored.data.data(), stored.data.size());
    const base::DeviceArray<uint64_t> entries = base::upload(stored.entries);
    const base::DeviceArray<unsigned long long> count = base::upload(std::vector<unsigned long long>{400});
    const base::DeviceArray<unsigned long long> status = base::upload(std::vector<unsigned long long>{kNoFetchError});
    LocatedRows located;
    located.entries = entries.data();
    located.count = count.data();
    located.regions = {RegionRef{data.data(), static_cast<int64_t>(data.bytes())}};
    located.step_bytes = 16;
    located.on_gpu = true;
    const DeviceProfile profile(encoded.profile);
    for (const bool plane_a : {true, false}) {
      const base::DeviceBytes out(rows.bytes.size());
      fetch_located(profile, located, out.data(), status.data(), nullptr, {.plane_a = plane_a});
      cuda_check(cudaDeviceSynchronize());
      EXPECT_EQ(base::download(out), fetched_by_the_host(plane_a ? plane_a_of(encoded) : encoded, all)) << num_columns;
    }
    EXPECT_EQ(base::download(status)[0], kNoFetchError);
  }
}

// Zero bytes say that every exponent is escaped: more than these rows have room for.
TEST(GpuPlanes, RowsThatAskForMoreEscapesThanTheyHoldAreErrorsAndRowsOfZeros) {
  Gather gather(100);
  for (const uint32_t num_columns : {67u, 128u, 300u}) {
    const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, num_columns, 100);
    const EncodedRows encoded = encode(rows.table, planes_of(rows));
    std::memset(const_cast<std::byte*>(encoded.ref.data), 0, std::size_t(encoded.ref.data_bytes));
    std::memset(const_cast<std::byte*>(encoded.ref.overflow), 0, std::size_t(encoded.ref.overflow_bytes));  // raw rows
    const DeviceTable table(encoded, Place::kDevice);
    const base::DeviceArray<int64_t> index = base::upload(random_index(100, 100));
    const base::DeviceBytes out(rows.bytes.size());
    for (const bool plane_a : {true, false}) {
      base::fill_gpu(out.data(), 0xa5, out.bytes());
      EXPECT_THROW(gather.fetch(table, index.data(), 100, out.data(), nullptr, {.check = true, .plane_a = plane_a}),
                   base::Error);
      EXPECT_EQ(base::download(out), std::vector<std::byte>(out.bytes()));
    }
  }
}

TEST(GpuPlanes, WholeRowsAreNotRounded) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 16, 100);
  const DeviceTable table(encode(rows.table, planes_of(rows)), Place::kDevice);
  Gather gather(10);
  const base::DeviceArray<int64_t> index = base::upload<int64_t>({5});
  const base::DeviceBytes out(64);
  EXPECT_THROW(gather.fetch(table, index.data(), 1, out.data(), nullptr, {.bfloat16 = true}), base::Error);
}

TEST(GpuPlanes, PlaneAOfAnotherCodecIsAnError) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 16, 100);
  const DeviceTable table(encode(rows.table, fit(rows.table, {.codec = "exponent"}).profile), Place::kPinned);
  Gather gather(10);
  const base::DeviceArray<int64_t> index = base::upload<int64_t>({5});
  const base::DeviceBytes out(64);
  EXPECT_THROW(gather.fetch(table, index.data(), 1, out.data(), nullptr, {.plane_a = true}), base::Error);
  const EncodedRows planes = encode(rows.table, planes_of(rows));
  EXPECT_THROW(encode_gpu(rows.table, planes.profile), base::Error);
}

}  // namespace
}  // namespace cohort::ibp
