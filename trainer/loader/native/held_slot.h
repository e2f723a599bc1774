// A batch that lives as long as somebody looks at it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "channel/subscriber.h"

namespace cohort::trainer {

// What went wrong while slots were given back, in destructors of any thread.
class Failure {
 public:
  void set(const char* text) {
    const std::lock_guard lock(mutex_);
    text_ = text;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// Holds a slot; gives it back on destruction.
class HeldSlot {
 public:
  HeldSlot(std::shared_ptr<channel::Subscriber> subscriber, std::shared_ptr<Failure> failure,
           const channel::HeldBatch& held, base::GpuStream stream)
      : subscriber_(std::move(subscriber)), failure_(std::move(failure)), held_(held), stream_(stream) {}
  ~HeldSlot();
  HeldSlot(const HeldSlot&) = delete;
  HeldSlot& operator=(const HeldSlot&) = delete;

  const channel::Batch& batch() const { return *held_.batch; }
  const channel::ChannelHeader& header() const { return subscriber_->header(); }
  std::byte* data() const { return held_.data; }
  // Whether the address lies in the slot.
  bool holds(const void* address) const;
  // Work on this CUDA stream, too, may still read the slot when it is given back. Does nothing on the CPU.
  void record_stream(base::GpuStream stream);
  void require_rows() const;  // throws base::Error where slots have none
  // Work put on the batch's CUDA stream from now on reads no rows that the batch names.
  void leave_rows() { subscriber_->leave_rows(held_.slot, stream_); }
  // DLPack's device type and ordinal.
  std::pair<int32_t, int32_t> dlpack_device() const;

 private:
  std::shared_ptr<channel::Subscriber> subscriber_;
  std::shared_ptr<Failure> failure_;
  channel::HeldBatch held_;
  base::GpuStream stream_;               // the CUDA stream whose work may still read the slot when it is given back
  std::vector<base::GpuStream> others_;  // more of them, each once
};

// The channel as the binding shows it.
class Receiver {
 public:
  explicit Receiver(const std::string& folder);

  uint64_t request(const channel::Request& request) { return subscriber_->request(request); }
  // nullptr when `interrupted` said so. Throws what went wrong while an earlier slot was given back, if anything did.
  std::unique_ptr<HeldSlot> next(uint64_t pass, int64_t limit_us, base::GpuStream stream,
                                 const std::function<bool()>& interrupted);
  void cancel_below(uint64_t pass) { subscriber_->cancel_below(pass); }
  void leave() { subscriber_->leave(); }
  void set_idle() { subscriber_->set_stage(channel::Stage::kIdle); }
  void fail(const std::string& text) { subscriber_->leave_error(text.c_str()); }
  channel::RowsIn rows_in() const { return header().rows_in; }
  const std::byte* rows(std::size_t type) { return subscriber_->rows(type); }  // in memory of the GPU
  const channel::ChannelHeader& header() const { return subscriber_->header(); }
  std::pair<int32_t, int32_t> dlpack_device() const;
  std::string device() const;
  int64_t slots_bytes() const;  // memory of all slots as they are now, and of pools of rows

 private:
  std::shared_ptr<channel::Subscriber> subscriber_;
  std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
};

}  // namespace cohort::trainer
