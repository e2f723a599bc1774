// Attention: the CUDA bodies against those of the host.
#include "trainer/nn/native/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/on_gpu.h"
#include "tests/trainer/nn/native/random_block.h"
#include "trainer/nn/native/head_rows.h"
#include "trainer/nn/native/stream.cuh"

namespace cohort::trainer {
namespace {

using base::download;
using base::poisoned;
using base::upload;

constexpr int64_t kRows = 300, kSources = 200, kOwn = 150;
constexpr int64_t kParts[] = {0, 41, 149, 151, kRows};  // from each to the next, rows in one call

template <typename T>
void expect_near(const std::vector<T>& found, const std::vector<T>& expected, double relative) {
  double largest = 0;
  for (const T value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], relative * largest) << "element " << i << " of " << expected.size();
  }
}

// A block with rows of several hundred edges, here and in GPU memory.
struct TwoBlocks {
  RandomBlock block;
  base::DeviceArray<int64_t> offsets = upload(block.offsets), index = upload(block.index);

  explicit TwoBlocks(Lists lists = Lists::kMixed) : block(kRows, kSources, 21, lists) {}
  BlockRef host() const {
    BlockRef ref = block.ref();
    ref.skip_self = true;
    return ref;
  }
  BlockRef gpu() const {
    BlockRef ref = host();
    ref.offsets = offsets.data();
    ref.index = index.data();
    return ref;
  }
};

template <typename T>
class GpuAttention : public ::testing::Test {};
using Wide = ::testing::Types<float, double>;
TYPED_TEST_SUITE(GpuAttention, Wide);

template <typename T>
class GpuHeadRows : public ::testing::Test {};
using Elements = ::testing::Types<float, Bfloat16, Float16, double>;
TYPED_TEST_SUITE(GpuHeadRows, Elements);

template <typename A>
void compare_attention(int64_t heads) {
  const TwoBlocks blocks;
  const int64_t num_edges = blocks.block.num_edges(), pieces = max_pieces(num_edges);
  const auto source = random_elements<A>(kSources * heads, 1), target = random_elements<A>(kRows * heads, 2);
  std::vector<A> weights(static_cast<std::size_t>(num_edges * heads)), own(kOwn * heads), scratch(kRows * heads);
  AttentionCall call{blocks.host(), kDtype<A>,      heads,      {source.data(), heads, target.data(), heads, 0.2},
                     kOwn,          weights.data(), own.data(), scratch.data(),
                     scratch.data()};
  run_on_host(call);
  auto grads = random_elements<A>(num_edges * heads, 3), own_grads = random_elements<A>(kOwn * heads, 4);
  const auto gpu_grads = upload(grads), gpu_own_grads = upload(own_grads);
  std::vector<A> target_grads(kRows * heads);
  AttentionGradCall grad_call{blocks.host(),  kDtype<A>,     heads,        call.scores,      kOwn,
                              weights.data(), own.data(),    grads.data(), own_grads.data(), target_grads.data(),
                              heads,          scratch.data()};
  run_on_host(grad_call);

  const auto gpu_source = upload(source), gpu_target = upload(target);
  const auto gpu_weights = poisoned<A>(num_edges * heads), gpu_own = poisoned<A>(kOwn * heads),
             largest = poisoned<A>(kRows * heads), sums = poisoned<A>(kRows * heads),
             partial = poisoned<A>(2 * pieces * heads), gpu_target_grads = poisoned<A>(kRows * heads);
  call.block = grad_call.block = blocks.gpu();
  call.scores.source = gpu_source.data(), call.scores.target = gpu_target.data(), grad_call.scores = call.scores;
  call.weights = gpu_weights.data(), call.own_weights = gpu_own.data();
  call.largest = largest.data(), call.sums = sums.data(), call.partial = partial.data();
  grad_call.weights = gpu_weights.data(), grad_call.own_weights = gpu_own.data();
  grad_call.grads = gpu_grads.data(), grad_call.own_grads = gpu_own_grads.data();
  grad_call.target_grads = gpu_target_grads.data(), grad_call.sums = sums.data(), grad_call.partial = partial.data();
  const base::Stream stream;
  run_on_gpu(call, stream);
  run_on_gpu(grad_call, stream);
  stream.synchronize();
  const double relative = sizeof(A) == 4 ? 1e-5 : 1e-12;
  expect_near(download(gpu_weights), weights, relative);
  expect_near(download(gpu_own), own, relative);
  expect_near(download(gpu_grads), grads, relative);
  expect_near(download(gpu_own_grads), own_grads, relative);
  expect_near(download(gpu_target_grads), target_grads, relative);
}

