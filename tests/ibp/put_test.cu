// put() on the GPU is put() on the host: the same rows, and the same bytes at home.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "ibp/gpu.h"
#include "ibp/writable.h"
#include "tests/base/fails.h"
#include "tests/base/on_gpu.h"
#include "tests/ibp/written.h"

namespace cohort::ibp {
namespace {

constexpr int64_t kRows = 300;

// All rows, as the GPU fetches them.
std::vector<std::byte> fetched(const DeviceWritableRows& rows) {
  const EncodedRef& ref = rows.table().ref();
  std::vector<int64_t> all(static_cast<std::size_t>(ref.num_rows));
  std::iota(all.begin(), all.end(), 0);
  const auto index = base::upload(all);
  const base::DeviceBytes out(all.size() * ref.row_bytes);
  Gather gather(ref.num_rows);
  gather.fetch(rows.table(), index.data(), ref.num_rows, out.data(), nullptr, {.check = true});
  return base::download(out);
}

// Puts rows that are in host memory, on a stream of its own.
void put(DeviceWritableRows& to, const std::vector<int64_t>& ids, const std::byte* rows,
         const FetchOptions& options = {}) {
  const base::Stream stream;
  const auto of_rows = base::upload(ids);
  const base::DeviceBytes fresh(ids.size() * to.profile().row_bytes());
  base::copy_to_gpu(fresh.data(), rows, fresh.bytes());
  to.put(of_rows.data(), fresh.data(), static_cast<int64_t>(ids.size()), stream, options);
  stream.synchronize();
}

// A hundred different rows.
std::vector<int64_t> some_rows(int64_t step) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 100; ++i) ids.push_back((i * 7 + step * 31) % kRows);
  return ids;
}

class GpuPut : public testing::TestWithParam<Dtype> {};

TEST_P(GpuPut, StoresAsTheHost) {
  for (const uint32_t num_columns : {1u, 50u, 129u}) {
    const Rows rows = make_rows(Content::kDense, GetParam(), num_columns, kRows);
    for (const Profile& profile : all_profiles(rows.table)) {
      for (const Place place : {Place::kPinned, Place::kDevice}) {
        for (const LayoutChoice layout : {LayoutChoice::kPacked, LayoutChoice::kSlots}) {
          // Each place has each layout, at one width or at the two others: page-locking takes most of the test's time.
          if ((place == Place::kPinned) == ((layout == LayoutChoice::kPacked) == (num_columns == 50))) continue;
          SCOPED_TRACE(name_of(profile.codec) + (layout == LayoutChoice::kSlots ? ", slots" : ", packed"));
          const EncodedRows encoded = encode(rows.table, profile, {layout});
          WritableRows host(encoded);
          DeviceWritableRows gpu(encoded, place, kRows);
          ASSERT_EQ(fetched(gpu), rows.bytes);
          int64_t step = 0;
          for (const Content content : kAllContents) {
            const std::vector<int64_t> ids = some_rows(step);
            const Rows fresh = make_rows(content, GetParam(), num_columns, 100);
            host.put(ids, fresh.table);
            put(gpu, ids, fresh.bytes.data(), {.max_sms = step++ % 2 ? 3 : 0});
            expect_same(host.rows(), gpu.to_host(), Homes(encoded).ref().overflow_begin);
            ASSERT_EQ(fetched(gpu), decoded(host.rows()));
            gpu.check();
          }
        }
      }
    }
  }
}

