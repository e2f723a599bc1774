// Codec planes on the GPU: the same bits as the host, from one plane and from both, wherever the rows are.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/owners.h"
#include "base/random.h"
#include "ibp/gpu.h"
#include "tests/ibp/rows.h"

namespace cohort::ibp {
namespace {

using base::cuda_check;

std::vector<std::byte> download(const base::DeviceBytes& bytes) {
  std::vector<std::byte> host(bytes.bytes());
  cuda_check(cudaMemcpy(host.data(), bytes.data(), host.size(), cudaMemcpyDeviceToHost));
  return host;
}

std::vector<int64_t> random_index(int64_t num_rows, int64_t count) {
  std::vector<int64_t> index(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<int64_t>(base::random_below(uint64_t(num_rows), base::key_of(3), i, 0));
  }
  return index;
}

std::vector<std::byte> fetched_by_the_host(const EncodedRows& encoded, const std::vector<int64_t>& index) {
  std::vector<std::byte> out(index.size() * encoded.ref.row_bytes);
  fetch(encoded, index, out.data());
  return out;
}

// The GPU's rows, guarded by bytes that must stay as they are, equal the host's.
void expect_fetch(const EncodedRows& encoded, const DeviceTable& table, Gather& gather, const FetchOptions& options) {
  const std::vector<int64_t> index = random_index(encoded.ref.num_rows, encoded.ref.num_rows + 77);
  std::vector<std::byte> expected = fetched_by_the_host(options.plane_a ? plane_a_of(encoded) : encoded, index);
  if (options.bfloat16) {
    expected.resize(expected.size() / 2);
    std::vector<uint16_t> elements(expected.size() / 2);
    fetch_bfloat16(encoded, index, elements.data());
    std::memcpy(expected.data(), elements.data(), expected.size());
  }
  const std::size_t row_bytes = expected.size() / index.size();
  expected.resize(expected.size() + 64, std::byte{0xa5});
  const base::DeviceArray<int64_t> device_index = base::upload(index);
  const base::DeviceBytes out(expected.size());
  base::fill_gpu(out.data(), 0xa5, expected.size());
  const base::Stream stream;
  gather.fetch(table, device_index.data(), int64_t(index.size()), out.data(), stream, options);
  stream.synchronize();
  gather.check();
  const std::vector<std::byte> found = download(out);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], expected[i]) << "byte " << i % row_bytes << " of row "
                                     << index[std::min(i / row_bytes, index.size() - 1)];
  }
}

void expect_every_way(const EncodedRows& encoded, Gather& gather) {
  for (const Place place : {Place::kPinned, Place::kDevice}) {
    const DeviceTable table(encoded, place);
    for (const bool plane_a : {true, false}) {
      for (const bool bulk : {true, false}) {
        SCOPED_TRACE(std::string(plane_a ? "A" : "AB") + (bulk ? ", bulk" : ""));
        expect_fetch(encoded, table, gather, {.max_sms = 3, .bulk = bulk, .plane_a = plane_a});
        if (!plane_a) continue;
        expect_fetch(encoded, table, gather, {.max_sms = 3, .bulk = bulk, .plane_a = true, .bfloat16 = true});
      }
    }
  }
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
    const Profile profile = fit(rows.table, {.codec = "planes", .mantissa_bits = mantissa_bits}).profile;
    expect_every_way(encode(rows.table, profile), gather);
  }
}

TEST(GpuPlanes, WidestRows) {
  Gather gather(200);
  for (const Content content : {Content::kDense, Content::kSpecial}) {
    const Rows rows = make_rows(content, Dtype::kFloat32, kMaxRowBytes / 4, 40);
    expect_every_way(encode(rows.table, fit(rows.table, {.codec = "planes"}).profile), gather);
  }
}

TEST(GpuPlanes, EverySmCountAndOrder) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 128, 5000);
  const EncodedRows encoded = encode(rows.table, fit(rows.table, {.codec = "planes"}).profile);
  const DeviceTable table(encoded, Place::kPinned);
  Gather gather(6000);
  for (const int sms : {0, 1, 5}) {
    for (const bool sorted : {true, false}) {
      for (const bool plane_a : {true, false}) {
        expect_fetch(encoded, table, gather, {.max_sms = sms, .by_address = sorted, .plane_a = plane_a});
      }
    }
  }
}

TEST(GpuPlanes, RowsOfPlaneAAloneNeedNoPlaneB) {
  const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, 128, 300);
  const EncodedRows coarse = plane_a_of(encode(rows.table, fit(rows.table, {.codec = "planes"}).profile));
  const DeviceTable table(coarse, Place::kDevice);
  Gather gather(1000);
  for (const bool plane_a : {true, false}) expect_fetch(coarse, table, gather, {.plane_a = plane_a});
}

// Rows as slabs have them: plane B right behind plane A.
TEST(GpuPlanes, RowsInOnePiece) {
  for (const uint32_t num_columns : {64u, 100u, 128u}) {
    const Rows rows = make_rows(Content::kMixed, Dtype::kFloat32, num_columns, 400);
    const EncodedRows encoded = encode(rows.table, fit(rows.table, {.codec = "planes"}).profile);
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
      EXPECT_EQ(download(out), fetched_by_the_host(plane_a ? plane_a_of(encoded) : encoded, all)) << num_columns;
    }
    unsigned long long seen = 0;
    cuda_check(cudaMemcpy(&seen, status.data(), sizeof(seen), cudaMemcpyDeviceToHost));
    EXPECT_EQ(seen, kNoFetchError);
  }
}

// Zero bytes say that every exponent is escaped: more than these rows have room for.
TEST(GpuPlanes, RowsThatAskForMoreEscapesThanTheyHoldAreErrorsAndRowsOfZeros) {
  Gather gather(100);
  for (const uint32_t num_columns : {67u, 128u, 300u}) {
    const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, num_columns, 100);
    const EncodedRows encoded = encode(rows.table, fit(rows.table, {.codec = "planes"}).profile);
    std::memset(const_cast<std::byte*>(encoded.ref.data), 0, std::size_t(encoded.ref.data_bytes));
    std::memset(const_cast<std::byte*>(encoded.ref.overflow), 0, std::size_t(encoded.ref.overflow_bytes));  // raw rows
    const DeviceTable table(encoded, Place::kDevice);
    const base::DeviceArray<int64_t> index = base::upload(random_index(100, 100));
    const base::DeviceBytes out(rows.bytes.size());
    for (const bool plane_a : {true, false}) {
      base::fill_gpu(out.data(), 0xa5, out.bytes());
      EXPECT_THROW(gather.fetch(table, index.data(), 100, out.data(), nullptr, {.check = true, .plane_a = plane_a}),
                   base::Error);
      EXPECT_EQ(download(out), std::vector<std::byte>(out.bytes()));
    }
  }
}

TEST(GpuPlanes, WholeRowsAreNotRounded) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 16, 100);
  const DeviceTable table(encode(rows.table, fit(rows.table, {.codec = "planes"}).profile), Place::kDevice);
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
  const EncodedRows planes = encode(rows.table, fit(rows.table, {.codec = "planes"}).profile);
  EXPECT_THROW(encode_gpu(rows.table, planes.profile), base::Error);
}

}  // namespace
}  // namespace cohort::ibp
