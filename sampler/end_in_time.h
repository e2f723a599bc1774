// Leaving a process that may not come to its end: giving GPU memory back waits for all work on the GPU, and work that
// waits for a killed trainer's may wait for ever.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace cohort::sampler {

class EndInTime {
 public:
  // leave(), which ends the process, is called by another thread `limit` after the run was seen to be over, unless the
  // destructor comes before.
  EndInTime(std::chrono::milliseconds limit, std::function<void()> leave);
  EndInTime(const EndInTime&) = delete;
  EndInTime& operator=(const EndInTime&) = delete;

  // Has is_over() asked about ten times a second, and once more when the result goes.
  [[nodiscard]] std::unique_ptr<EndInTime, void (*)(EndInTime*)> ask(std::function<bool()> is_over);

 private:
  void look(const std::stop_token& ended);
  void ask_now();  // under the mutex

  const std::chrono::milliseconds limit_;
  const std::function<void()> leave_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::function<bool()> is_over_;
  std::optional<std::chrono::steady_clock::time_point> over_since_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace cohort::sampler
