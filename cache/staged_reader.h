// Far rows on their way to a GPU: read into buffers of page-locked memory, from which the GPU decodes them.
//
// A thread of its own leads batch after batch through several buffers: while the GPU decodes from some, the reading
// threads fill others, also with rows of the next batch. They rest when all buffers wait for the GPU, so together the
// buffers should hold what comes while the GPU is busy with other things. No other thread waits for them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "cache/far_rows.h"

namespace cohort::cache {

inline constexpr std::size_t kLeastStageBuffers = 2;  // of a table and GPU
inline constexpr int64_t kBytesOfEntry = 8;           // of a buffer's bytes: an entry for each 64 bytes of rows

// Bytes of a buffer. Rows of a disk that lie side by side are read together if they are in one buffer; other rows are
// decoded the sooner, the smaller the buffers are.
inline constexpr int64_t kBufferBytesOfDisks = 32 << 20, kBufferBytesOfMachines = 8 << 20;
// Buffers that divide so many bytes: of `buffer_bytes` each or somewhat more, or two smaller ones.
std::size_t num_stage_buffers(int64_t staging_bytes, int64_t buffer_bytes);

// Page-locked memory that buffers of so many bytes take with their entries; and the least that rows of a table need, in
// all and in each buffer.
constexpr int64_t pinned_bytes(int64_t staging_bytes) { return staging_bytes + staging_bytes / kBytesOfEntry; }
int64_t least_staging_bytes(const ibp::EncodedRef& rows);
int64_t least_buffer_bytes(const ibp::EncodedRef& rows);

// Rows of a batch that lie in a buffer: those from `first` on, in the order of the batch's list.
struct StagedRows {
  std::size_t buffer = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// A batch's far rows, and what is done with them. The reader's thread calls the virtual members.
class StagedBatch {
 public:
  explicit StagedBatch(bool plane_a) : plane_a_(plane_a) {}
  virtual ~StagedBatch() = default;

  // All rows were read, and given to decode(), or reading has failed.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // What was read, of a batch that has ended. Throws what has gone wrong.
  const FarUse& use() const;

 protected:
  // uint32 [far rows], or nothing as long as they are not known. Valid until the batch has ended.
  virtual std::optional<std::span<const uint32_t>> rows() = 0;
  // Begins to decode rows; the buffer stays as it is until is_free() says so.
  virtual void decode(const StagedRows& rows) = 0;
  // After all rows.
  virtual void end() = 0;

 private:
  friend class StagedReader;
  bool plane_a_;
  FarUse use_;
  std::exception_ptr error_;
  std::atomic<bool> ended_ = false;
};

class StagedReader {
 public:
  // Who decodes. Called by the reader's thread.
  struct Decoder {
    virtual ~Decoder() = default;
    virtual void enter_thread() {}                 // first of all
    virtual bool is_free(std::size_t buffer) = 0;  // whatever was decoded from it has been read
  };

  // `buffers`: two or more, each with room for any row; they and `decoder` outlive this.
  StagedReader(std::shared_ptr<const FarRows> rows, std::vector<StageBuffer> buffers, Decoder& decoder);
  // Batches that have not ended are given up.
  ~StagedReader();
  StagedReader(const StagedReader&) = delete;
  StagedReader& operator=(const StagedReader&) = delete;

  // Batches are read in this order.
  void start(std::shared_ptr<StagedBatch> batch);

 private:
  // A buffer that the reading threads fill.
  struct Filling {
    std::shared_ptr<StagedBatch> batch;
    StagedRows rows;
    bool is_last = false;  // of the batch
    FarFetch fetch;
    std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
    bool is_due() const;  // to be decoded
  };
  void serve() noexcept;
  bool step();                           // false: there is nothing to do now
  std::shared_ptr<StagedBatch> first();  // of the batches whose rows are not all being read
  bool fill_next();
  void decode_oldest();
  void end_batch(StagedBatch& batch);
  void fill(const std::shared_ptr<StagedBatch>& batch, std::span<const uint32_t> rows);
  void fail() noexcept;  // with the current exception

  std::shared_ptr<const FarRows> far_;
  std::vector<StageBuffer> buffers_;
  Decoder& decoder_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<StagedBatch>> batches_;  // whose rows are not all being read
  bool is_over_ = false;
  std::exception_ptr error_;
  // Of the thread alone.
  int64_t num_filled_ = 0;       // rows of the first batch that are, or were, being read
  std::size_t next_buffer_ = 0;  // they are filled in turn
  std::deque<Filling> filling_;  // the oldest first
  std::thread thread_;
};

}  // namespace cohort::cache
