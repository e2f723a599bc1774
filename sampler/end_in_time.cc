#include "sampler/end_in_time.h"

#include <utility>

namespace cohort::sampler {

using std::chrono::steady_clock;
using namespace std::chrono_literals;

EndInTime::EndInTime(std::chrono::milliseconds limit, std::function<void()> leave)
    : limit_(limit), leave_(std::move(leave)), thread_([this](const std::stop_token& ended) { look(ended); }) {}

EndInTime::Asking EndInTime::ask(std::function<bool()> is_over) {
  const std::lock_guard lock(mutex_);
  is_over_ = std::move(is_over);
  return Asking(*this);
}

EndInTime::Asking::~Asking() {
  const std::lock_guard lock(end_.mutex_);
  end_.ask_now();
  end_.is_over_ = nullptr;
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
