#include "cache/staged_reader.h"

#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "base/bits.h"
#include "base/check.h"

namespace cohort::cache {

using namespace std::chrono_literals;

namespace {

constexpr auto kPoll = 50us;  // between looks at the GPU and the reads, while there is work

}  // namespace

std::size_t num_stage_buffers(int64_t staging_bytes, int64_t buffer_bytes) {
  base::require(buffer_bytes > 0, "buffers of some bytes");
  return std::max(kLeastStageBuffers, static_cast<std::size_t>(staging_bytes / buffer_bytes));
}

int64_t least_buffer_bytes(const ibp::EncodedRef& rows) {
  const int64_t longest = std::max(ibp::longest_coded_bytes(rows), rows.row_bytes) + int64_t{rows.plane_b_stride_bytes};
  return base::round_up(longest, int64_t{1} << 16);
}

int64_t least_staging_bytes(const ibp::EncodedRef& rows) {
  return static_cast<int64_t>(kLeastStageBuffers) * least_buffer_bytes(rows);
}

const FarUse& StagedBatch::use() const {
  base::require(ended(), "the end of a batch before its use");
  if (error_) std::rethrow_exception(error_);
  return use_;
}

StagedReader::StagedReader(std::shared_ptr<const FarRows> rows, std::vector<StageBuffer> buffers, Decoder& decoder)
    : far_(std::move(rows)), buffers_(std::move(buffers)), decoder_(decoder), thread_([this] { serve(); }) {}

StagedReader::~StagedReader() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void StagedReader::start(std::shared_ptr<StagedBatch> batch) {
  const std::lock_guard lock(mutex_);
  if (error_) {
    batch->error_ = error_;
    batch->ended_.store(true, std::memory_order_release);
    return;
  }
  batches_.push_back(std::move(batch));
  changed_.notify_all();
}

void StagedReader::serve() noexcept {
  try {
    prctl(PR_SET_TIMERSLACK, 1000UL);  // ns; else looks are twice as far apart
    decoder_.enter_thread();
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (filling_.empty()) changed_.wait(lock, [&] { return is_over_ || !batches_.empty(); });
        if (is_over_) return;
      }
      if (!step()) std::this_thread::sleep_for(kPoll);
    }
  } catch (...) {
    fail();
  }
}

void StagedReader::fail() noexcept {
  const std::lock_guard lock(mutex_);
  error_ = std::current_exception();
  for (const Filling& filling : filling_) batches_.push_back(filling.batch);
  filling_.clear();
  for (const std::shared_ptr<StagedBatch>& batch : batches_) {
    batch->error_ = error_;
    batch->ended_.store(true, std::memory_order_release);
  }
  batches_.clear();
}

bool StagedReader::step() {
  if (!filling_.empty() && filling_.front().is_due()) {
    decode_oldest();
    return true;
  }
  return fill_next();
}

std::shared_ptr<StagedBatch> StagedReader::first() {
  const std::lock_guard lock(mutex_);
  return batches_.empty() ? nullptr : batches_.front();
}

bool StagedReader::fill_next() {
  const std::shared_ptr<StagedBatch> batch = first();
  if (!batch) return false;
  const std::optional<std::span<const uint32_t>> rows = batch->rows();
  if (!rows) return false;
  const bool has_rows = num_filled_ < std::ssize(*rows);
  if (has_rows) {
    if (filling_.size() == buffers_.size() || !decoder_.is_free(next_buffer_)) return false;
    fill(batch, *rows);
  }
  if (num_filled_ < std::ssize(*rows)) return true;
  if (!has_rows) end_batch(*batch);  // that has none
  num_filled_ = 0;
  const std::lock_guard lock(mutex_);
  batches_.pop_front();
  return true;
}

void StagedReader::fill(const std::shared_ptr<StagedBatch>& batch, std::span<const uint32_t> rows) {
  const auto left = rows.subspan(static_cast<std::size_t>(num_filled_));
  StagedFetch staged = far_->stage(left, batch->plane_a_, buffers_[next_buffer_]);
  base::require(staged.count > 0, "room for a row in each buffer");
  Filling& filling = filling_.emplace_back();
  filling.batch = batch;
  filling.rows = {next_buffer_, num_filled_, staged.count};
  filling.is_last = staged.count == std::ssize(left);
  filling.fetch = std::move(staged.fetch);
  num_filled_ += staged.count;
  next_buffer_ = (next_buffer_ + 1) % buffers_.size();
}

// After a while a fetch is waited for, which ends it if nobody answers.
bool StagedReader::Filling::is_due() const { return fetch.done() || std::chrono::steady_clock::now() - begun > 1s; }

void StagedReader::decode_oldest() {
  Filling& filling = filling_.front();
  filling.batch->use_ += filling.fetch.finish();
  filling.batch->decode(filling.rows);
  if (filling.is_last) end_batch(*filling.batch);
  filling_.pop_front();
}

void StagedReader::end_batch(StagedBatch& batch) {
  batch.end();
  batch.ended_.store(true, std::memory_order_release);
}

}  // namespace cohort::cache
