// Raw rows from GPU memory, this GPU's or a peer's, by loads and stores: an SM has 128 KB of them on their way, where
// bulk copies are held up by how many of them an SM begins. Internal to gather.cu.
#pragma once

#include <algorithm>
#include <numeric>

#include "ibp/device_bits.cuh"
#include "ibp/gpu.h"

namespace cohort::ibp {

inline constexpr uint32_t kCopyWarps = 16;
inline constexpr uint32_t kCopyWords = 1024;  // that a warp copies at a time, or one row
inline constexpr uint32_t kWordsAhead = 16;   // that a lane has on their way

struct CopyJob {
  LocatedRows rows;
  std::byte* out;  // [*rows.count or more, row_bytes]
  uint32_t row_bytes;
  uint32_t row_words;
  uint32_t batch_rows;   // of a warp, 1 to 32
  uint32_t rows_a_word;  // 2^20 / row_words, rounded up

  // The row that has a word of a batch: exact for words of several rows, whose word * row_words is below 2^20.
  __device__ uint32_t row_of(uint32_t word) const { return batch_rows == 1 ? 0 : word * rows_a_word >> 20; }
};

// Where a row is and where it goes.
template <typename Word>
struct RowWay {
  const Word* from;
  Word* to;
};

// Words begin, begin + 32, ... of a batch, kWordsAhead of them; kAll: the batch has that many.
template <bool kAll, typename Word>
__device__ void copy_words(const CopyJob& job, const RowWay<Word>* rows, uint32_t begin, uint32_t num_words) {
  Word words[kWordsAhead];
#pragma unroll
  for (uint32_t i = 0; i < kWordsAhead; ++i) {
    const uint32_t word = begin + i * 32, row = job.row_of(word);
    if (kAll || word < num_words) words[i] = __ldcs(rows[row].from + (word - row * job.row_words));
  }
#pragma unroll
  for (uint32_t i = 0; i < kWordsAhead; ++i) {
    const uint32_t word = begin + i * 32, row = job.row_of(word);
    if (kAll || word < num_words) __stcs(rows[row].to + (word - row * job.row_words), words[i]);
  }
}

// Rows of whole Words at multiples of their size, in `out` too.
template <typename Word>
__global__ void __launch_bounds__(kCopyWarps * 32, 1) copy_rows_kernel(const __grid_constant__ CopyJob job) {
  __shared__ RowWay<Word> batches[kCopyWarps][32];
  RowWay<Word>* rows = batches[threadIdx.x / 32];
  const auto count = static_cast<uint32_t>(*job.rows.count), lane = lane_id();
  const uint32_t step = gridDim.x * kCopyWarps * job.batch_rows;
  uint32_t first = (blockIdx.x * kCopyWarps + threadIdx.x / 32) * job.batch_rows;
  uint64_t entry = 0;  // of row first + lane
  uint32_t position = 0;
  const auto load = [&] {
    if (lane >= job.batch_rows || first + lane >= count) return;
    entry = job.rows.entries[first + lane];
    position = static_cast<uint32_t>(job.rows.positions[first + lane]);
  };
  load();
  while (first < count) {
    const uint32_t num_words = min(job.batch_rows, count - first) * job.row_words;
    const std::byte* from = job.rows.regions[entry_region(entry)].begin + entry_offset_bytes(entry);
    rows[lane] = {reinterpret_cast<const Word*>(from),
                  reinterpret_cast<Word*>(job.out + uint64_t{position} * job.row_bytes)};
    __syncwarp();
    first += step;
    load();  // on their way while the rows before are copied
    for (uint32_t begin = 0; begin < num_words; begin += 32 * kWordsAhead) {
      if (begin + 32 * kWordsAhead <= num_words) {
        copy_words<true>(job, rows, begin + lane, num_words);
      } else {
        copy_words<false>(job, rows, begin + lane, num_words);
      }
    }
    __syncwarp();  // every lane is done with the rows
  }
}

// Whether rows and their places in `out` begin at multiples of 4.
inline bool copies_words(const LocatedRows& rows, uint32_t row_bytes) {
  return std::gcd(rows.step_bytes, row_bytes) % 4 == 0;
}

// Launches the copy by so many SMs. `out` is 16-byte aligned.
inline void launch_copy(const LocatedRows& rows, uint32_t row_bytes, std::byte* out, int num_sms, cudaStream_t stream) {
  const auto launch = [&]<typename Word>(Word) {
    const uint32_t row_words = row_bytes / uint32_t{sizeof(Word)};
    const uint32_t batch_rows = std::clamp(kCopyWords / row_words, 1u, 32u);
    const CopyJob job{rows, out, row_bytes, row_words, batch_rows, ((1u << 20) + row_words - 1) / row_words};
    copy_rows_kernel<Word><<<num_sms, kCopyWarps * 32, 0, stream>>>(job);
  };
  const uint32_t aligned = std::gcd(rows.step_bytes, row_bytes);
  if (aligned % 16 == 0) return launch(uint4{});
  if (aligned % 8 == 0) return launch(uint2{});
  launch(uint32_t{});
}

}  // namespace cohort::ibp
