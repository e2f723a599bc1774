// Long work beside a look at what may end it.
#pragma once

#include <chrono>
#include <future>
#include <stop_token>

namespace cohort::dataset {

// Runs work(stop_token) in a thread of its own and calls look() about 20 times a second meanwhile. What look() throws
// stops the work, and is thrown once that has ended. A Waiting lives while this thread does nothing but wait.
template <typename Waiting, typename Work, typename Look>
auto run_watched(Work work, Look look) {
  std::stop_source stop;
  auto result = std::async(std::launch::async, [&] { return work(stop.get_token()); });
  const auto ends_soon = [&] {
    [[maybe_unused]] const Waiting waiting;
    return result.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready;
  };
  try {
    while (!ends_soon()) look();
  } catch (...) {
    stop.request_stop();
    while (!ends_soon()) {
    }
    throw;
  }
  return result.get();
}

}  // namespace cohort::dataset
