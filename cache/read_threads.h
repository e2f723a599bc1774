// Threads that read disks for all ranks of a process: as many reads are under way at a time as there are threads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "cache/disk_file.h"

namespace cohort::cache {

// Enough for a drive: of 8 to 128 threads, 64 came within 10 % of the most reads a second of the drives tried.
inline constexpr int kReadThreads = 64;
inline constexpr int kLeastReadThreads = 4;  // where there is little memory for their buffers

// When to give up, and what is said then.
struct Patience {
  std::string place{};  // where reads end
  // Without an end of a read; as long as reads of this job wait for those of others, of any job.
  std::chrono::milliseconds limit{};
  std::string cure{};
};

// Reads that belong together. Each is run once, by any thread.
class ReadJob {
 public:
  explicit ReadJob(std::size_t num_reads) : num_reads_(num_reads) {}
  virtual ~ReadJob() = default;
  ReadJob(const ReadJob&) = delete;
  ReadJob& operator=(const ReadJob&) = delete;

  bool done() const;
  // Waits until all reads have ended. Throws what the first failed read has thrown; and base::Error when no read ends
  // for too long, nor one of a job before it. Nothing is written any more to what the caller has given the job.
  void wait(const Patience& patience);
  // Reads that have not begun are left out; those that have write nothing any more when this returns.
  void abandon() noexcept;

 protected:
  // Brings the bytes of read `i` into `buffer`, which is the thread's.
  virtual void read(std::size_t i, BlockBuffer& buffer) = 0;
  // Gives them to the caller.
  virtual void deliver(std::size_t i, BlockBuffer& buffer) = 0;

 private:
  friend class ReadThreads;
  bool run_next(BlockBuffer& buffer);  // false: all have begun
  std::exception_ptr run(std::size_t i, BlockBuffer& buffer) noexcept;
  uint64_t progress() const;  // grows as long as the wait is for something that moves

  const std::size_t num_reads_;
  mutable std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t num_begun_ = 0, num_ended_ = 0, num_delivering_ = 0;
  bool is_abandoned_ = false;
  std::exception_ptr error_;
  std::shared_ptr<const std::atomic<uint64_t>> ended_of_all_;  // reads of the threads
};

enum class Turn {
  kLast,
  kNext,  // before all reads of others that have not begun
};

class ReadThreads {
 public:
  // Throws base::Error where the system has no more threads.
  explicit ReadThreads(int num_threads = kReadThreads);
  // A thread whose read never ends is left behind.
  ~ReadThreads();
  ReadThreads(const ReadThreads&) = delete;
  ReadThreads& operator=(const ReadThreads&) = delete;

  // Jobs of a turn begin in order.
  void start(std::shared_ptr<ReadJob> job, Turn turn = Turn::kLast);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<ReadJob>> next, last;  // jobs with reads that have not begun
    std::atomic<bool> has_next = false;
    std::shared_ptr<std::atomic<uint64_t>> num_ended = std::make_shared<std::atomic<uint64_t>>(0);
    bool is_over = false;
    int num_running = 0;
  };
  static void serve(const std::shared_ptr<State>& state);
  void end();

  std::shared_ptr<State> state_;
};

}  // namespace cohort::cache
