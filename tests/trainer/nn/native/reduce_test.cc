#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "tests/trainer/nn/native/random_block.h"
#include "trainer/nn/native/host_rows.h"
#include "trainer/nn/native/sum_rows.h"
#include "trainer/nn/native/transpose.h"

namespace cohort::trainer {
namespace {

constexpr int64_t kReduceSources = 50, kReduceDim = 6;

TEST(Block, EachEdgeOfALongRowIsInOnePiece) {
  for (const int64_t begin : {0, 1, 127, 128, 129, 300}) {
    for (const int64_t length : {129, 256, 257, 1000}) {
      const EdgeRange range{begin, begin + length};
      ASSERT_TRUE(range.in_pieces());
      int64_t next = begin;
      for (int64_t p = range.first_piece(); p < range.end_piece(); ++p) {
        const EdgeRange piece = range.piece(p);
        ASSERT_EQ(piece.begin, next);
        ASSERT_LE(piece.begin, p * kPieceEdges) << "so that row_at() finds the row of a piece";
        ASSERT_GT(piece.end, p * kPieceEdges);
        next = piece.end;
      }
      ASSERT_EQ(next, range.end);
    }
  }
}

TEST(Block, FindsTheRowOfAnEdge) {
  const RandomBlock block(200, kReduceSources, 1);
  const BlockRef ref = block.ref();
  for (int64_t row = 0; row < ref.num_rows; ++row) {
    for (int64_t e = ref.first(row); e < ref.first(row + 1); ++e) ASSERT_EQ(ref.row_at(e), row);
  }
  EXPECT_EQ(ref.first(ref.num_rows + 5), block.num_edges());
}

TEST(SumRows, AllFactorsAtOnce) {
  const RandomBlock block(80, kReduceSources, 2);
  const auto x = random_elements<double>(kReduceSources * kReduceDim, 3),
             edge = random_elements<double>(block.num_edges() * 2, 4),
             index = random_elements<double>(kReduceSources, 5), own = random_elements<double>(30 * 2, 6),
             row = random_elements<double>(80, 7);
  std::vector<double> out(80 * kReduceDim);
  SumCall call{block.ref(), Dtype::kFloat64, Dtype::kFloat64, kReduceDim, x.data(), kReduceDim,
               Own::kAdd,   x.data(),        kReduceDim,      30,         2};
  call.block.skip_self = true;
  call.edge_factor = edge.data();
  call.index_factor = index.data();
  call.own_factor = own.data();
  call.row_factor = row.data();
  call.out = out.data();
  call.out_stride = kReduceDim;
  run_on_host(call);
  const auto at = [](const std::vector<double>& values, int64_t i) { return values[static_cast<std::size_t>(i)]; };
  for (int64_t i = 0; i < 80; ++i) {
    for (int64_t c = 0; c < kReduceDim; ++c) {
      const int64_t head = c / 3;
      double sum = i < 30 ? at(own, i * 2 + head) * at(x, i * kReduceDim + c) : 0;
      for (int64_t e = call.block.first(i); e < call.block.first(i + 1); ++e) {
        const int64_t j = block.index[static_cast<std::size_t>(e)];
        if (j != i) sum += at(edge, e * 2 + head) * at(index, j) * at(x, j * kReduceDim + c);
      }
      ASSERT_NEAR(at(out, i * kReduceDim + c), at(row, i) * sum, 1e-10);
    }
  }
}

TEST(Transpose, KeepsEveryEdgeInOrder) {
  const RandomBlock block(240, kReduceSources, 8);
  ASSERT_GT(block.num_edges(), kFewElements);
  const int threads_before = omp_get_max_threads();
  for (const int threads : {1, 2, 7, 64}) {
    omp_set_num_threads(threads);
    std::vector<int64_t> offsets(kReduceSources + 1, -1), rows(block.index.size());
    std::vector<int32_t> edges(block.index.size());
    run_on_host(TransposeCall{block.ref(), kReduceSources, offsets.data(), rows.data(), edges.data()});
    ASSERT_EQ(offsets.front(), 0);
    ASSERT_EQ(offsets.back(), block.num_edges());
    for (int64_t source = 0; source < kReduceSources; ++source) {
      int32_t before = -1;
      for (auto at = static_cast<std::size_t>(offsets[static_cast<std::size_t>(source)]);
           at < static_cast<std::size_t>(offsets[static_cast<std::size_t>(source) + 1]); ++at) {
        ASSERT_GT(edges[at], before);
        before = edges[at];
        ASSERT_EQ(block.index[static_cast<std::size_t>(before)], source);
        ASSERT_EQ(block.ref().row_at(before), rows[at]);
      }
    }
  }
  omp_set_num_threads(threads_before);
}

TEST(Elements, NarrowingRoundsToEven) {
  EXPECT_EQ(narrow<Bfloat16>(1.00390625f).bits, 0x3F80);  // halfway between two: to the even one
  EXPECT_EQ(narrow<Bfloat16>(1.01171875f).bits, 0x3F82);
  EXPECT_EQ(narrow<Float16>(65520.0f).bits, 0x7C00);  // beyond the largest: infinity
  EXPECT_EQ(widen(narrow<Float16>(0.333251953125f)), 0.333251953125f);
  EXPECT_TRUE(std::isnan(widen(narrow<Bfloat16>(NAN))));
}

}  // namespace
}  // namespace cohort::trainer
