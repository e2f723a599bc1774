#include "trainer/loader/native/held_slot.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>

#include "base/check.h"

namespace cohort::trainer {
namespace {

std::pair<int32_t, int32_t> device_of(const channel::Subscriber& subscriber) {
  constexpr int32_t kDlCpu = 1, kDlCuda = 2;
  const bool on_gpu = subscriber.header().device == channel::DeviceKind::kCuda;
  return {on_gpu ? kDlCuda : kDlCpu, subscriber.ordinal()};
}

}  // namespace

HeldSlot::~HeldSlot() {
  try {
    subscriber_->release(held_.slot, stream_, others_);
  } catch (const std::exception& error) {
    failure_->set(error.what());  // a destructor cannot throw; Receiver::next does
  }
}

bool HeldSlot::holds(const void* address) const {
  const std::less<const void*> before;
  const std::byte* end = held_.data + channel::slots_of(header())[static_cast<std::size_t>(held_.slot)].bytes;
  return !before(address, held_.data) && before(address, end);
}

void HeldSlot::record_stream(base::GpuStream stream) {
  if (subscriber_->header().device == channel::DeviceKind::kCpu || stream == stream_) return;
  if (std::ranges::find(others_, stream) == others_.end()) others_.push_back(stream);
}

void HeldSlot::require_rows() const {
  if (subscriber_->header().rows_in == channel::RowsIn::kSlots) return;
  throw base::Error({"x of a batch", "rows in its slot", "rows in a table or a pool", "use row_index and rows"});
}

std::pair<int32_t, int32_t> HeldSlot::dlpack_device() const { return device_of(*subscriber_); }
std::pair<int32_t, int32_t> Receiver::dlpack_device() const { return device_of(*subscriber_); }

Receiver::Receiver(const std::string& folder) : subscriber_(std::make_shared<channel::Subscriber>(folder)) {}

std::unique_ptr<HeldSlot> Receiver::next(uint64_t pass, int64_t limit_us, base::GpuStream stream,
                                         const std::function<bool()>& interrupted) {
  if (const std::string failure = failure_->text(); !failure.empty()) {
    throw base::Error({"giving a slot back", "success", failure, ""});
  }
  const channel::HeldBatch held = subscriber_->next(pass, limit_us, interrupted);
  if (held.slot < 0) return nullptr;
  return std::make_unique<HeldSlot>(subscriber_, failure_, held, stream);
}

std::string Receiver::device() const {
  if (subscriber_->header().device == channel::DeviceKind::kCpu) return "cpu";
  return "cuda:" + std::to_string(subscriber_->ordinal());
}

int64_t Receiver::slots_bytes() const {
  const channel::ChannelHeader& header = subscriber_->header();
  uint64_t bytes = 0;
  for (const channel::Slot& slot : channel::slots_of(header)) bytes += slot.bytes;
  for (const channel::NamedRows& rows : header.rows) {
    if (header.rows_in != channel::RowsIn::kPool) break;
    const uint32_t pieces = std::min<uint32_t>(rows.num_pieces.load(), channel::kMaxRowPieces);
    bytes = std::accumulate(rows.piece_bytes, rows.piece_bytes + pieces, bytes);
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace cohort::trainer
