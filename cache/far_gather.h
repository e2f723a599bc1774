// Far rows (far_rows.h) on their way to a GPU: a kernel lists them, threads read them into page-locked memory
// (staged_reader.h), and the GPU decodes them from there, while it fetches other rows of this batch and of later ones.
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
  std::shared_ptr<const FarRows> rows;  // null: the table has no far rows
  const RowBits* in_memory = nullptr;   // rows in host memory, which are not far
  int64_t staging_bytes = 0;            // of page-locked memory for all buffers
  int64_t buffer_bytes = 0;             // of one buffer, if staging_bytes has room for two
};

// Where a fetch writes its far rows. All pointers but `seen` are in GPU memory.
struct FarTarget {
  std::byte* rows = nullptr;              // the decoded rows
  const int32_t* positions = nullptr;     // int32 [far rows], the position of each far row in `rows`
  unsigned long long* damaged = nullptr;  // `status` of ibp::fetch_located()
  const std::byte* counters = nullptr;    // [num_counters], copied to `seen` when all rows are decoded
  std::byte* seen = nullptr;              // [num_counters], in page-locked memory
  std::size_t num_counters = 0;           // bytes
  bool plane_a = false;                   // read plane A of the rows alone
};

// Fetches the far rows of one table to the GPU that is current when the object is made.
class FarGather final {
 public:
  // `num_fetches`: how many fetches may be under way at once. Each fetch has a number from 0 to num_fetches - 1, taken
  // in turn. If there are many buffers, several readers (threads) read a part of every fetch's rows each, because one
  // thread begins fewer rows per second than a network brings.
  FarGather(const FarPart& part, std::size_t num_fetches);
  ~FarGather();
  FarGather(const FarGather&) = delete;
  FarGather& operator=(const FarGather&) = delete;

  // From now on, decodes on streams that `make_stream` makes. Must not be called while a fetch is under way.
  void run_on(const std::function<base::Stream(base::Priority)>& make_stream);
  // Which rows are in host memory; the bits themselves are in GPU memory.
  RowBitsRef in_memory() const { return {in_memory_.data()}; }
  // Begins a fetch of at most `count` rows. Returns uint32 [count] in page-locked memory, to which a kernel of the
  // caller writes the list of the far rows.
  uint32_t* list(std::size_t fetch, int64_t count);
  // Must be called after that kernel was put on `stream`. `count`: the number of listed rows, in GPU memory.
  void listed(std::size_t fetch, const unsigned long long* count, cudaStream_t stream);
  // Must be called after all other work of the fetch was put on `stream`. Has the listed rows read and decoded. Streams
  // that decode wait for no other stream, because a buffer that is decoded late cannot be filled again.
  void start(std::size_t fetch, const FarTarget& target, cudaStream_t stream);
  // Whether all work of the fetch on `stream` has ended, and all rows are decoded or reading them has failed.
  bool ended(std::size_t fetch);
  // Of a fetch that has ended: rows and stored bytes by tier, and the time from the listing to the last decoded row.
  // Throws the error of a read that failed.
  TierUses use(std::size_t fetch) const;

 private:
  class Batch;
  class Reader;
  struct Fetch;

  int gpu_;
  base::DeviceArray<uint64_t> in_memory_;
  ibp::DeviceProfile profile_;
  uint32_t max_coded_bytes_;
  base::Stream counting_{base::Priority::kUrgent};  // copies counters
  std::vector<std::unique_ptr<Fetch>> fetches_;
  std::vector<std::unique_ptr<Reader>> readers_;  // the last member: the readers' threads use the others
};

}  // namespace cohort::cache
