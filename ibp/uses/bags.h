// Ids that occur more than once: each row is decoded once, and bags of rows are reduced.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ibp/gpu.h"

namespace cohort::ibp {

struct IdsRef {
  const void* ids = nullptr;  // int32 or int64 [count] in GPU memory
  bool wide = true;           // int64
  int64_t count = 0;          // 1 to 2^31 - 1
  int64_t padding = -1;       // an id whose row is asked for; -1: none
};

struct Distinct {
  int64_t count = 0;         // of different ids
  int64_t padding_row = -1;  // of the padding among them; -1: it is none of them
  bool outside = false;      // an id is not a row of the table: there is nothing to fetch
};

// Bytes of GPU memory that find_distinct() takes for `count` ids, and what of them fetch_distinct() reads.
std::size_t distinct_bytes(int64_t count);
DistinctRef distinct_in(void* memory, int64_t count);
// Finds the different ids. row_index: int32 [count] in GPU memory, which of them each id is. `memory` is at a multiple
// of 256 bytes. The table has fewer than 2^32 rows. Waits for the GPU, allocates nothing.
Distinct find_distinct(const DeviceTable& table, const IdsRef& ids, void* memory, int32_t* row_index,
                       cudaStream_t stream);

enum class BagMode : uint8_t { kSum, kMean, kMax };

// Bags of rows. Bag i has the rows of row_index[offsets[i]] to row_index[offsets[i + 1] - 1], the last one all that are
// left.
struct BagsRef {
  const int32_t* row_index = nullptr;  // int32 [count] in GPU memory
  int64_t count = 0;
  int64_t padding_row = -1;       // rows that are in no bag
  const void* offsets = nullptr;  // int32 or int64 [num_offsets] in GPU memory; null: every bag_size ids are a bag
  bool wide = true;               // int64
  int64_t num_offsets = 0;
  int64_t bag_size = 0;
  int64_t num_bags = 0;  // num_offsets or, if the last offset is the end, one less
};

// out[i] = the sum, mean or maximum of bag i, zeros of an empty one, as torch.nn.EmbeddingBag: summed in float32, in
// order. rows: [n, num_columns] and out: [num_bags, num_columns] of float32, float16 or bfloat16 in GPU memory.
// Asynchronous, allocates nothing. Throws Error for other types.
void reduce_bags(const void* rows, Dtype dtype, uint32_t num_columns, const BagsRef& bags, BagMode mode, void* out,
                 cudaStream_t stream);

}  // namespace cohort::ibp
