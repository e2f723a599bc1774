// Rows that are far (far_rows.h) on their way to a GPU: a kernel lists them, threads read them into page-locked memory
// (staged_reader.h), and the GPU decodes them from there, beside the other tiers of later batches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/owners.h"
#include "base/tier_use.h"
#include "cache/row_bits.h"
#include "cache/staged_reader.h"
#include "ibp/gpu.h"

namespace cohort::cache {

// The far rows of a table.
struct FarPart {
  std::shared_ptr<const FarRows> rows;  // null: nothing
  const RowBits* in_memory = nullptr;   // rows that are not read from there
  int64_t staging_bytes = 0;            // of page-locked memory
  int64_t buffer_bytes = 0;             // of a buffer, where that memory has room for two
};

// What becomes of a fetch's far rows.
struct FarTarget {
  std::byte* rows = nullptr;              // in GPU memory, as the following: where they are written
  const int32_t* positions = nullptr;     // int32 [far rows], their positions there
  unsigned long long* damaged = nullptr;  // as ibp::fetch_located() has it
  const std::byte* counters = nullptr;    // [num_counters], which go to `seen` when all rows are decoded
  std::byte* seen = nullptr;              // in page-locked memory
  std::size_t num_counters = 0;           // bytes
  bool plane_a = false;
};

// Of the current GPU.
class FarGather final {
 public:
  // `num_fetches`: that may be under way at once; they are numbered from 0, in turn. Many buffers have several readers,
  // each with a part of the rows of every fetch, because one thread does not begin as many rows as a network brings.
  FarGather(const FarPart& part, std::size_t num_fetches);
  ~FarGather();
  FarGather(const FarGather&) = delete;
  FarGather& operator=(const FarGather&) = delete;

  // Decodes on streams that `make_stream` makes. Not while a fetch runs.
  void run_on(const std::function<base::Stream(base::Priority)>& make_stream);
  // Rows that are in host memory, in GPU memory.
  RowBitsRef in_memory() const { return {in_memory_.data()}; }
  // Begins a fetch of at most `count` rows: uint32 [count], in page-locked memory, for a kernel that lists those that
  // are far.
  uint32_t* list(std::size_t fetch, int64_t count);
  // Behind that kernel on `stream`; `count`: of the listed rows, in GPU memory.
  void listed(std::size_t fetch, const unsigned long long* count, cudaStream_t stream);
  // Behind all else of the fetch on `stream`: has the listed rows read, and decoded on streams where nothing waits for
  // other streams: what decodes late keeps buffers from being filled.
  void start(std::size_t fetch, const FarTarget& target, cudaStream_t stream);
  // All rows are decoded, or have failed.
  bool ended(std::size_t fetch);
  // Of a fetch that has ended: rows and stored bytes by tier, and from listing to the last row. Throws what has gone
  // wrong.
  TierUses use(std::size_t fetch) const;

 private:
  class Batch;
  class Reader;
  struct Fetch;

  int gpu_;
  base::DeviceArray<uint64_t> in_memory_;
  ibp::DeviceProfile profile_;
  uint32_t max_coded_bytes_;
  base::Stream counting_{base::Priority::kUrgent};  // reads counters
  std::vector<std::unique_ptr<Fetch>> fetches_;
  std::vector<std::unique_ptr<Reader>> readers_;  // the last: their threads use the others
};

}  // namespace cohort::cache
