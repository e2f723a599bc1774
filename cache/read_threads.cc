#include "cache/read_threads.h"

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace cohort::cache {

using namespace std::chrono_literals;

bool ReadJob::done() const {
  const std::lock_guard lock(mutex_);
  return num_ended_ == num_reads_;
}

void ReadJob::wait(const Patience& patience) {
  std::unique_lock lock(mutex_);
  while (num_ended_ < num_reads_) {
    const uint64_t before = progress();
    ended_.wait_for(lock, patience.limit, [&] { return num_ended_ == num_reads_; });
    if (progress() > before) continue;
    lock.unlock();
    abandon();
    const double seconds = std::chrono::duration<double>(patience.limit).count();
    throw base::Error({patience.place, base::format("reads that end within {} s", seconds), "a read that does not end",
                       patience.cure});
  }
  if (error_) std::rethrow_exception(error_);
}

uint64_t ReadJob::progress() const {
  const bool waits = num_begun_ < num_reads_ && ended_of_all_;
  return waits ? num_begun_ + num_ended_ + *ended_of_all_ : UINT64_MAX - (num_reads_ - num_ended_);
}

void ReadJob::abandon() noexcept {
  std::unique_lock lock(mutex_);
  is_abandoned_ = true;
  ended_.wait(lock, [&] { return num_delivering_ == 0; });
}

bool ReadJob::run_next(BlockBuffer& buffer) {
  std::unique_lock lock(mutex_);
  if (num_begun_ == num_reads_) return false;
  const std::size_t i = num_begun_++;
  if (!is_abandoned_ && !error_) {
    lock.unlock();
    std::exception_ptr error = run(i, buffer);
    lock.lock();
    if (!error_) error_ = std::move(error);
  }
  ++num_ended_;
  if (num_ended_ == num_reads_) ended_.notify_all();
  return true;
}

std::exception_ptr ReadJob::run(std::size_t i, BlockBuffer& buffer) noexcept {
  bool delivers = false;
  std::exception_ptr error;
  try {
    read(i, buffer);
    {
      const std::lock_guard lock(mutex_);
      delivers = !is_abandoned_;
      num_delivering_ += delivers ? 1 : 0;
    }
    if (delivers) deliver(i, buffer);
  } catch (...) {
    error = std::current_exception();
  }
  if (!delivers) return error;
  const std::lock_guard lock(mutex_);
  if (--num_delivering_ == 0 && is_abandoned_) ended_.notify_all();
  return error;
}

ReadThreads::ReadThreads(int num_threads) : state_(std::make_shared<State>()) {
  try {
    for (int i = 0; i < num_threads; ++i) {
      std::thread([state = state_] { serve(state); }).detach();
      const std::lock_guard lock(state_->mutex);
      ++state_->num_running;
    }
  } catch (const std::system_error& error) {
    end();
    throw base::Error({"threads that read rows", std::to_string(num_threads), error.code().message(),
                       "raise the limit of threads: ulimit -u, or pids.max of the control group"});
  }
}

ReadThreads::~ReadThreads() { end(); }

void ReadThreads::end() {
  std::unique_lock lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
  state_->changed.wait_for(lock, 1s, [&] { return state_->num_running == 0; });
}

void ReadThreads::start(std::shared_ptr<ReadJob> job, Turn turn) {
  job->ended_of_all_ = state_->num_ended;
  const std::size_t num_reads = job->num_reads_;
  std::unique_lock lock(state_->mutex);
  if (turn == Turn::kNext) {
    state_->next.push_back(std::move(job));
    state_->has_next = true;
  } else {
    state_->last.push_back(std::move(job));
  }
  lock.unlock();
  for (std::size_t i = 0; i < num_reads; ++i) state_->changed.notify_one();
}

void ReadThreads::serve(const std::shared_ptr<State>& state) {
  BlockBuffer buffer;
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->is_over || !state->next.empty() || !state->last.empty(); });
    if (state->is_over) break;
    const bool is_next = !state->next.empty();
    auto& jobs = is_next ? state->next : state->last;
    const std::shared_ptr<ReadJob> job = jobs.front();
    lock.unlock();
    bool all_begun = false;
    while (!all_begun && (is_next || !state->has_next)) {
      all_begun = !job->run_next(buffer);
      if (!all_begun) ++*state->num_ended;
    }
    lock.lock();
    if (all_begun && !jobs.empty() && jobs.front() == job) jobs.pop_front();
    state->has_next = !state->next.empty();
  }
  --state->num_running;
  state->changed.notify_all();
}

}  // namespace cohort::cache
