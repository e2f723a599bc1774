// Edges of a sampled block, grouped by the row that they are reduced into: a plain view, passed by value to kernels.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/search.h"

namespace cohort::trainer {

struct BlockRef {
  const int64_t* offsets = nullptr;  // int64 [num_offsets], the first edge of each row; from the last row on: none
  int64_t num_offsets = 0;
  const int64_t* index = nullptr;  // int64 [num_edges], which row of x an edge brings
  const int32_t* edge = nullptr;   // int32 [num_edges], its number where factors of edges are looked up; null: its own
  int64_t num_edges = 0;           // those that count; offsets may go beyond
  int64_t num_rows = 0;
  bool skip_self = false;   // edges from a row to itself do not count
  bool own_pieces = false;  // pieces (see below) are counted from each row's first edge

  COHORT_HOST_DEVICE int64_t first(int64_t row) const {
    if (row >= num_offsets) return num_edges;
    return offsets[row] < num_edges ? offsets[row] : num_edges;
  }
  COHORT_HOST_DEVICE int64_t number(int64_t at) const { return edge ? edge[at] : at; }

  // The last row that begins at or before the edge; -1: none.
  COHORT_HOST_DEVICE int64_t row_at(int64_t at) const {
    const int64_t end = num_rows < num_offsets ? num_rows : num_offsets;
    return base::first_not_before(0, end, [&](int64_t row) { return offsets[row] <= at; }) - 1;
  }
};

// Rows of more edges than this are reduced in pieces, and the pieces in their order, so that a hub of 1e5 neighbours
// keeps many threads busy. A piece ends where a multiple of this many edges of the block is reached; or of the row, and
// the last piece then has the edges after it, too, so that there are no more pieces than multiples of the block.
constexpr int64_t kPieceEdges = 128;

// How many pieces there can be; piece p is of the row, if any, that has edge p * kPieceEdges.
COHORT_HOST_DEVICE inline int64_t max_pieces(int64_t num_edges) {
  return num_edges > kPieceEdges ? (num_edges + kPieceEdges - 1) / kPieceEdges : 0;
}

// Edges [begin, end) of a row, or of one of its pieces.
struct EdgeRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool own_pieces = false;
  COHORT_HOST_DEVICE bool in_pieces() const { return end - begin > kPieceEdges; }
  COHORT_HOST_DEVICE int64_t first_piece() const { return (begin + kPieceEdges - 1) / kPieceEdges; }
  COHORT_HOST_DEVICE int64_t end_piece() const {
    return own_pieces ? first_piece() + (end - begin) / kPieceEdges : (end + kPieceEdges - 1) / kPieceEdges;
  }
  // The edges of piece p: the first also has those before its multiple of the block.
  COHORT_HOST_DEVICE EdgeRange piece(int64_t p) const {
    const int64_t shift = own_pieces ? begin - first_piece() * kPieceEdges : 0, next = (p + 1) * kPieceEdges + shift;
    return {p == first_piece() ? begin : p * kPieceEdges + shift, p + 1 == end_piece() ? end : next};
  }
};

COHORT_HOST_DEVICE inline EdgeRange range_of(const BlockRef& block, int64_t row) {
  return {block.first(row), block.first(row + 1), block.own_pieces};
}

}  // namespace cohort::trainer
