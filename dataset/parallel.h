// Long loops over all threads that can be stopped and that hand exceptions on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <stop_token>

namespace cohort::dataset {

// Thrown where a loop ends because a stop was asked for.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

inline constexpr int64_t kChunk = 1 << 16;

// Calls body(begin, end) for pieces of [0, count), in parallel and in any order. The first exception is thrown again
// here, and Interrupted when a stop was asked for: looked at once a piece.
template <typename Body>
void for_chunks(int64_t count, const std::stop_token& stop, Body body, int64_t chunk = kChunk) {
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const int64_t num_chunks = (count + chunk - 1) / chunk;
#pragma omp parallel for schedule(dynamic) if (num_chunks > 1)
  for (int64_t i = 0; i < num_chunks; ++i) {
    if (failed.load(std::memory_order_relaxed) || stop.stop_requested()) continue;
    try {
      body(i * chunk, std::min(count, (i + 1) * chunk));
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  if (stop.stop_requested()) throw Interrupted();
}

// What a scan for bad elements found.
struct Scan {
  int64_t first = -1;  // lowest index of a bad element; -1: none
  int64_t count = 0;   // of bad elements
};

// Looks at all i in [0, count) in parallel; the answer does not depend on the number of threads.
template <typename IsBad>
Scan scan(int64_t count, const std::stop_token& stop, IsBad is_bad) {
  std::atomic<int64_t> first{count}, bad{0};
  for_chunks(count, stop, [&](int64_t begin, int64_t end) {
    int64_t here = 0, lowest = count;
    for (int64_t i = end - 1; i >= begin; --i) {
      if (!is_bad(i)) continue;
      ++here;
      lowest = i;
    }
    if (here == 0) return;
    bad += here;
    int64_t seen = first.load();
    while (lowest < seen && !first.compare_exchange_weak(seen, lowest)) {
    }
  });
  return bad == 0 ? Scan{} : Scan{first, bad};
}

}  // namespace cohort::dataset
