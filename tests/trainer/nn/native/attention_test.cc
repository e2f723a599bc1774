// Attention against sums and softmaxes that are written out.
#include "trainer/nn/native/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/nn/native/random_block.h"
#include "trainer/nn/native/head_rows.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kRows = 80, kSources = 50, kOwn = 30, kHeads = 3, kDim = 5;

double at(const std::vector<double>& values, int64_t i) { return values[static_cast<std::size_t>(i)]; }

struct Case {
  RandomBlock block{kRows, kSources, 2};
  std::vector<double> x = random_elements<double>(kSources * kDim, 1),
                      weights = random_elements<double>(block.num_edges() * kHeads, 2),
                      own_weights = random_elements<double>(kOwn * kHeads, 3);

  BlockRef ref() const {
    BlockRef ref = block.ref();
    ref.skip_self = true;
    return ref;
  }
  // f(e, j) for each edge of row i that counts, from source j.
  template <typename F>
  void for_edges(int64_t i, F&& f) const {
    for (int64_t e = ref().first(i); e < ref().first(i + 1); ++e) {
      if (const int64_t j = block.index[static_cast<std::size_t>(e)]; j != i) f(e, j);
    }
  }
};

TEST(Attention, WeightsAreSoftmaxesOverARowsEdges) {
  const Case c;
  const auto source = random_elements<double>(kSources * kHeads, 4),
             target = random_elements<double>(kRows * kHeads, 5);
  std::vector<double> weights(c.weights.size(), -1), own(c.own_weights.size());
  std::vector<double> largest(kRows * kHeads), sums(kRows * kHeads);
  run_on_host(AttentionCall{c.ref(),
                            Dtype::kFloat64,
                            kHeads,
                            {source.data(), kHeads, target.data(), kHeads, 0.2},
                            kOwn,
                            weights.data(),
                            own.data(),
                            largest.data(),
                            sums.data()});
  const auto power = [&](int64_t i, int64_t j, int64_t h) {
    const double x = at(source, j * kHeads + h) + at(target, i * kHeads + h);
    return std::exp(x > 0 ? x : 0.2 * x);
  };
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t h = 0; h < kHeads; ++h) {
      double sum = i < kOwn ? power(i, i, h) : 0;
      c.for_edges(i, [&](int64_t, int64_t j) { sum += power(i, j, h); });
      c.for_edges(i,
                  [&](int64_t e, int64_t j) { ASSERT_NEAR(at(weights, e * kHeads + h), power(i, j, h) / sum, 1e-12); });
      if (i < kOwn) {
        ASSERT_NEAR(at(own, i * kHeads + h), power(i, i, h) / sum, 1e-12);
      }
    }
  }
}

constexpr int64_t kParts[] = {0, 7, 29, 31, 79, kRows};  // from each to the next, rows in one call

TEST(HeadRows, SpreadMakesTheSameSumsInParts) {
  const Case c;
  std::vector<double> whole(kHeads * kRows * kDim);
  SpreadCall call{c.ref(), Dtype::kFloat64,  Dtype::kFloat64,      kDim, kHeads,      c.x.data(),
                  kDim,    c.weights.data(), c.own_weights.data(), kOwn, whole.data()};
  run_on_host(call);
  for (std::size_t part = 0; part + 1 < std::size(kParts); ++part) {
    const int64_t first = kParts[part], rows = kParts[part + 1] - first;
    std::vector<double> out(static_cast<std::size_t>(kHeads * rows * kDim));
    call.block = part_of(c.ref(), first, first + rows), call.first_row = first, call.out = out.data();
    run_on_host(call);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < rows * kDim; ++i) {
        ASSERT_EQ(at(out, h * rows * kDim + i), at(whole, (h * kRows + first) * kDim + i));
      }
    }
  }
}

