// Sums, means and maxima of bags of rows.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>

#include "base/cuda_check.h"
#include "base/launch.h"
#include "ibp/uses/bags.h"

namespace cohort::ibp {
namespace {

constexpr int kMostBagBlocks = 1 << 16;
constexpr int kBagsAhead = 8;  // rows that a thread reads before it adds the first

__device__ float read(float value) { return value; }
__device__ float read(__half value) { return __half2float(value); }
__device__ float read(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void write(float from, float& to) { to = from; }
__device__ void write(float from, __half& to) { to = __float2half_rn(from); }
__device__ void write(float from, __nv_bfloat16& to) { to = __float2bfloat16_rn(from); }

struct Span {
  int64_t begin, end;
};

template <typename Offset>
__device__ Span span_of(const BagsRef& bags, const Offset* offsets, int64_t bag) {
  const auto at = [&](int64_t i) { return min(max(int64_t{offsets[i]}, int64_t{0}), bags.count); };
  return {bag == 0 ? 0 : at(bag), bag + 1 < bags.num_offsets ? at(bag + 1) : bags.count};
}

__device__ Span span_of(const BagsRef& bags, int64_t bag) {
  if (!bags.offsets) return {bag * bags.bag_size, (bag + 1) * bags.bag_size};
  if (bags.wide) return span_of(bags, static_cast<const int64_t*>(bags.offsets), bag);
  return span_of(bags, static_cast<const int32_t*>(bags.offsets), bag);
}

// A thread for each Word of each bag.
template <typename Element, typename Word, BagMode mode>
__global__ void __launch_bounds__(base::kBlockThreads)
    reduce_kernel(const Word* rows, BagsRef bags, uint32_t words_of_row, Word* out) {
  constexpr int kElements = sizeof(Word) / sizeof(Element);
  const int64_t total = bags.num_bags * words_of_row;
  for (int64_t i = base::grid_first(); i < total; i += base::grid_step()) {
    const int64_t bag = i / words_of_row, word = i % words_of_row;
    const Span span = span_of(bags, bag);
    float found[kElements] = {};
    int64_t members = 0;
    for (int64_t first = span.begin; first < span.end; first += kBagsAhead) {
      Word ahead[kBagsAhead];
      bool is_member[kBagsAhead];
#pragma unroll
      for (int k = 0; k < kBagsAhead; ++k) {
        const int64_t number = first + k < span.end ? bags.row_index[first + k] : bags.padding_row;
        is_member[k] = first + k < span.end && number != bags.padding_row;
        if (is_member[k]) ahead[k] = __ldg(rows + number * words_of_row + word);
      }
#pragma unroll
      for (int k = 0; k < kBagsAhead; ++k) {
        if (!is_member[k]) continue;
        Element elements[kElements];
        memcpy(elements, &ahead[k], sizeof(Word));
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
          const float value = read(elements[e]);
          if constexpr (mode == BagMode::kMax) {
            if (members == 0 || value > found[e]) found[e] = value;
          } else {
            found[e] += value;
          }
        }
        ++members;
      }
    }
    Element elements[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if (mode == BagMode::kMean && members > 0) found[e] /= static_cast<float>(members);
      write(found[e], elements[e]);
    }
    Word result;
    memcpy(&result, elements, sizeof(Word));
    out[i] = result;
  }
}

struct Reduction {
  const void* rows;
  uint32_t row_bytes;
  const BagsRef& bags;
  void* out;
  cudaStream_t stream;
};

template <typename Element, typename Word>
void launch_words(const Reduction& job, BagMode mode) {
  const uint32_t words = job.row_bytes / sizeof(Word);
  const int blocks = base::grid_for(job.bags.num_bags * words, kMostBagBlocks);
  const auto run = [&](auto kernel) {
    kernel<<<blocks, base::kBlockThreads, 0, job.stream>>>(static_cast<const Word*>(job.rows), job.bags, words,
                                                           static_cast<Word*>(job.out));
  };
  if (mode == BagMode::kSum) return run(reduce_kernel<Element, Word, BagMode::kSum>);
  if (mode == BagMode::kMean) return run(reduce_kernel<Element, Word, BagMode::kMean>);
  run(reduce_kernel<Element, Word, BagMode::kMax>);
}

template <typename Element, typename Bits>
void launch(const Reduction& job, BagMode mode) {
  job.row_bytes % sizeof(uint4) == 0 ? launch_words<Element, uint4>(job, mode) : launch_words<Element, Bits>(job, mode);
}

}  // namespace

void reduce_bags(const void* rows, Dtype dtype, uint32_t num_columns, const BagsRef& bags, BagMode mode, void* out,
                 cudaStream_t stream) {
  if (bags.num_bags == 0) return;
  const Reduction job{rows, num_columns * element_bytes(dtype), bags, out, stream};
  if (dtype == Dtype::kFloat32) {
    launch<float, float>(job, mode);
  } else if (dtype == Dtype::kFloat16) {
    launch<__half, uint16_t>(job, mode);
  } else if (dtype == Dtype::kBfloat16) {
    launch<__nv_bfloat16, uint16_t>(job, mode);
  } else {
    throw base::Error({"reduce_bags: rows", "float32, float16 or bfloat16", name_of(dtype), ""});
  }
  base::cuda_check(cudaGetLastError(), "launch the reduction of bags");
}

}  // namespace cohort::ibp
