// Scores of rows by index, and their gradient, against sums in double.
#include "trainer/nn/native/indexed_scores.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/base/on_gpu.h"
#include "tests/trainer/nn/native/random_block.h"

namespace cohort::trainer {
namespace {

using base::download;
using base::poisoned;
using base::upload;

constexpr int64_t kTable = 500;  // rows, more than are multiplied

std::vector<int64_t> row_index_of(int64_t count) {
  std::vector<int64_t> row_index(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < row_index.size(); ++i) {
    row_index[i] = i % 7 == 3 ? -1 : static_cast<int64_t>(base::random_below(kTable, base::key_of(5), i, 0));
  }
  return row_index;
}

template <typename T>
class GpuIndexedScores : public ::testing::Test {
 protected:
  static double at(const std::vector<T>& values, int64_t i) {
    return static_cast<double>(widen(values[static_cast<std::size_t>(i)]));
  }

  // The products and the gradient, with the largest differences relative to what the sum of magnitudes allows.
  void compare(int64_t count, int64_t dim, int64_t width, int64_t parts) {
    const auto rows = random_elements<T>(kTable * dim, 1), vectors = random_elements<T>(width * dim, 2),
               grad = random_elements<T>(count * width, 3);
    const auto row_index = row_index_of(count);
    const auto gpu_rows = upload(rows), gpu_vectors = upload(vectors), gpu_grad = upload(grad);
    const auto gpu_row_index = upload(row_index);
    const int64_t room = (count + kScoreRows - 1) / kScoreRows * kScoreRows;
    const auto out = poisoned<float>(room * width), partial = poisoned<float>(parts * width * dim);
    const base::Stream stream;
    run_on_gpu(IndexedScoresCall{kDtype<T>, count, dim, width, gpu_rows.data(), gpu_row_index.data(),
                                 gpu_vectors.data(), out.data()},
               stream);
    run_on_gpu(IndexedScoresGradCall{kDtype<T>, count, dim, width, parts, gpu_rows.data(), gpu_row_index.data(),
                                     gpu_grad.data(), partial.data()},
               stream);
    stream.synchronize();
    const auto found = download(out), sums = download(partial);
    for (int64_t i = 0; i < room; ++i) {
      for (int64_t v = 0; v < width; ++v) {
        double expected = 0, magnitude = 0;
        const int64_t from = i < count ? row_index[static_cast<std::size_t>(i)] : -1;
        for (int64_t k = 0; from >= 0 && k < dim; ++k) {
          const double product = at(rows, from * dim + k) * at(vectors, v * dim + k);
          expected += product, magnitude += std::abs(product);
        }
        ASSERT_NEAR(found[static_cast<std::size_t>(i * width + v)], expected, 1e-5 * magnitude) << i << ", " << v;
      }
    }
    for (int64_t v = 0; v < width; ++v) {
      for (int64_t k = 0; k < dim; ++k) {
        double expected = 0, magnitude = 0, sum = 0;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t from = row_index[static_cast<std::size_t>(i)];
          const double product = from < 0 ? 0 : at(grad, i * width + v) * at(rows, from * dim + k);
          expected += product, magnitude += std::abs(product);
        }
        for (int64_t p = 0; p < parts; ++p) sum += sums[static_cast<std::size_t>((p * width + v) * dim + k)];
        ASSERT_NEAR(sum, expected, 1e-5 * magnitude) << v << ", " << k << " of " << parts << " parts";
      }
    }
  }
};

using Halves = ::testing::Types<Float16, Bfloat16>;
TYPED_TEST_SUITE(GpuIndexedScores, Halves);

TYPED_TEST(GpuIndexedScores, AreThoseOfSumsInDouble) {
  for (const int64_t count : {1, 31, 128, 300, 1000}) {
    for (const int64_t dim : {32, 96, 288}) {
      for (const int64_t width : {8, 16, 24, 40, 64}) this->compare(count, dim, width, 1 + count % 5);
    }
  }
}

TYPED_TEST(GpuIndexedScores, HaveMorePartsThanRows) { this->compare(3, 64, 8, 4); }

TYPED_TEST(GpuIndexedScores, RefuseOtherSizes) {
  const base::Stream stream;
  EXPECT_THROW(run_on_gpu(IndexedScoresCall{.dtype = kDtype<TypeParam>, .count = 1, .dim = 40, .width = 8}, stream),
               std::exception);
  EXPECT_THROW(run_on_gpu(IndexedScoresCall{.dtype = kDtype<TypeParam>, .count = 1, .dim = 32, .width = 72}, stream),
               std::exception);
}

}  // namespace
}  // namespace cohort::trainer
