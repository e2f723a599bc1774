// Page-locked host memory whose size is known only when it is full.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>

#include <cuda_runtime_api.h>

#include "base/mapping.h"

namespace cohort::base {

// Memory is locked piece by piece, each piece at a multiple of this address.
inline constexpr std::size_t kPinnedPieceBytes = std::size_t{32} << 20;

// One range of addresses, whose front part is locked by a thread of its own while the caller works. The GPU reads it in
// place as one range; the copy engines take no range across two pieces, so copy it with copy_in_pieces().
class PinnedReservation {
 public:
  // Reserves addresses for `bytes`; they take no memory until want().
  explicit PinnedReservation(std::size_t bytes);
  ~PinnedReservation();
  PinnedReservation(const PinnedReservation&) = delete;
  PinnedReservation& operator=(const PinnedReservation&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Starts to lock the first `bytes`; does not wait.
  void want(std::size_t bytes);
  // Waits until the first `bytes` are locked; throws Error when they cannot be.
  void wait(std::size_t bytes);
  // No more will be wanted: gives back the pieces that lie beyond the first `bytes`.
  void finish(std::size_t bytes);

 private:
  void work();
  void end_thread();
  std::size_t piece_end(std::size_t begin) const;  // where the piece of offset `begin` ends
  void unlock_beyond(std::size_t bytes);

  Mapping mapping_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  int device_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::size_t wanted_ = 0, locked_ = 0;
  bool ended_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

// cudaMemcpyAsync() for memory that may be a PinnedReservation's.
void copy_in_pieces(void* to, const void* from, std::size_t bytes, cudaStream_t stream, const char* what);

}  // namespace cohort::base
