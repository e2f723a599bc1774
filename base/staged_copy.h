// From host memory to the current GPU by way of pinned memory: a piece is written while the one before is copied.
#pragma once

#include <array>
#include <cstddef>

#include "base/cuda_check.h"
#include "base/owners.h"

namespace cohort::base {

class StagedCopy {
 public:
  // `piece_bytes`: the most that a piece has. `what`: for errors.
  StagedCopy(std::size_t piece_bytes, const char* what)
      : pieces_{Piece{PinnedBytes(piece_bytes)}, Piece{PinnedBytes(piece_bytes)}}, what_(what) {}

  ~StagedCopy() { cudaStreamSynchronize(stream_); }  // the pieces are read until then
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;

  // Where to write the next piece.
  std::byte* next() {
    turn_ ^= 1;
    pieces_[turn_].copied.synchronize();
    return pieces_[turn_].bytes.data();
  }
  // Begins to copy the first `bytes` of it to the GPU.
  void copy_to(void* to, std::size_t bytes) {
    Piece& piece = pieces_[turn_];
    cuda_check(cudaMemcpyAsync(to, piece.bytes.data(), bytes, cudaMemcpyHostToDevice, stream_), what_);
    piece.copied.record(stream_);
  }
  void finish() { stream_.synchronize(); }

 private:
  struct Piece {
    PinnedBytes bytes;
    Event copied{cudaEventDisableTiming};
  };
  std::array<Piece, 2> pieces_;
  Stream stream_;
  std::size_t turn_ = 0;
  const char* what_;
};

}  // namespace cohort::base