TYPED_TEST(GpuAttention, WeightsAndGradientsAreTheHosts) {
  for (const int64_t heads : {1, 2, 4, 7, 40}) compare_attention<TypeParam>(heads);
}

template <typename T>
void compare_spread(int64_t dim, int64_t heads, Lists lists = Lists::kMixed) {
  const TwoBlocks blocks(lists);
  const int64_t num_edges = blocks.block.num_edges();
  const auto x = random_elements<T>(kSources * dim, 1);
  const auto weights = random_elements<Sum<T>>(num_edges * heads, 2), own = random_elements<Sum<T>>(kOwn * heads, 3);
  std::vector<T> expected(static_cast<std::size_t>(heads * kRows * dim));
  SpreadCall call{blocks.host(), kDtype<T>,      kDtype<T>,  dim,  heads,          x.data(),
                  dim,           weights.data(), own.data(), kOwn, expected.data()};
  run_on_host(call);
  const auto gpu_x = upload(x);
  const auto gpu_weights = upload(weights), gpu_own = upload(own);
  const auto out = poisoned<T>(heads * kRows * dim);
  const auto partial = poisoned<Sum<T>>(max_pieces(num_edges) * heads * dim);
  call.block = blocks.gpu(), call.x = gpu_x.data(), call.weights = gpu_weights.data();
  call.own_weights = gpu_own.data(), call.out = out.data(), call.partial = partial.data();
  const base::Stream stream;
  run_on_gpu(call, stream);
  stream.synchronize();
  EXPECT_TRUE(same_bits(download(out), expected)) << dim << " columns, " << heads << " heads";
  for (std::size_t part = 0; part + 1 < std::size(kParts); ++part) {
    const int64_t first = kParts[part], rows = kParts[part + 1] - first;
    const auto some = poisoned<T>(heads * rows * dim);
    call.block = part_of(blocks.gpu(), first, first + rows), call.first_row = first, call.out = some.data();
    run_on_gpu(call, stream);
    stream.synchronize();
    std::vector<T> wanted;
    for (int64_t h = 0; h < heads; ++h) {
      const auto from = expected.begin() + (h * kRows + first) * dim;
      wanted.insert(wanted.end(), from, from + rows * dim);
    }
    EXPECT_TRUE(same_bits(download(some), wanted)) << dim << " columns, " << heads << " heads from row " << first;
  }
}

template <typename T>
void compare_fold(int64_t dim, int64_t heads, Lists lists = Lists::kMixed) {
  const TwoBlocks blocks(lists);
  const int64_t num_edges = blocks.block.num_edges();
  const auto x = random_elements<T>(heads * kSources * dim, 1);
  const auto weights = random_elements<Sum<T>>(num_edges * heads, 2), own = random_elements<Sum<T>>(kOwn * heads, 3);
  std::vector<T> expected(static_cast<std::size_t>(kRows * dim));
  FoldCall call{blocks.host(), kDtype<T>,      dim,        heads, x.data(),
                kSources,      weights.data(), own.data(), kOwn,  expected.data()};
  run_on_host(call);
  const auto gpu_x = upload(x);
  const auto gpu_weights = upload(weights), gpu_own = upload(own);
  const auto out = poisoned<T>(kRows * dim);
  const auto partial = poisoned<Sum<T>>(max_pieces(num_edges) * dim);
  call.block = blocks.gpu(), call.x = gpu_x.data(), call.weights = gpu_weights.data();
  call.own_weights = gpu_own.data(), call.out = out.data(), call.partial = partial.data();
  const base::Stream stream;
  run_on_gpu(call, stream);
  stream.synchronize();
  EXPECT_TRUE(same_bits(download(out), expected)) << dim << " columns, " << heads << " heads";
}

