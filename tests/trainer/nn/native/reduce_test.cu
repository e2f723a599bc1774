// The CUDA bodies against those of the host, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/base/on_gpu.h"
#include "tests/trainer/nn/native/random_block.h"
#include "trainer/nn/native/stream.cuh"
#include "trainer/nn/native/sum_rows.h"
#include "trainer/nn/native/transpose.h"

namespace cohort::trainer {
namespace {

using base::download;
using base::poisoned;
using base::upload;

constexpr int64_t kRows = 300, kSources = 200, kStreamedColumns = 48'160;

// A block in GPU memory.
struct GpuBlock {
  base::DeviceArray<int64_t> offsets, index;
  BlockRef ref;

  explicit GpuBlock(const RandomBlock& block) : offsets(upload(block.offsets)), index(upload(block.index)) {
    ref = block.ref();
    ref.offsets = offsets.data();
    ref.index = index.data();
  }
};

template <typename T>
class GpuReduce : public ::testing::Test {};
using Elements = ::testing::Types<float, Bfloat16, Float16, double>;
TYPED_TEST_SUITE(GpuReduce, Elements);

// Sums with every factor and own rows, `heads` of them, in packs and element by element, with and without dropout.
template <typename T>
void compare_sums(int64_t dim, int64_t heads, Own own_use, DropUse drop = DropUse::kNone, Lists lists = Lists::kMixed) {
  const RandomBlock block(kRows, kSources, 11, lists);
  if (lists == Lists::kFew) ASSERT_LT(block.num_edges(), 2 * kRows);
  const auto x = random_elements<T>(kSources * dim, 1);
  const auto edge = random_elements<Sum<T>>(block.num_edges() * heads, 2), index = random_elements<Sum<T>>(kSources, 3),
             own = random_elements<Sum<T>>(kSources * heads, 4), row = random_elements<Sum<T>>(kRows, 5);
  const int64_t width = own_use == Own::kBeside ? 2 * dim : dim;
  std::vector<T> expected(static_cast<std::size_t>(kRows * width));
  std::vector<Sum<T>> expected_count(kRows);
  SumCall call{block.ref(), kDtype<T>, kDtype<T>, dim, x.data(), dim, own_use, x.data(), dim, kSources, heads};
  call.edge_factor = edge.data(), call.index_factor = index.data(), call.own_factor = own.data();
  call.row_factor = row.data(), call.mean = true, call.block.skip_self = own_use == Own::kAdd;
  call.out = expected.data(), call.out_stride = width, call.inverse_count = expected_count.data();
  std::vector<uint8_t> kept(static_cast<std::size_t>((drop == DropUse::kIn ? kSources : kRows) * dim / 4));
  if (drop == DropUse::kBack) std::iota(kept.begin(), kept.end(), uint8_t{0});
  const auto gpu_kept = upload(kept);
  call.drop = {drop, uint64_t{1} << 30, 1 / 0.75f, 99, nullptr, kept.data()};
  run_on_host(call);

  const GpuBlock on_gpu(block);
  const auto gpu_x = upload(x);
  const auto gpu_edge = upload(edge), gpu_index = upload(index), gpu_own = upload(own), gpu_row = upload(row);
  const auto out = poisoned<T>(expected.size());
  const auto count = poisoned<Sum<T>>(kRows),
             partial = poisoned<Sum<T>>(static_cast<std::size_t>(max_pieces(block.num_edges()) * dim));
  call.block.offsets = on_gpu.ref.offsets, call.block.index = on_gpu.ref.index;
  call.x = call.own = gpu_x.data(), call.edge_factor = gpu_edge.data(), call.index_factor = gpu_index.data();
  call.own_factor = gpu_own.data(), call.row_factor = gpu_row.data(), call.out = out.data();
  call.inverse_count = count.data(), call.partial = partial.data(), call.drop.kept = gpu_kept.data();
  const base::Stream stream;
  run_on_gpu(call, stream);
  stream.synchronize();
  EXPECT_TRUE(same_bits(download(out), expected)) << dim << " columns, " << heads << " heads";
  if (drop == DropUse::kIn) {  // told of rows that are read; the host tells of others, too
    std::vector<bool> is_read(kSources);
    for (const int64_t source : block.index) is_read[static_cast<std::size_t>(source)] = true;
    if (own_use != Own::kNone) std::fill_n(is_read.begin(), kRows, true);
    for (std::size_t at = 0; at < kept.size(); ++at) {
      if (!is_read[at / static_cast<std::size_t>(dim / 4)]) kept[at] = 0;
    }
  }
  EXPECT_TRUE(same_bits(download(gpu_kept), kept)) << "what came through";
  EXPECT_TRUE(same_bits(download(count), expected_count));
}

TYPED_TEST(GpuReduce, SumsAreTheHostsBits) {
  for (const int64_t dim : {1, 3, 4, 12, 47, 64, 100, 260}) {
    for (const Own own_use : {Own::kNone, Own::kAdd, Own::kBeside}) compare_sums<TypeParam>(dim, 1, own_use);
  }
  compare_sums<TypeParam>(64, 4, Own::kAdd);
  compare_sums<TypeParam>(6, 2, Own::kAdd);
}

TYPED_TEST(GpuReduce, SumsOfFewEdgesAreTheHostsBits) {
  for (const int64_t dim : {4, 8, 12, 104, 256, 264}) {
    for (const Own own_use : {Own::kNone, Own::kAdd, Own::kBeside}) {
      compare_sums<TypeParam>(dim, 1, own_use, DropUse::kNone, Lists::kFew);
      compare_sums<TypeParam>(dim, 1, own_use, DropUse::kBack, Lists::kFew);
    }
  }
  compare_sums<TypeParam>(64, 4, Own::kAdd, DropUse::kBack, Lists::kFew);
}

// Rows of so many columns are streamed; the last tile is not a whole one.
TYPED_TEST(GpuReduce, SumsOfStreamedRowsAreTheHostsBits) {
  if constexpr (sizeof(TypeParam) == 8) return;  // never streamed
  constexpr int64_t kShort = 26'016;
  const auto warps = [](Lists lists, int64_t dim) {
    return streamed_warps(RandomBlock(kRows, kSources, 11, lists).ref(), dim / 256);
  };
  ASSERT_GE(warps(Lists::kShort, kShort), kLeastStreamedWarps);
  ASSERT_GE(warps(Lists::kFew, kStreamedColumns), kLeastStreamedWarps);
  compare_sums<TypeParam>(kShort, 4, Own::kAdd, DropUse::kBack, Lists::kShort);
  compare_sums<TypeParam>(kShort, 1, Own::kBeside, DropUse::kNone, Lists::kShort);
  compare_sums<TypeParam>(kStreamedColumns, 1, Own::kAdd, DropUse::kBack, Lists::kFew);
}

// Rows by index, plain sums and scaled ones.
void compare_sums_by_index(Lists lists, int64_t num_sources, std::initializer_list<int64_t> dims) {
  const int64_t num_all_rows = num_sources * 3 / 2;
  const RandomBlock block(kRows, num_sources, 11, lists);
  const GpuBlock on_gpu(block);
  const auto row_index = random_row_index(block, num_sources, num_all_rows);
  ASSERT_TRUE(std::ranges::count(row_index, -1) > 0);
  const auto factor = random_elements<float>(num_sources, 2);
  const auto gpu_row_index = upload(row_index);
  const auto gpu_factor = upload(factor);
  for (const int64_t dim : dims) {
    const auto x = random_elements<float>(num_all_rows * dim, 1);
    const auto gpu_x = upload(x);
    for (const Own own_use : {Own::kNone, Own::kAdd, Own::kBeside}) {
      for (const bool scaled : {false, true}) {
        const int64_t width = own_use == Own::kBeside ? 2 * dim : dim;
        std::vector<float> expected(static_cast<std::size_t>(kRows * width));
        SumCall call{block.ref(), Dtype::kFloat32, Dtype::kFloat32, dim, x.data(), dim, own_use, x.data(), dim, kRows};
        call.index_factor = scaled ? factor.data() : nullptr, call.mean = true,
        call.row_index = call.own_row_index = row_index.data();
        call.block.skip_self = scaled && lists == Lists::kMixed, call.out = expected.data(), call.out_stride = width;
        run_on_host(call);
        const auto out = poisoned<float>(expected.size()),
                   partial = poisoned<float>(static_cast<std::size_t>(max_pieces(block.num_edges()) * dim));
        call.block.offsets = on_gpu.ref.offsets, call.block.index = on_gpu.ref.index,
        call.row_index = call.own_row_index = gpu_row_index.data();
        call.x = call.own = gpu_x.data(), call.index_factor = scaled ? gpu_factor.data() : nullptr;
        call.out = out.data(), call.partial = partial.data();
        const base::Stream stream;
        run_on_gpu(call, stream);
        stream.synchronize();
        EXPECT_TRUE(same_bits(download(out), expected)) << dim << " columns, scaled: " << scaled;
      }
    }
  }
}

TEST(GpuRowsAtPlaces, SumsAreTheHostsBits) {
  compare_sums_by_index(Lists::kMixed, 20'000, {1, 3, 4, 47, 100, 128, 260});
  compare_sums_by_index(Lists::kFew, 400, {kStreamedColumns});
}

TYPED_TEST(GpuReduce, DropoutOnTheWayIsTheHostsBits) {
  for (const int64_t dim : {8, 64, 104, 256}) {
    for (const Own own_use : {Own::kNone, Own::kAdd, Own::kBeside}) {
      compare_sums<TypeParam>(dim, 1, own_use, DropUse::kBack);
      if constexpr (sizeof(TypeParam) < 8) compare_sums<TypeParam>(dim, 1, own_use, DropUse::kIn);
    }
  }
  compare_sums<TypeParam>(64, 4, Own::kAdd, DropUse::kBack);
}

TEST(GpuTranspose, IsTheHosts) {
  for (const int64_t num_rows : {0, 1, 300, 5000}) {
    const RandomBlock block(num_rows, kSources, 14);
    const auto num_edges = static_cast<std::size_t>(block.num_edges());
    std::vector<int64_t> offsets(kSources + 1), index(num_edges);
    std::vector<int32_t> edge(num_edges);
    TransposeCall call{block.ref(), kSources, offsets.data(), index.data(), edge.data()};
    run_on_host(call);
    const GpuBlock on_gpu(block);
    const auto gpu_offsets = poisoned<int64_t>(offsets.size()), gpu_index = poisoned<int64_t>(num_edges);
    const auto gpu_edge = poisoned<int32_t>(num_edges);
    const base::DeviceBytes scratch(transpose_scratch_bytes(block.num_edges()));
    call.block = on_gpu.ref;
    call.offsets = gpu_offsets.data(), call.index = gpu_index.data(), call.edge = gpu_edge.data();
    call.scratch = scratch.data(), call.scratch_bytes = scratch.bytes();
    const base::Stream stream;
    run_on_gpu(call, stream);
    stream.synchronize();
    EXPECT_EQ(download(gpu_offsets), offsets);
    EXPECT_EQ(download(gpu_index), index);
    EXPECT_EQ(download(gpu_edge), edge);
  }
}

}  // namespace
}  // namespace cohort::trainer
