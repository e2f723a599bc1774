// How the GPU reduces wide rows, of which a warp has 512 bytes. A warp has some rows one after the other, and what
// their next edges bring is on its way into shared memory meanwhile: a row of few edges does not wait for its first
// edge, for the index of this, and for what it names. Beside what reduce.cuh asks for, a reduction of packs of 16 bytes
// then has:
//
//     static constexpr int kParts;  // packs that an edge brings
//     struct Factors;               // what else it brings, of words of 4 bytes
//     static bool streams(const Call&);  // on the host; false: not this call
//     static __device__ int64_t source(const Call&, int64_t index);  // the row that row `index` stands for
//     static __device__ const Pack* part(const Call&, int64_t source, int64_t column, int part);  // null: none
//     static __device__ Factors factors(const Call&, int64_t number, int64_t index);
//     void add_parts(const Pack (&parts)[kParts], const Factors&, int64_t source);  // as add() what load() brings
#pragma once

#include <cuda_pipeline.h>

#include <cstring>
#include <type_traits>

#include "trainer/nn/native/reduce.cuh"

namespace cohort::trainer {

// The fastest of those tried on an H200.
constexpr int kStreamRows = 16;   // of a warp, below kWarp
constexpr int kStreamPacks = 12;  // of a lane, on their way or taken
constexpr int kStreamBlocks = 4;  // on an SM
// Chosen between shapes that were faster with streams there (12,000 warps and more, 1 to 10 edges a row) and without.
constexpr int64_t kLeastStreamedWarps = 4096, kMostStreamedEdges = 32;  // of a call; of its rows, in the mean

// The warps that have work if a row is `tiles` times 512 bytes.
inline int64_t streamed_warps(const BlockRef& block, int64_t tiles) {
  return (max_pieces(block.num_edges) + (block.num_rows + kStreamRows - 1) / kStreamRows) * tiles;
}

// The same in all lanes as in lane `from`.
template <typename T>
__device__ T shuffled(const T& value, int from) {
  T out{};
  if constexpr (!std::is_empty_v<T>) {
    constexpr int kWords = sizeof(T) / 4;
    static_assert(sizeof(T) % 4 == 0);
    uint32_t words[kWords];
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = __shfl_sync(0xFFFFFFFFu, words[w], from);
    memcpy(&out, words, sizeof(T));
  }
  return out;
}

// A warp's view of the edges of some rows that follow each other.
template <typename Reduction>
class EdgeStream {
 public:
  using Call = typename Reduction::Call;
  using Part = typename Reduction::Part;
  using Factors = typename Reduction::Factors;
  static constexpr int kParts = Reduction::kParts;
  static constexpr int kSlots = kStreamPacks / kParts;
  static constexpr int kSharedBytes = kSlots * kParts * static_cast<int>(base::kBlockThreads * sizeof(Part));
  static_assert(kSlots >= 2 && kSlots <= kWarp && sizeof(Part) == 16);

  // `ring`: this thread's, at a stride of base::kBlockThreads.
  __device__ EdgeStream(const Call& call, int64_t column, Part* ring)
      : call_(call), column_(column), ring_(ring), lane_(threadIdx.x % kWarp) {}

  // Reduces rows [row, row + count); lane l <= count has the first edge of row `row + l`. done(reduction, edges) for
  // each.
  template <typename Done>
  __device__ void run(int64_t row, int count, int64_t begin, Done&& done) {
    first_ = __shfl_sync(kAll, begin, 0);
    num_edges_ = static_cast<int>(__shfl_sync(kAll, begin, count) - first_);
    const int begin_here = static_cast<int>(begin - first_);
    chunk_ = 0;
    sources_[0] = source_of(lane_);
    sources_[1] = source_of(kWarp + lane_);
    factors_ = factors_of(lane_);
#pragma unroll
    for (int e = 0; e < kSlots - 1; ++e) request(e, e);
    int e = 0, slot = 0;
    for (int r = 0; r < count; ++r) {
      const EdgeRange range{e, __shfl_sync(kAll, begin_here, r + 1)};
      Reduction reduction(call_, row + r, column_);
      for (; e < range.end; ++e) {
        if (e == chunk_ + kWarp) next_chunk();
        const int before = slot == 0 ? kSlots - 1 : slot - 1;
        request(e + kSlots - 1, before);
        __pipeline_wait_prior(kSlots - 1);
        add(reduction, e, slot);
        slot = slot + 1 == kSlots ? 0 : slot + 1;
      }
      done(reduction, range);
    }
  }

 private:
  static constexpr uint32_t kAll = 0xFFFFFFFFu;

  __device__ uint32_t source_of(int e) const {
    if (e >= num_edges_) return 0;
    return static_cast<uint32_t>(Reduction::source(call_, call_.block.index[first_ + e]));
  }
  __device__ Factors factors_of(int e) const {
    if (e >= num_edges_) return {};
    return Reduction::factors(call_, call_.block.number(first_ + e), call_.block.index[first_ + e]);
  }
  __device__ Part& at(int slot, int part) const {
    return ring_[(slot * kParts + part) * static_cast<int>(base::kBlockThreads)];
  }

