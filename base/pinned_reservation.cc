#include "base/pinned_reservation.h"

#include <algorithm>

#include "base/check.h"
#include "base/device.h"
#include "base/pinned_memory.h"

namespace cohort::base {

PinnedReservation::PinnedReservation(std::size_t bytes) : bytes_(bytes), device_(current_gpu()) {
  mapping_ = Mapping::zeros(bytes + kPinnedPieceBytes, "host memory", "");  // the data starts at the first multiple
  data_ = mapping_.data() + (-reinterpret_cast<uintptr_t>(mapping_.data()) % kPinnedPieceBytes);
  thread_ = std::thread([this] { work(); });
}

PinnedReservation::~PinnedReservation() {
  end_thread();
  unlock_beyond(0);
}

void PinnedReservation::want(std::size_t bytes) {
  const std::lock_guard guard(mutex_);
  require(bytes <= bytes_, "no more memory wanted than was reserved");
  wanted_ = std::max(wanted_, bytes);
  changed_.notify_all();
}

void PinnedReservation::wait(std::size_t bytes) {
  want(bytes);
  std::unique_lock guard(mutex_);
  changed_.wait(guard, [&] { return locked_ >= bytes || error_; });
  if (locked_ < bytes) std::rethrow_exception(error_);
}

void PinnedReservation::finish(std::size_t bytes) {
  end_thread();
  unlock_beyond(bytes);
  release_pages(data_ + locked_, bytes_ - locked_);
}

void PinnedReservation::end_thread() {
  {
    const std::lock_guard guard(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::size_t PinnedReservation::piece_end(std::size_t begin) const {
  return std::min((begin / kPinnedPieceBytes + 1) * kPinnedPieceBytes, bytes_);
}

// One piece is touched while the one before it is locked.
void PinnedReservation::work() {
  try {
    choose_gpu(device_);
    std::size_t touched = 0;
    while (true) {
      std::unique_lock guard(mutex_);
      changed_.wait(guard, [&] { return ended_ || wanted_ > locked_; });
      if (ended_) return;
      const std::size_t begin = locked_, end = wanted_ > touched ? piece_end(touched) : touched;
      guard.unlock();
      const cudaError_t status = touch_and_lock({data_ + touched, end - touched}, {data_ + begin, touched - begin});
      check_locked(status, touched - begin);
      guard.lock();
      locked_ = touched;
      touched = end;
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard guard(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

void PinnedReservation::unlock_beyond(std::size_t bytes) {
  const std::size_t keep = std::min(bytes ? piece_end(bytes - 1) : 0, locked_);
  for (std::size_t begin = keep; begin < locked_; begin = piece_end(begin)) cudaHostUnregister(data_ + begin);
  locked_ = keep;
}

void copy_in_pieces(void* to, const void* from, std::size_t bytes, cudaStream_t stream, const char* what) {
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const auto to_border = [](const std::byte* at) {
    return kPinnedPieceBytes - reinterpret_cast<uintptr_t>(at) % kPinnedPieceBytes;
  };
  while (bytes) {
    const std::size_t piece = std::min({bytes, to_border(out), to_border(in)});
    cuda_check(cudaMemcpyAsync(out, in, piece, cudaMemcpyDefault, stream), what);
    out += piece;
    in += piece;
    bytes -= piece;
  }
}

}  // namespace cohort::base
