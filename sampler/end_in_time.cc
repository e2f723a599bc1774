#include "sampler/end_in_time.h"

#include <utility>

namespace cohort::sampler {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

EndInTime::EndInTime(std::chrono::milliseconds limit, std::function<void()> leave)
    : limit_(limit), leave_(std::move(leave)), thread_([this](const std::stop_token& ended) { look(ended); }) {}

std::unique_ptr<EndInTime, void (*)(EndInTime*)> EndInTime::ask(std::function<bool()> is_over) {
  const std::lock_guard lock(mutex_);
  is_over_ = std::move(is_over);
  return {this, [](EndInTime* end) {
            const std::lock_guard last(end->mutex_);
            end->ask_now();
            end->is_over_ = nullptr;
          }};
}

void EndInTime::ask_now() {
  if (!over_since_ && is_over_ && is_over_()) over_since_ = steady_clock::now();
}

void EndInTime::look(const std::stop_token& ended) {
  std::unique_lock lock(mutex_);
  while (!ended.stop_requested()) {
    ask_now();
    if (over_since_ && steady_clock::now() - *over_since_ >= limit_) leave_();
    changed_.wait_for(lock, ended, 100ms, [] { return false; });
  }
}

}  // namespace cohort::sampler
