// Products on tensor cores against sums in double.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "tests/base/on_gpu.h"
#include "trainer/nn/native/product.h"

namespace cohort::trainer {
namespace {

using base::download;
using base::poisoned;
using base::upload;

std::vector<float> random_floats(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = base::random_64(base::key_of(seed), i, 0);
    values[i] = static_cast<float>(static_cast<double>(bits) / 9.2e18 - 1);
  }
  return values;
}

// The largest difference from `sum(i)` of a few elements, all of the last rows among them, by what sqrt(terms) random
// terms make.
template <typename Sum>
double error(const std::vector<float>& found, int64_t terms, Sum sum) {
  double most = 0;
  const auto size = static_cast<int64_t>(found.size());
  const int64_t step = std::max<int64_t>(1, size / 5000);
  for (int64_t i = 0; i < size; i += i + 700 < size ? step : 1) {
    most = std::max(most, std::abs(found[static_cast<std::size_t>(i)] - sum(i)));
  }
  return most / std::sqrt(static_cast<double>(terms));
}

constexpr double kFloat32 = 2e-6;  // a product in TF32 alone is 100 times as far off

class GpuProduct : public testing::TestWithParam<std::tuple<int64_t, int64_t, int64_t>> {
 protected:
  void SetUp() override {
    if (!has_products()) GTEST_SKIP() << "a GPU of compute capability 9.0";
  }
};

TEST_P(GpuProduct, IsAsAccurateAsFloat32) {
  const auto [rows, depth, width] = GetParam();
  if (depth > kMaxProductDepth) return;  // for the gradient alone
  const auto x = random_floats(rows * depth, 1), weight = random_floats(width * depth, 2),
             bias = random_floats(width, 3);
  const auto gpu_x = upload(x), gpu_weight = upload(weight), gpu_bias = upload(bias);
  for (const bool with_bias : {false, true}) {
    const auto out = poisoned<float>(rows * width);
    const base::Stream stream;
    run_on_gpu(ProductCall{rows, depth, width, gpu_x.data(), gpu_weight.data(), with_bias ? gpu_bias.data() : nullptr,
                           out.data()},
               stream);
    stream.synchronize();
    const double off = error(download(out), depth, [&](int64_t i) {
      const int64_t m = i / width, n = i % width;
      double sum = with_bias ? bias[static_cast<std::size_t>(n)] : 0;
      for (int64_t k = 0; k < depth; ++k) {
        sum += double{x[static_cast<std::size_t>(m * depth + k)]} * weight[static_cast<std::size_t>(n * depth + k)];
      }
      return sum;
    });
    EXPECT_LT(off, kFloat32);
  }
}

TEST_P(GpuProduct, SoAreTheGradientsOfMatrixAndBias) {
  const auto [rows, depth, width] = GetParam();
  const auto grad = random_floats(rows * width, 4), x = random_floats(rows * depth, 5);
  const auto gpu_grad = upload(grad), gpu_x = upload(x);
  std::vector<float> first, sums;
  for (int round = 0; round < 2; ++round) {
    const auto out = poisoned<float>(width * depth), of_columns = poisoned<float>(width),
               partial = poisoned<float>(num_product_parts(rows, depth, width) * width * (depth + 1));
    const base::Stream stream;
    run_on_gpu(ProductGradCall{rows, depth, width, gpu_grad.data(), gpu_x.data(), out.data(), of_columns.data(),
                               partial.data()},
               stream);
    stream.synchronize();
    const auto found = download(out), found_sums = download(of_columns);
    if (round > 0) {
      EXPECT_EQ(found, first) << "not the same bits again";
      EXPECT_EQ(found_sums, sums);
    }
    first = found, sums = found_sums;
  }
  const double sums_off = error(sums, rows, [&](int64_t n) {
    double sum = 0;
    for (int64_t m = 0; m < rows; ++m) sum += grad[static_cast<std::size_t>(m * width + n)];
    return sum;
  });
  EXPECT_LT(sums_off, kFloat32);
  const double off = error(first, rows, [&](int64_t i) {
    const int64_t n = i / depth, k = i % depth;
    double sum = 0;
    for (int64_t m = 0; m < rows; ++m) {
      sum += double{grad[static_cast<std::size_t>(m * width + n)]} * x[static_cast<std::size_t>(m * depth + k)];
    }
    return sum;
  });
  EXPECT_LT(off, kFloat32);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GpuProduct,
                         testing::Values(std::tuple{1, 4, 4}, std::tuple{128, 16, 128}, std::tuple{130, 20, 132},
                                         std::tuple{5000, 200, 256}, std::tuple{2049, 100, 64},
                                         std::tuple{3000, 512, 48}, std::tuple{1025, 8, 300},
                                         std::tuple{40000, 256, 68}, std::tuple{20000, 200, 128}));

}  // namespace
}  // namespace cohort::trainer