  __device__ void next_chunk() {
    chunk_ += kWarp;
    sources_[0] = sources_[1];
    sources_[1] = source_of(chunk_ + kWarp + lane_);
    factors_ = factors_of(chunk_ + lane_);
  }

  __device__ void request(int e, int slot) const {
    const int ahead = e - chunk_;
    const uint32_t source = __shfl_sync(kAll, ahead < kWarp ? sources_[0] : sources_[1], ahead % kWarp);
    if (e < num_edges_) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const Part* from = Reduction::part(call_, source, column_, p);
        if (from) __pipeline_memcpy_async(&at(slot, p), from, sizeof(Part));
      }
    }
    __pipeline_commit();
  }

  __device__ void add(Reduction& reduction, int e, int slot) const {
    Part parts[kParts];
#pragma unroll
    for (int p = 0; p < kParts; ++p) parts[p] = at(slot, p);
    const int from = e - chunk_;
    reduction.add_parts(parts, shuffled(factors_, from), __shfl_sync(kAll, sources_[0], from));
  }

  const Call& call_;
  const int64_t column_;
  Part* ring_;
  const int lane_;
  int64_t first_ = 0;  // the first edge of all
  int num_edges_ = 0;
  int chunk_ = 0;        // edges [chunk, chunk + kWarp) have factors_ and the first sources_, one a lane
  uint32_t sources_[2];  // those of the next have the second
  Factors factors_;
};

extern __shared__ __align__(16) uint8_t stream_bytes[];

// A unit is a piece of a long row, or kStreamRows rows, without long ones.
template <typename Reduction>
__global__ void __launch_bounds__(base::kBlockThreads, kStreamBlocks)
    stream_kernel(const __grid_constant__ typename Reduction::Call call, const Tiling tiling) {
  const PackPlace place(tiling, Reduction::kPack);
  if (place.unit >= tiling.num_units) return;
  const bool is_piece = place.unit < tiling.num_pieces, has_columns = place.column < call.dim;
  const int lane = threadIdx.x % kWarp;
  int64_t row = (place.unit - tiling.num_pieces) * kStreamRows, begin = 0;
  int count = 1;
  if (is_piece) {
    row = row_at(call.block, place.unit * kPieceEdges, tiling, place.group_lanes);
    if (row < 0) return;
    const EdgeRange range = range_of(call.block, row);
    if (!range.in_pieces() || place.unit >= range.end_piece()) return;
    const EdgeRange piece = range.piece(place.unit);
    begin = lane == 0 ? piece.begin : piece.end;
  } else {
    count = static_cast<int>(min(static_cast<int64_t>(kStreamRows), call.block.num_rows - row));
    begin = call.block.first(row + min(lane, count));
  }
  const int64_t length = __shfl_down_sync(0xFFFFFFFFu, begin, 1) - begin;
  const uint32_t long_rows = __ballot_sync(0xFFFFFFFFu, !is_piece && lane < count && length > kPieceEdges);
  EdgeStream<Reduction> stream(call, has_columns ? place.column : 0,
                               reinterpret_cast<typename Reduction::Part*>(stream_bytes) + threadIdx.x);
  for (int r = 0; r < count; ++r) {  // then r is a long row
    const uint32_t rest = long_rows >> r;
    const int end = rest ? r + __ffs(static_cast<int>(rest)) - 1 : count;
    const int64_t from_here = __shfl_sync(0xFFFFFFFFu, begin, min(r + lane, kWarp - 1));
    if (end > r) {
      stream.run(row + r, end - r, from_here, [&](Reduction& reduction, EdgeRange range) {
        if (!has_columns) return;
        if (is_piece) {
          reduction.save(place.unit);
        } else {
          reduction.finish(range);
        }
      });
    }
    r = end;
  }
}

// Whether a call is better streamed: for warps without work, and for long lists, rows one at a time are faster.
template <typename Reduction>
bool streams_well(const typename Reduction::Call& call) {
  if constexpr (sizeof(typename Reduction::Part) == 16) {
    const Tiling tiling(call.block, call.dim, Reduction::kPack, kStreamRows);
    return tiling.lanes() == kWarp && streamed_warps(call.block, tiling.num_tiles) >= kLeastStreamedWarps &&
           call.block.num_edges <= kMostStreamedEdges * call.block.num_rows && Reduction::streams(call);
  }
  return false;
}

// As launch_reduction(), but streams where that is better.
template <typename Reduction>
void launch_streamed(const typename Reduction::Call& call, cudaStream_t stream) {
  if constexpr (sizeof(typename Reduction::Part) == 16) {
    constexpr int kBytes = EdgeStream<Reduction>::kSharedBytes;
    static_assert(kBytes <= 48 << 10, "what a block has without asking");
    if (streams_well<Reduction>(call)) {
      const Tiling tiling(call.block, call.dim, Reduction::kPack, kStreamRows);
      stream_kernel<Reduction><<<tiling.blocks(tiling.num_units), base::kBlockThreads, kBytes, stream>>>(call, tiling);
      base::cuda_check(cudaGetLastError(), "launch a reduction of wide rows");
      return launch_merge<Reduction>(call, tiling, stream);
    }
  }
  launch_reduction<Reduction>(call, stream);
}

}  // namespace cohort::trainer