TEST_P(GpuPut, BeginsWithZeros) {
  const Rows rows = make_rows(Content::kDense, GetParam(), 50, kRows);
  for (const Profile& profile : all_profiles(rows.table)) {
    for (const Place place : {Place::kPinned, Place::kDevice}) {
      for (const uint32_t slot_bytes : {4u, profile.row_bytes() / 2 / 4 * 4, (profile.row_bytes() + 15) / 16 * 16}) {
        WritableRows host(profile, kRows, slot_bytes);
        DeviceWritableRows gpu(profile, kRows, slot_bytes, place, kRows);
        ASSERT_EQ(fetched(gpu), std::vector<std::byte>(rows.bytes.size()));
        ASSERT_EQ(gpu.room_left(), kRows);
        for (const Content content : {Content::kMixed, Content::kNoise, Content::kDense}) {
          const std::vector<int64_t> ids = some_rows(static_cast<int64_t>(content));
          const Rows fresh = make_rows(content, GetParam(), 50, 100);
          host.put(ids, fresh.table);
          put(gpu, ids, fresh.bytes.data());
          expect_same(host.rows(), gpu.to_host(), Homes(profile, kRows, slot_bytes).ref().overflow_begin);
          ASSERT_EQ(fetched(gpu), decoded(host.rows()));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, GpuPut, testing::ValuesIn(kAllDtypes));

TEST(GpuPutFaults, ChangeNothingAndComeWithTheNextCall) {
  const Rows rows = make_rows(Content::kDense, Dtype::kFloat32, 64, kRows);
  const Rows noise = make_rows(Content::kNoise, Dtype::kFloat32, 64, 4);
  const Profile profile = fit(rows.table, {.codec = "exponent"}).profile;
  const EncodedRows encoded = encode(rows.table, profile, {LayoutChoice::kSlots, profile.slot_bytes});
  DeviceWritableRows gpu(encoded, Place::kDevice, 2);
  const auto fails = [&](const std::vector<int64_t>& ids, const std::string& text) {
    put(gpu, ids, noise.bytes.data());
    EXPECT_TRUE(base::fails_with([&] { gpu.check(); }, {text}));
    gpu.check();
  };
  fails({3, kRows, 5, -1}, "put: ids[1]: expected the number of a row of the table");
  fails({3, 4, 5, 3}, "each row once");
  EXPECT_EQ(fetched(gpu), rows.bytes);
  fails({7, 8, 9, 10}, "room for rows");
  EXPECT_EQ(gpu.room_left(), 0);
  const std::vector<std::byte> now = fetched(gpu);
  int changed = 0;  // two of them, whichever came first
  for (int64_t row = 0; row < kRows; ++row) {
    const bool same = std::memcmp(now.data() + row * 256, rows.bytes.data() + row * 256, 256) == 0;
    if (same) continue;
    ++changed;
    EXPECT_EQ(std::memcmp(now.data() + row * 256, noise.bytes.data() + (row - 7) * 256, 256), 0);
  }
  EXPECT_EQ(changed, 2);
  put(gpu, {7, 8, 9, 10}, rows.bytes.data() + 7 * 256);  // all go home
  EXPECT_EQ(fetched(gpu), rows.bytes);
  EXPECT_EQ(gpu.room_left(), 2);
}

TEST(GpuPutGraph, RunsAgain) {
  const Rows rows = make_rows(Content::kDense, Dtype::kBfloat16, 64, kRows);
  const Rows other = make_rows(Content::kMixed, Dtype::kBfloat16, 64, 100);
  const EncodedRows encoded = encode(rows.table, fit(rows.table).profile);
  DeviceWritableRows gpu(encoded, Place::kDevice, kRows);
  WritableRows host(encoded);
  const base::Stream stream;
  const std::vector<int64_t> ids = some_rows(0);
  const auto of_rows = base::upload(ids);
  const base::DeviceBytes fresh(other.bytes.size());
  base::copy_to_gpu(fresh.data(), other.bytes.data(), other.bytes.size());
  cudaGraph_t graph;
  cudaGraphExec_t runs;
  base::cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  gpu.put(of_rows.data(), fresh.data(), 100, stream);
  base::cuda_check(cudaStreamEndCapture(stream, &graph));
  base::cuda_check(cudaGraphInstantiate(&runs, graph, 0));
  for (int run = 0; run < 3; ++run) base::cuda_check(cudaGraphLaunch(runs, stream));
  stream.synchronize();
  host.put(ids, other.table);
  EXPECT_EQ(fetched(gpu), decoded(host.rows()));
  base::cuda_check(cudaGraphExecDestroy(runs));
  base::cuda_check(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace cohort::ibp
