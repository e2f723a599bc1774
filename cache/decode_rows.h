// All feature rows, decoded in the memory of GPUs.
#pragma once

#include <cstdint>
#include <span>

#include "cache/slab_rows.h"

namespace cohort::cache {

inline constexpr int64_t kDecodedPieceBytes = int64_t{64} << 20;  // of decoded rows, at a time

// Memory of a GPU for all rows, row_bytes apart.
struct RowsOnGpu {
  int gpu;        // CUDA ordinal
  std::byte* to;  // [num_rows, row_bytes], 16-byte aligned
};

// The host copies encoded rows to pinned memory, piece by piece, and each GPU decodes a piece from there while the next
// one is copied. Throws base::Error for a damaged row. Another GPU may be the current one afterwards.
//
// `rows`: coded, from what the host has encoded, with row_bytes a multiple of 16.
void decode_rows(const SlabRows& rows, int64_t num_rows, std::span<const RowsOnGpu> gpus,
                 int64_t piece_bytes = kDecodedPieceBytes);

}  // namespace cohort::cache