TYPED_TEST(GpuHeadRows, SumsAreTheHostsBits) {
  for (const int64_t dim : {1, 3, 4, 12, 100, 260, 1056}) {
    for (const int64_t heads : {1, 2, 4, 9}) {
      compare_spread<TypeParam>(dim, heads);
      compare_fold<TypeParam>(dim, heads);
    }
  }
}

// Rows of so many columns are streamed; the last tile is not a whole one.
TYPED_TEST(GpuHeadRows, SumsOfStreamedRowsAreTheHostsBits) {
  if constexpr (sizeof(TypeParam) == 8) return;  // never streamed
  constexpr int64_t kShort = 26'016, kFew = 48'160;
  ASSERT_GE(streamed_warps(TwoBlocks(Lists::kShort).host(), kShort / 256), kLeastStreamedWarps);
  ASSERT_GE(streamed_warps(TwoBlocks(Lists::kFew).host(), kFew / 256), kLeastStreamedWarps);
  compare_spread<TypeParam>(kShort, 5, Lists::kShort);
  compare_fold<TypeParam>(kShort, 4, Lists::kShort);
  compare_fold<TypeParam>(kFew, 3, Lists::kFew);
}

template <typename T, typename G = T>
void compare_dots(int64_t dim, int64_t heads, bool shared) {
  const TwoBlocks blocks;
  const int64_t num_edges = blocks.block.num_edges(), x_stride = shared ? dim : heads * dim;
  const auto x = random_elements<T>(kSources * x_stride, 1);
  const auto grad = random_elements<G>(kRows * heads * dim, 2);
  std::vector<Sum<T>> dots(static_cast<std::size_t>(num_edges * heads)), own(kOwn * heads);
  DotCall call{blocks.host(),
               kDtype<T>,
               kDtype<G>,
               dim,
               heads,
               {grad.data(), dim, kRows * dim},
               {x.data(), x_stride, shared ? 0 : dim},
               kOwn,
               dots.data(),
               own.data()};
  run_on_host(call);
  const auto gpu_x = upload(x);
  const auto gpu_grad = upload(grad);
  const auto gpu_dots = poisoned<Sum<T>>(num_edges * heads), gpu_own = poisoned<Sum<T>>(kOwn * heads);
  call.block = blocks.gpu(), call.x.data = gpu_x.data(), call.grad.data = gpu_grad.data();
  call.dots = gpu_dots.data(), call.own_dots = gpu_own.data();
  const base::Stream stream;
  run_on_gpu(call, stream);
  stream.synchronize();
  const double relative = sizeof(Sum<T>) == 4 ? 1e-5 : 1e-12;
  expect_near(download(gpu_dots), dots, relative);
  expect_near(download(gpu_own), own, relative);
  const auto of_parts = poisoned<Sum<T>>(num_edges * heads), own_of_parts = poisoned<Sum<T>>(kOwn * heads);
  call.dots = of_parts.data(), call.own_dots = own_of_parts.data();
  for (std::size_t part = 0; part + 1 < std::size(kParts); ++part) {
    call.first_row = kParts[part], call.block = part_of(blocks.gpu(), kParts[part], kParts[part + 1]);
    call.grad.data = gpu_grad.data() + call.first_row * dim;
    run_on_gpu(call, stream);
  }
  stream.synchronize();
  EXPECT_TRUE(same_bits(download(of_parts), download(gpu_dots)));
  EXPECT_TRUE(same_bits(download(own_of_parts), download(gpu_own)));
}

TYPED_TEST(GpuHeadRows, ProductsAreTheHosts) {
  for (const int64_t dim : {1, 3, 4, 12, 47, 100, 260, 1056}) {
    for (const int64_t heads : {1, 2, 4, 9}) {
      compare_dots<TypeParam>(dim, heads, true);
      compare_dots<TypeParam>(dim, heads, false);
    }
  }
}

TEST(GpuHeadRowsOfTwoTypes, AreTheHosts) {
  for (const int64_t dim : {1, 3, 4, 12, 260, 512, 1056}) {
    for (const int64_t heads : {1, 4, 9}) {
      for (const bool shared : {true, false}) {
        compare_dots<float, Bfloat16>(dim, heads, shared);
        compare_dots<float, Float16>(dim, heads, shared);
        compare_dots<Float16, Bfloat16>(dim, heads, shared);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::trainer