TEST(HeadRows, FoldAddsUpTheHeads) {
  const Case c;
  const auto x = random_elements<double>(kHeads * kSources * kDim, 6);
  std::vector<double> out(kRows * kDim);
  run_on_host(FoldCall{c.ref(), Dtype::kFloat64, kDim, kHeads, x.data(), kSources, c.weights.data(),
                       c.own_weights.data(), kOwn, out.data()});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t k = 0; k < kDim; ++k) {
      double sum = 0;
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto element = [&](int64_t j) { return at(x, (h * kSources + j) * kDim + k); };
        if (i < kOwn) sum += at(c.own_weights, i * kHeads + h) * element(i);
        c.for_edges(i, [&](int64_t e, int64_t j) { sum += at(c.weights, e * kHeads + h) * element(j); });
      }
      ASSERT_NEAR(at(out, i * kDim + k), sum, 1e-10);
    }
  }
}

// Dots of gradients of elements of `grad` and rows of those of `x`, which all heads share.
template <typename Case, typename G, typename T, typename A>
DotCall dots_of(const Case& c, const std::vector<G>& grad, const std::vector<T>& x, std::vector<A>& dots,
                std::vector<A>& own) {
  DotCall call;
  call.block = c.ref(), call.dtype = kDtype<T>, call.grad_dtype = kDtype<G>;
  call.dim = kDim, call.heads = kHeads, call.num_own = kOwn;
  call.grad = {grad.data(), kHeads * kDim, kDim};
  call.x = {x.data(), kDim, 0};
  call.dots = dots.data(), call.own_dots = own.data();
  return call;
}

TEST(HeadRows, DotsAreZeroForEdgesThatDoNotCount) {
  const Case c;
  const auto grad = random_elements<double>(kRows * kHeads * kDim, 7);
  std::vector<double> dots(c.weights.size(), -1), own(c.own_weights.size());
  run_on_host(dots_of(c, grad, c.x, dots, own));
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto product = [&](int64_t j) {
        double sum = 0;
        for (int64_t k = 0; k < kDim; ++k) sum += at(grad, (i * kHeads + h) * kDim + k) * at(c.x, j * kDim + k);
        return sum;
      };
      for (int64_t e = c.ref().first(i); e < c.ref().first(i + 1); ++e) {
        const int64_t j = c.block.index[static_cast<std::size_t>(e)];
        ASSERT_NEAR(at(dots, e * kHeads + h), j == i ? 0 : product(j), 1e-12);
      }
      if (i < kOwn) {
        ASSERT_NEAR(at(own, i * kHeads + h), product(i), 1e-12);
      }
    }
  }
}

TEST(HeadRows, DotsOfGradientsOfAnotherTypeAreThoseOfTheSameNumbers) {
  const Case c;
  const auto x = random_elements<Float16>(kSources * kDim, 3);
  const auto grad = random_elements<Bfloat16>(kRows * kHeads * kDim, 7);
  const auto wide = [](const auto& from) {
    std::vector<float> to;
    for (const auto element : from) to.push_back(widen(element));
    return to;
  };
  const auto wide_x = wide(x), wide_grad = wide(grad);
  std::vector<float> dots(c.weights.size()), own(c.own_weights.size()), expected(dots.size()), expected_own(own.size());
  run_on_host(dots_of(c, grad, x, dots, own));
  run_on_host(dots_of(c, wide_grad, wide_x, expected, expected_own));
  EXPECT_EQ(dots, expected);
  EXPECT_EQ(own, expected_own);
}

TEST(HeadRows, DotsAreTheSameInParts) {
  const Case c;
  const auto grad = random_elements<double>(kRows * kHeads * kDim, 7);
  std::vector<double> whole(c.weights.size()), own(c.own_weights.size());
  DotCall call = dots_of(c, grad, c.x, whole, own);
  run_on_host(call);
  std::vector<double> dots(whole.size()), own_dots(own.size());
  for (std::size_t part = 0; part + 1 < std::size(kParts); ++part) {
    call.first_row = kParts[part], call.block = part_of(c.ref(), kParts[part], kParts[part + 1]);
    call.grad.data = grad.data() + call.first_row * kHeads * kDim;
    call.dots = dots.data(), call.own_dots = own_dots.data();
    run_on_host(call);
  }
  EXPECT_EQ(dots, whole);
  EXPECT_EQ(own_dots, own);
}

}  // namespace
}  // namespace cohort::trainer
